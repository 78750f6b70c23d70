r"""The network that corrects the linear equation's solution in a square to a nonlinear one.

For $-\Delta u + r(u) = f$ with an odd $r$, whose linear part is $\sigma u$ (lengths in sides of the square): with the
linear solution $u_0 = L_\sigma g + w$ for perimeter values $g$, where $w = A_\sigma^{-1} f$,

$$u = u_0 + s\, E h_d, \quad h_1 = \tanh((x / |x|) W_1 (1 + A_1 e)), \quad
h_{j+1} = \tanh(h_j W_{j+1} (1 + A_{j+1} e)) + h_j,$$

with $x = (g, w)$, $w$ at some points inside; $|x|$ its root mean square; $e$ a few numbers made of $|x|$ and
$\sigma$; and $s$ of the third order in $|x|$, as the correction is. There are no biases, so the correction is odd.
Matrices have the symmetries of the square: of 8 blocks, one for each symmetry, all have the same weights,
moved to where the symmetry sends nodes. Compiled, they are plain matrices.

Shape letters: ``B`` squares, ``P`` perimeter nodes, ``K`` points of ``w``, ``Q`` outputs, ``D`` channels.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.network import require_counts
from mosaicdd.local_solvers.networks.symmetry import EquivariantLayers
from mosaicdd.problems.operators.elliptic import EllipticOperator

SOURCE, ROUGHNESS = "the effect of the source", "the roughness of the data"
"""Names of ranges in cards: of ``w``, and of `roughness` over ``|x|``."""

VALUES = "boundary values"
"""Name of the limit that a card's ``boundary_range`` is."""

Matrices = tuple[torch.Tensor, list[torch.Tensor], torch.Tensor, torch.Tensor]
"""``(P + K, 8 D)``; ``(8 D, 8 D)`` each; scales, above them ones, ``(., 7, 8 D)``; ``(8 D, Q)``."""

_SMOOTH = 6.0  # waves along the perimeter above which weights begin small
_SCALARS = 6


@dataclass(frozen=True)
class CorrectionSettings:
    """Settings of `CorrectionNetwork`."""

    # channels, depth: ``D``, of each of the 8 symmetries, and the number of hidden layers
    channels: int = 32
    depth: int = 3
    # Points along each side of the square where the network sees what the source does
    points: int = 7

    def __post_init__(self) -> None:
        require_counts("a correction", self)


class CorrectionNetwork(torch.nn.Module):
    """Corrections on the centre lines of a square of so many cells, in whose sides lengths are measured, the centre counted once.

    Attributes
    ----------
    points, outputs
        Nodes, ``(K, 2)`` and ``(Q, 2)``: where ``w`` is seen, and where the correction is given.
    sight
        What it sees of ``w`` at the inner nodes, ``(I, K)``.
    """

    name = "correction"
    Settings = CorrectionSettings
    _smoother: torch.Tensor

    @classmethod
    def of(cls, settings: CorrectionSettings, pde: str, cells: int) -> Self:
        """Return a network for squares of so many cells."""
        return cls(cells, settings)

    def __init__(self, cells: int, settings: CorrectionSettings):
        super().__init__()
        self.settings, self.cells = settings, cells
        self.points = _inside(cells, settings.points)
        square = Subdomain(cells=cells)
        self.sight = np.zeros(((cells - 1) ** 2, len(self.points)))
        inner = (self.points - 1) @ [cells - 1, 1]
        self.sight[inner, np.arange(len(inner))] = 1.0
        self.outputs = np.unique(square.centre_lines, axis=0)
        perimeter = square.perimeter
        inputs = np.concatenate([perimeter, self.points])
        d, depth = settings.channels, settings.depth
        self.inlet = torch.nn.Parameter(torch.randn(len(inputs), d) / math.sqrt(len(perimeter)))
        self.hidden = torch.nn.Parameter(torch.randn(depth - 1, 8, d, d) / math.sqrt(8 * d))
        self.outlet = torch.nn.Parameter(torch.randn(len(self.outputs), d) * 0.1 / math.sqrt(8 * d))
        self.scales = torch.nn.Parameter(0.3 * torch.randn(min(depth, 2), _SCALARS, d))
        self._layers = EquivariantLayers(cells, inputs, self.outputs)
        waves = np.minimum(np.arange(4 * cells), 4 * cells - np.arange(4 * cells))
        kernel = np.fft.ifft(2.0 / (1.0 + (waves / _SMOOTH) ** 2)).real
        circulant = kernel[(np.arange(4 * cells)[:, None] - np.arange(4 * cells)) % (4 * cells)]
        self.register_buffer("_smoother", torch.from_numpy(circulant).float(), persistent=False)

    def matrices(self) -> Matrices:
        """Return the plain matrices."""
        perimeter = 4 * self.cells
        inlet = torch.cat([self._smoother @ self.inlet[:perimeter], self.inlet[perimeter:]])
        first = self._layers.inlet(inlet)
        hidden = [self._layers.hidden(blocks) for blocks in self.hidden]
        last = self._layers.outlet(self.outlet)
        scales = torch.nn.functional.pad(self.scales.repeat(1, 1, 8), (0, 0, 1, 0), value=1.0)
        return first, hidden, scales, last

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        """Return corrections ``(B, Q)`` for ``x``, ``(B, P + K)``, and ``sigma``, ``(B, 1)`` or ``()``."""
        return correct(x, sigma, self.matrices())

    @torch.no_grad()
    def compiled(
        self,
        base: EllipticOperator,
        square: Subdomain,
        limits: Mapping[str, float],
        device: torch.device,
    ) -> "CompiledCorrection":
        """Return it for a linear operator, with plain matrices, outputs in the order of centre lines.

        ``limits`` are the largest `VALUES`, `SOURCE` and `ROUGHNESS` that it is for.
        """
        first, hidden, scales, last = self.matrices()
        matrices = (
            first.contiguous().to(device),
            [matrix.contiguous().to(device) for matrix in hidden],
            scales.to(device),
            last[:, along_lines(self.outputs, square)].contiguous().to(device),
        )
        return CompiledCorrection(matrices, base.c * square.size**2, limits)


class CompiledCorrection:
    """Plain matrices for corrections on centre lines, ``(B, L)``, of data up to ``largest``, and differences."""

    def __init__(self, matrices: Matrices, sigma: float, limits: Mapping[str, float]):
        self._matrices, self._limits = matrices, dict(limits)
        self.largest = limits[VALUES]
        self._sigma = torch.tensor(sigma, dtype=torch.float32, device=matrices[0].device)

    def seen(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``w``, seen by `CorrectionNetwork.sight`, as the network is given it."""
        return values.float()

    def input(self, g: torch.Tensor) -> torch.Tensor:
        """Return perimeters as the network is given them."""
        return g.float()

    def outside(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Say which data are too large or too rough, ``(B,)``; NaN is."""
        limits, size = self._limits, self._square(g, seen).sqrt()[:, 0]
        inside = g.abs().amax(dim=1) <= limits[VALUES]
        if seen is not None:
            inside &= seen.abs().amax(dim=1) <= limits[SOURCE]
        return ~(inside & (roughness(g) <= limits[ROUGHNESS] * size))

    def __call__(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return corrections for perimeters as of `input`."""
        return _corrected(self._first(g, seen), self._square(g, seen), self._sigma, self._matrices)

    def differences(
        self, g: torch.Tensor, seen: torch.Tensor | None, changes: torch.Tensor, step: float
    ) -> Iterator[torch.Tensor]:
        """Yield the difference quotients in the directions of changes of the perimeters, ``(., P)``."""
        first = self._matrices[0]
        begin, square = self._first(g, seen), self._square(g, seen)
        here = _corrected(begin, square, self._sigma, self._matrices)
        for change in changes:
            mixed = 2.0 * (g @ change[:, None]) + step * change.square().sum()
            there = begin + step * (change @ first[: len(change)])
            moved = square + mixed * (step / len(first))
            yield (_corrected(there, moved, self._sigma, self._matrices) - here) / step

    def _first(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return ``x W_1``."""
        first, count = self._matrices[0], g.shape[1]
        here = g @ first[:count]
        return here if seen is None else here.addmm_(seen, first[count:])

    def _square(self, g: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return ``|x|**2``, ``(B, 1)``."""
        squares = g.square().sum(dim=1, keepdim=True)
        if seen is not None:
            squares += seen.square().sum(dim=1, keepdim=True)
        return squares / len(self._matrices[0])


def correct(x: torch.Tensor, sigma: torch.Tensor, matrices: Matrices) -> torch.Tensor:
    """Return corrections by plain matrices; see `CorrectionNetwork.forward`."""
    return _corrected(x @ matrices[0], x.square().mean(dim=1, keepdim=True), sigma, matrices)


def _corrected(
    seen: torch.Tensor, square: torch.Tensor, sigma: torch.Tensor, matrices: Matrices
) -> torch.Tensor:
    """Return corrections from ``x W_1`` and ``|x|**2``."""
    _, hidden, scales, last = matrices
    n = (square + 1e-30).sqrt()
    t = n / (1.0 + n)
    k = torch.log1p(4.0 * sigma).expand_as(n) / 4.0
    ones = torch.ones_like(t)
    e = torch.cat([ones, t, t * t, k, k * k, t * k, (sigma / 12.5).expand_as(n)], dim=1)
    h = (seen * ((e / n) @ scales[0])).tanh()
    for number, matrix in enumerate(hidden, start=1):
        z = h @ matrix
        if number < len(scales):
            z = z * (e @ scales[number])
        h = h + z.tanh()
    return (h @ last) * (n * t * t * (sigma / (1.25 + sigma)))


def along_lines(nodes: np.ndarray, square: Subdomain) -> list[int]:
    """Return which of some nodes stand on the centre lines, in the order of these."""
    place = {tuple(node): i for i, node in enumerate(nodes.tolist())}
    return [place[tuple(node)] for node in square.centre_lines.tolist()]


def roughness(g: torch.Tensor) -> torch.Tensor:
    """Return the root mean squares of second differences along perimeters ``(B, P)``."""
    return rms(differences(differences(g)))


def differences(g: torch.Tensor) -> torch.Tensor:
    """Return the differences between neighbours along perimeters ``(B, P)``."""
    return g - g.roll(1, 1)


def rms(values: torch.Tensor) -> torch.Tensor:
    """Return the root mean squares of rows."""
    return torch.linalg.vector_norm(values, dim=1) / math.sqrt(values.shape[1])


def _inside(cells: int, points: int) -> np.ndarray:
    """Return points inside, evenly spaced and symmetric, ``(K, 2)`` nodes."""
    steps = np.arange(1, points + 1) * cells / (points + 1)
    low = np.floor(steps[: (points + 1) // 2]).astype(int)
    along = np.unique(np.concatenate([low, cells - low]))
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)
