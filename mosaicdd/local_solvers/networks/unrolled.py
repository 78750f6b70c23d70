r"""The network that corrects harmonic functions in a square to the solutions of a gradient's equation.

For $-\nabla\cdot(k(|\nabla u|^2)\nabla u) = f$ with $k(0) = 1$: with the linear solution $u_0 = L g + w$ for perimeter
values $g$, $w = (-\Delta)^{-1} f$, iterations for $-\Delta u = f + \nabla\cdot F(\nabla u)$, with the equation's own
flux $F(p) = (k(|p|^2) - 1)\,p$ at some points, are unrolled to

$$u = u_0 + \sum_j \phi_j E_j, \quad \phi_j = (F(z_j) - F(p)) (1 + A_j e), \quad
z_1 = p + A (g - \bar g) + \nabla w, \quad z_{j+1} = z_j + \phi_j B_j,$$

where $\bar g$ is the plane through $g$ and $p$ its gradient, so planes are not corrected at all; $e$ are a few numbers
made of the sizes of $p$ and of what there is besides the plane. $A$ begins as the harmonic functions' gradients at the
points, then all is learned. Lengths, those of $u$ included, are in sides of the square: the equation is the same at all
scales. Matrices have the symmetries of the square, as `EquivariantLayers` has them.

Shape letters: ``B`` squares, ``P`` perimeter nodes, ``K`` components of gradients, ``Q`` outputs. Of the gradients the
first components at all points come before the second ones.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.correction import (
    ROUGHNESS,
    SOURCE,
    along_lines,
    differences,
    rms,
)
from mosaicdd.local_solvers.networks.network import require_counts
from mosaicdd.local_solvers.networks.symmetry import EquivariantLayers, Symmetry
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.elliptic import EllipticOperator

SLOPE, PLANE = "slopes along the perimeter", "the slope of a plane"
"""Names of ranges in cards; roughness is that of slopes."""

Conductivity = Callable[[torch.Tensor], torch.Tensor]
"""``k`` of squared gradients."""

_SCALARS = 4
_HALF = 0.2  # size of a remainder whose ``t`` is one half
# Points, one of each eight: sixteenths of a side from the centre, and along the perimeter, in 32nds.
_GRID = [(y, x) for y in (1, 3, 5, 7) for x in (1, 3, 5, 7) if y <= x]
_RIM = (1, 4, 7, 10, 13, 15)


@dataclass(frozen=True)
class UnrolledSettings:
    """Settings of `UnrolledNetwork`."""

    stages: int = 3  # number of iterations, each with the flux at 128 points

    def __post_init__(self) -> None:
        require_counts("an unrolled network", self)


@dataclass(frozen=True)
class Matrices:
    """The plain matrices."""

    # first, between, last, scales: ``A (P, K)``, ``B_j (K, K)``, ``E_j (K, Q)``, and above ``A_j``
    # ones, ``(5, K)``
    first: torch.Tensor
    between: list[torch.Tensor]
    last: list[torch.Tensor]
    scales: list[torch.Tensor]
    # fit, planes, tilted: from perimeters to slopes, ``(P, 2)``; from slopes to perimeters and to
    # gradients, ``(2, P)``, ``(2, K)``
    fit: torch.Tensor
    planes: torch.Tensor
    tilted: torch.Tensor


class UnrolledNetwork(torch.nn.Module):
    """Corrections on the centre lines of a square, the centre counted once.

    Parameters
    ----------
    cells
        A multiple of 16.
    conductivity
        The equation's.

    Attributes
    ----------
    outputs
        Nodes where the correction is given, ``(Q, 2)``.
    sight
        What it sees of the effect ``w`` of a source at the inner nodes: its gradients, ``(I, K)``.

    Raises
    ------
    ValueError
        If the points are no nodes.
    """

    name = "unrolled"
    Settings = UnrolledSettings
    _planes: torch.Tensor
    _tilted: torch.Tensor
    _order: torch.Tensor

    @classmethod
    def of(cls, settings: UnrolledSettings, pde: str, cells: int) -> Self:
        """Return a network for an equation, not trained yet; `ValueError` if the equation has no conductivity."""
        equation = any_equation(pde)
        if not isinstance(equation, NonlinearEquation) or equation.conductivity is None:
            raise ValueError(
                f"an unrolled network is for an equation with a conductivity, {pde} has none; take "
                "the network correction"
            )
        return cls(cells, settings, equation.conductivity)

    def __init__(self, cells: int, settings: UnrolledSettings, conductivity: Conductivity):
        super().__init__()
        if cells % 16:
            raise ValueError(f"an unrolled network needs a multiple of 16 cells, got {cells}")
        self.settings, self.cells, self.conductivity = settings, cells, conductivity
        square = Subdomain(cells, 1.0)
        self.outputs = np.unique(square.centre_lines, axis=0)
        self._points = _points(cells)
        d = 2 * len(self._points)
        width = math.sqrt(8 * d)
        self.inlet = torch.nn.Parameter(torch.zeros(4 * cells, d))
        self.between = torch.nn.Parameter(0.1 * torch.randn(settings.stages - 1, 8, d, d) / width)
        size = settings.stages, len(self.outputs), d
        self.outlet = torch.nn.Parameter(0.05 * torch.randn(size) / width)
        self.scales = torch.nn.Parameter(0.05 * torch.randn(settings.stages, _SCALARS, d))
        order = torch.arange(8 * d).view(8, 2, -1).transpose(0, 1).flatten()
        self.register_buffer("_order", order, persistent=False)
        self._layers = EquivariantLayers(cells, square.perimeter, self.outputs)
        inner = EquivariantLayers(cells, square.interior, self.outputs)
        gradients = torch.from_numpy(self._gradients(np.eye((cells - 1) ** 2)))
        self.sight = inner.inlet(gradients)[:, self._order].numpy()
        planes = torch.from_numpy(square.perimeter.T / cells - 0.5).float()
        self.register_buffer("_planes", planes, persistent=False)
        turned = Symmetry(4 * cells).matrices.permute(2, 0, 1)
        tilted = turned[..., None].expand(-1, -1, -1, len(self._points)).flatten(1)
        self.register_buffer("_tilted", tilted[:, self._order], persistent=False)

    def begin(self, harmonic: np.ndarray) -> None:
        """Let ``A`` be the gradients of harmonic functions, from their values ``(m + 1, m + 1, P)``."""
        gradients = self._gradients(harmonic[1:-1, 1:-1].reshape(-1, harmonic.shape[2]), harmonic)
        self.inlet.data.copy_(torch.from_numpy(gradients))

    def _gradients(self, inner: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Return both components of the gradients at the points, ``(N, D)``, for inner nodes' rows ``(I, N)``."""
        m, count = self.cells, inner.shape[1]
        if values is None:  # zero on the perimeter
            values = np.pad(inner.reshape(m - 1, m - 1, count), ((1, 1), (1, 1), (0, 0)))
        y, x = self._points.T
        differences = [values[y + 1, x] - values[y - 1, x], values[y, x + 1] - values[y, x - 1]]
        return np.concatenate(differences).T * (m / 2)

    def matrices(self) -> Matrices:
        """Return the plain matrices."""
        layers, planes, order = self._layers, self._planes, self._order
        scales = torch.nn.functional.pad(self.scales.repeat(1, 1, 8), (0, 0, 1, 0), value=1.0)
        return Matrices(
            layers.inlet(self.inlet)[:, order],
            [layers.hidden(blocks)[order][:, order] for blocks in self.between],
            [layers.outlet(weights)[order] for weights in self.outlet],
            list(scales[..., order]),
            planes.T / planes[0].square().sum(),
            planes,
            self._tilted,
        )

    def forward(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return corrections ``(B, Q)`` for ``g``, ``(B, P)``, and gradients of ``w``, ``(B, K)``."""
        return correct(g, seen, self.matrices(), self.conductivity)

    @torch.no_grad()
    def compiled(
        self,
        base: EllipticOperator,
        square: Subdomain,
        limits: Mapping[str, float],
        device: torch.device,
    ) -> "CompiledUnrolled":
        """Return it for squares of a size, with plain matrices, outputs in the order of centre lines.

        ``limits`` are the largest `SLOPE`, `PLANE`, `ROUGHNESS` and `SOURCE` that it is for;
        ``base`` is Laplace's.
        """
        plain, lines = self.matrices(), along_lines(self.outputs, square)

        def there(values: torch.Tensor) -> torch.Tensor:
            return values.contiguous().to(device)

        matrices = Matrices(
            there(plain.first),
            [there(values) for values in plain.between],
            [there(values[:, lines]) for values in plain.last],
            [there(values) for values in plain.scales],
            *map(there, (plain.fit, plain.planes, plain.tilted)),
        )
        return CompiledUnrolled(matrices, self.conductivity, square.size, limits)


class CompiledUnrolled:
    """Plain matrices that give corrections on centre lines, ``(B, L)``, for planes up to the ``steepest`` slope."""

    def __init__(
        self,
        matrices: Matrices,
        conductivity: Conductivity,
        size: float,
        limits: Mapping[str, float],
    ):
        self._matrices, self._conductivity, self._size = matrices, conductivity, size
        self._limits, self.steepest = dict(limits), limits[PLANE]

    def seen(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return gradients of ``w``, seen by `UnrolledNetwork.sight`, as the network is given them."""
        return (gradients / self._size).float()

    def input(self, g: torch.Tensor) -> torch.Tensor:
        """Return perimeters as the network is given them: in its units, and without their means."""
        return ((g - g.mean(dim=1, keepdim=True)) / self._size).float()

    def outside(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Say which data are too steep or too rough, ``(B,)``; NaN is."""
        sizes = sloped(g, self.slopes(g))
        inside = torch.ones(len(g), dtype=torch.bool, device=g.device)
        for name, values in zip((SLOPE, PLANE, ROUGHNESS), sizes, strict=True):
            inside &= values <= self._limits[name]
        if seen is not None:
            inside &= seen.abs().amax(dim=1) <= self._limits[SOURCE]
        return ~inside

    def __call__(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return corrections for perimeters as of `input`."""
        return self._size * correct(g, seen, self._matrices, self._conductivity)

    def slopes(self, g: torch.Tensor) -> torch.Tensor:
        """Return the slopes of the planes through perimeters as of `input`, ``(B, 2)``."""
        return g @ self._matrices.fit


def correct(
    g: torch.Tensor, seen: torch.Tensor | None, matrices: Matrices, conductivity: Conductivity
) -> torch.Tensor:
    """Return corrections by plain matrices; see the head of this module."""
    slopes = g @ matrices.fit
    rest = torch.addmm(g, slopes, matrices.planes, alpha=-1.0)
    n = remainder_size(rest, seen)
    t = n / (_HALF + n)
    steep = slopes.square().sum(dim=1, keepdim=True)
    q = steep / (1.0 + steep)
    e = torch.cat([torch.ones_like(t), t, t * t, q, t * q], dim=1)
    plane = slopes @ matrices.tilted
    at_plane = plane * (conductivity(steep) - 1.0)
    z = torch.addmm(plane, rest, matrices.first)
    if seen is not None:
        z = z + seen
    out = g.new_zeros(len(g), matrices.last[0].shape[1])
    for number, (scales, last) in enumerate(zip(matrices.scales, matrices.last, strict=True)):
        change = (_flux(z, conductivity) - at_plane) * (e @ scales)
        out = torch.addmm(out, change, last)
        if number < len(matrices.between):
            z = torch.addmm(z, change, matrices.between[number])
    return out


def sloped(
    g: torch.Tensor, slopes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the largest slopes along perimeters ``(B, P)``, those of the planes, and the roughness, ``(B,)``."""
    cells, along = g.shape[1] / 4, differences(g)
    steepest = torch.linalg.vector_norm(slopes, dim=1)
    return cells * along.abs().amax(dim=1), steepest, cells * rms(differences(along))


def remainder_size(rest: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
    """Return the size of what there is besides a plane, ``(B, 1)``."""
    squares = rest.square().mean(dim=1, keepdim=True)
    if seen is not None:
        squares = squares + seen.square().mean(dim=1, keepdim=True)
    return (squares + 1e-30).sqrt()


def _flux(z: torch.Tensor, conductivity: Conductivity) -> torch.Tensor:
    """Return ``F`` for gradients ``(B, K)``."""
    up, right = z.chunk(2, dim=1)
    less = conductivity(torch.addcmul(up * up, right, right)) - 1.0
    return (z.unflatten(1, (2, -1)) * less[:, None]).flatten(1)


def _points(cells: int) -> np.ndarray:
    """Return one of each eight of the points, ``(c, 2)`` nodes."""
    rim = [(position * cells / 32, cells / 2 - 1) for position in _RIM]
    away = [(y * cells / 16, x * cells / 16) for y, x in _GRID] + rim
    return cells // 2 + np.floor(away).astype(int)
