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
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry

CORRECTION = "correction"
"""Its name in cards and commands."""

SOURCE, ROUGHNESS = "the effect of the source", "the roughness of the data"
"""Names of ranges in cards: of ``w``, and of `roughness` over ``|x|``."""

Matrices = tuple[torch.Tensor, list[torch.Tensor], torch.Tensor, torch.Tensor]
"""``(P + K, 8 D)``; ``(8 D, 8 D)`` each; scales ``(., 6, 8 D)``; ``(8 D, Q)``."""

_SMOOTH = 6.0  # waves along the perimeter above which weights begin small
_SCALARS = 6


@dataclass(frozen=True)
class CorrectionSettings:
    """Settings of `CorrectionNetwork`.

    Parameters
    ----------
    channels, depth
        ``D``, of each of the 8 symmetries, and the number of hidden layers.
    points
        Points along each side of the square where the network sees what the source does.
    """

    channels: int = 32
    depth: int = 3
    points: int = 7

    def __post_init__(self) -> None:
        if min(self.channels, self.depth, self.points) < 1:
            raise ValueError(
                "a correction needs channels, depth and points of at least 1, got "
                f"{self.channels}, {self.depth} and {self.points}"
            )


class CorrectionNetwork(torch.nn.Module):
    """Corrections on the centre lines of a square, the centre counted once.

    Parameters
    ----------
    subdomain
        The square, in whose sides lengths are measured.

    Attributes
    ----------
    points, outputs
        Nodes, ``(K, 2)`` and ``(Q, 2)``: where ``w`` is seen, and where the correction is given.
    """

    _inputs: torch.Tensor
    _outputs: torch.Tensor
    _relations: torch.Tensor
    _smoother: torch.Tensor

    def __init__(self, cells: int, settings: CorrectionSettings):
        super().__init__()
        self.settings, self.cells = settings, cells
        self.points = _inside(cells, settings.points)
        lines = Subdomain(cells=cells).centre_lines
        self.outputs = np.unique(lines, axis=0)
        perimeter = Subdomain(cells=cells).perimeter
        inputs = np.concatenate([perimeter, self.points])
        d, depth = settings.channels, settings.depth
        self.inlet = torch.nn.Parameter(torch.randn(len(inputs), d) / math.sqrt(len(perimeter)))
        self.hidden = torch.nn.Parameter(torch.randn(depth - 1, 8, d, d) / math.sqrt(8 * d))
        self.outlet = torch.nn.Parameter(torch.randn(len(self.outputs), d) * 0.1 / math.sqrt(8 * d))
        self.scales = torch.nn.Parameter(0.3 * torch.randn(min(depth, 2), _SCALARS, d))
        square = SquareSymmetry(4 * cells)
        matrices = square.matrices.long().numpy()
        images = torch.from_numpy(_images(inputs, matrices, cells))
        self.register_buffer("_inputs", images, persistent=False)
        images = torch.from_numpy(_images(self.outputs, matrices, cells))
        self.register_buffer("_outputs", images, persistent=False)
        products = np.einsum("rij,skj->rsik", matrices, matrices)  # R S^T = R S^-1
        relations = [
            [int(np.flatnonzero((matrices == one).all(axis=(1, 2)))[0]) for one in row]
            for row in products
        ]
        self.register_buffer("_relations", torch.tensor(relations), persistent=False)
        waves = np.minimum(np.arange(4 * cells), 4 * cells - np.arange(4 * cells))
        kernel = np.fft.ifft(2.0 / (1.0 + (waves / _SMOOTH) ** 2)).real
        circulant = kernel[(np.arange(4 * cells)[:, None] - np.arange(4 * cells)) % (4 * cells)]
        self.register_buffer("_smoother", torch.from_numpy(circulant).float(), persistent=False)

    def matrices(self) -> Matrices:
        """Return the plain matrices."""
        perimeter = 4 * self.cells
        inlet = torch.cat([self._smoother @ self.inlet[:perimeter], self.inlet[perimeter:]])
        first = inlet[self._inputs].transpose(0, 1).flatten(1)
        hidden = [
            blocks[self._relations.T].transpose(1, 2).flatten(0, 1).flatten(1)
            for blocks in self.hidden
        ]
        last = self.outlet[self._outputs].transpose(1, 2).flatten(0, 1)
        return first, hidden, self.scales.repeat(1, 1, 8), last

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        """Return corrections ``(B, Q)`` for ``x``, ``(B, P + K)``, and ``sigma``, ``(B, 1)`` or ``()``."""
        return correct(x, sigma, self.matrices())

    @torch.no_grad()
    def compiled(self, device: torch.device) -> "CompiledCorrection":
        """Return it with its matrices made once, and outputs in the order of centre lines."""
        first, hidden, scales, last = self.matrices()
        lines = Subdomain(cells=self.cells).centre_lines
        place = {tuple(node): i for i, node in enumerate(self.outputs.tolist())}
        both = last[:, [place[tuple(node)] for node in lines.tolist()]]
        return CompiledCorrection(
            (
                first.contiguous().to(device),
                [one.contiguous().to(device) for one in hidden],
                scales.to(device),
                both.contiguous().to(device),
            )
        )


class CompiledCorrection:
    """Plain matrices that give corrections on centre lines, ``(B, L)``, and their differences."""

    def __init__(self, matrices: Matrices):
        self._matrices = matrices

    def __call__(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        """Return corrections for ``x``, ``(B, P + K)``."""
        return correct(x, sigma, self._matrices)

    def differences(
        self, x: torch.Tensor, sigma: torch.Tensor, changes: torch.Tensor, step: float
    ) -> Iterator[torch.Tensor]:
        """Yield the difference quotients in the directions of changes of the perimeters, ``(., P)``."""
        first = self._matrices[0]
        seen, square = x @ first, x.square().sum(dim=1, keepdim=True)
        here = _corrected(seen, square / x.shape[1], sigma, self._matrices)
        for change in changes:
            mixed = x[:, : len(change)] @ change[:, None]
            moved = square + step * (2.0 * mixed + step * change.square().sum())
            there = seen + step * (change @ first[: len(change)])
            found = _corrected(there, moved / x.shape[1], sigma, self._matrices)
            yield (found - here) / step


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
    e = torch.cat([t, t * t, k, k * k, t * k, (sigma / 12.5).expand_as(n)], dim=1)
    h = (seen * ((1.0 + e @ scales[0]) / n)).tanh()
    for number, matrix in enumerate(hidden, start=1):
        z = h @ matrix
        if number < len(scales):
            z = z * (1.0 + e @ scales[number])
        h = h + z.tanh()
    return (h @ last) * (n * t * t * (sigma / (1.25 + sigma)))


def roughness(g: torch.Tensor) -> torch.Tensor:
    """Return the root mean squares of second differences along perimeters ``(B, P)``."""
    second = g.roll(1, 1) + g.roll(-1, 1) - 2.0 * g
    return second.square().mean(dim=1).sqrt()


def _inside(cells: int, points: int) -> np.ndarray:
    """Return points inside, evenly spaced and symmetric, ``(K, 2)`` nodes."""
    steps = np.arange(1, points + 1) * cells / (points + 1)
    low = np.floor(steps[: (points + 1) // 2]).astype(int)
    along = np.unique(np.concatenate([low, cells - low]))
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)


def _images(nodes: np.ndarray, matrices: np.ndarray, cells: int) -> np.ndarray:
    """Return where each symmetry sends nodes, ``(8, len(nodes))``."""
    centred = 2 * nodes - cells
    index = {tuple(node): i for i, node in enumerate(centred.tolist())}
    return np.array([[index[tuple(node)] for node in (centred @ r.T).tolist()] for r in matrices])
