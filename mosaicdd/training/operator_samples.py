r"""What subdomains are inside larger squares: what a network of operators learns from.

Each medium is a square of 48 cells, the subdomain the 32 x 32 in its middle. Smooth boundary data and sources of
the square have solutions that pass through the subdomain as those of a large domain do. At the coarse nodes, ``t``
around it and ``u`` inside, they say what its operator should be: ``G`` is that of the least squares ``|u - G t|``, and
for the sources ``F = u - G t``. What the lifting lacks of both is to be learned.

The square's symmetries take media and operators along, so each medium is eight.

Shape letters: ``B`` media, ``P`` coarse nodes around a subdomain, ``I`` inside, ``q`` problems.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.perimeter import square_perimeter
from mosaicdd.local_solvers.networks.family import interior_images
from mosaicdd.local_solvers.networks.operator import (
    MOMENTS,
    SEEN,
    polynomials,
    relative_reaction,
    scales,
    shared_moments,
)
from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry
from mosaicdd.local_solvers.subdomain_graphs import AROUND, CELLS, SubdomainGraphs
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, averaged
from mosaicdd.problems.operators.conductances import Conductances

SMALLEST = 1e-12
"""Of sizes that are divided by."""

_OUTER = RATIO * SEEN  # fine cells around the subdomain
_WAVES, _DECAY = 24, 1.5  # of boundary data, and how they fall
_RIDGE = 1e-8  # of the least squares


@dataclass(frozen=True)
class OperatorSamples:
    """What a network of operators sees of media, and what it is to say."""

    # x, y, c: logarithms of the conductances and the reaction over them, as
    # `OperatorNetwork.encode`
    x: torch.Tensor
    y: torch.Tensor
    c: torch.Tensor
    lacking: torch.Tensor  # ``(B, I, P + moments)``, what lifting and uniform mode lack
    traces: torch.Tensor  # ``(B, P, q)``, of the solutions around the subdomain, less their means
    # sizes, loads: ``(B,)``, squares of what these solutions are inside, less those means, and
    # ``(B, I, moments)``, of sources
    sizes: torch.Tensor
    loads: torch.Tensor

    def __getitem__(self, which: torch.Tensor) -> "OperatorSamples":
        """Return some of them."""
        return OperatorSamples(*(tensor[which] for tensor in self.tensors))

    @classmethod
    def joined(cls, parts: "list[OperatorSamples]") -> "OperatorSamples":
        """Return all samples of some parts."""
        columns = zip(*(part.tensors for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))

    def to(self, like: torch.Tensor) -> "OperatorSamples":
        """Return them in the precision and on the device of a tensor."""
        return OperatorSamples(*(tensor.to(like) for tensor in self.tensors))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All that they are."""
        return self.x, self.y, self.c, self.lacking, self.traces, self.sizes, self.loads

    def turned(self, element: int) -> "OperatorSamples":
        """Return their images under a symmetry of the square."""
        around, inside, moments = (table[element] for table in symmetries())
        moments = moments.to(self.lacking)
        x, y = (turned_field(values, element) for values in (self.x, self.y))
        if _swaps(element):
            x, y = y, x
        lacking, traces, loads = map(torch.empty_like, (self.lacking, self.traces, self.loads))
        lacking[:, inside[:, None], around] = self.lacking[..., :AROUND]
        lacking[:, inside, AROUND:] = self.lacking[..., AROUND:] @ moments
        traces[:, around] = self.traces
        loads[:, inside] = self.loads @ moments
        return OperatorSamples(
            x, y, turned_field(self.c, element), lacking, traces, self.sizes, loads
        )

    def errors(self, correction: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return relative errors squared: of boundary data ``(B,)``, and of sources ``(B, moments)``."""
        left = self.lacking if correction is None else self.lacking - correction
        data = (left[..., :AROUND] @ self.traces).square().sum(dim=(1, 2)) / self.sizes
        sizes = self.loads.square().sum(dim=1).clamp(min=SMALLEST)
        return data, left[..., AROUND:].square().sum(dim=1) / sizes


def samples_of(logarithm: torch.Tensor, reaction: torch.Tensor) -> OperatorSamples:
    """Solve in media, and return what their subdomains are.

    Media are logarithms at the nodes of squares of 48 cells, ``(B, 49, 49)``, with a reaction
    there, on the coarse grid and over the mean conductance of the subdomain.
    """
    return samples_in(*conductances_of(logarithm), reaction)


def conductances_of(logarithm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the conductances of squares, ``(B, 49, 48)`` and ``(B, 48, 49)``, of float64."""
    a = logarithm.double().exp()
    right = 2 / (1 / a[:, :, 1:] + 1 / a[:, :, :-1])
    up = 2 / (1 / a[:, 1:] + 1 / a[:, :-1])
    return right, up


def samples_in(right: torch.Tensor, up: torch.Tensor, reaction: torch.Tensor) -> OperatorSamples:
    """As `samples_of`, by the conductances of squares, ``(B, 49, 48)`` and ``(B, 48, 49)``."""
    scale = scales(right.log(), up.log()).exp()  # (B, 1, 1)
    right, up = right / scale, up / scale
    inner = slice(_OUTER, -_OUTER)
    c = reaction.double() / RATIO**2
    u = solve_squares(right, up, c, *_problems())[:, inner, inner]
    around, q = RATIO * torch.from_numpy(square_perimeter(CELLS)), u.shape[3] - MOMENTS
    t = u[:, around[:, 0], around[:, 1]]
    u = u[:, RATIO:-RATIO:RATIO, RATIO:-RATIO:RATIO].flatten(1, 2)
    mean = t.mean(dim=1, keepdim=True)
    graphs = _graphs(right, up, c)
    operator, constant = _least_squares(t[..., :q] - mean[..., :q], mean[..., :q], u[..., :q])
    loads = u[..., q:] - operator @ (t[..., q:] - mean[..., q:]) - constant * mean[..., q:]
    spread = torch.eye(AROUND, dtype=t.dtype) - 1 / AROUND
    lacking = torch.cat(
        [operator - graphs.operator() @ spread, loads - graphs.inverse @ shared_moments()], dim=2
    )
    x, y = right.log(), up.log()
    ratio = relative_reaction(right, up, c)
    traces, inside = (values[..., :q] - mean[..., :q] for values in (t, u))
    sizes = inside.square().sum(dim=(1, 2))
    samples = OperatorSamples(x, y, ratio, lacking, traces, sizes, loads)
    return samples.to(torch.empty(0))  # in float32: 43 KB each


def _graphs(right: torch.Tensor, up: torch.Tensor, c: torch.Tensor) -> SubdomainGraphs:
    """Return the lifting of the subdomains in the middle of squares."""
    cut = slice(_OUTER - MARGIN, MARGIN - _OUTER)
    made = [
        averaged(Conductances((k[0].numpy(), k[1].numpy()), k[2].numpy()))
        for k in zip(*(values[:, cut, cut] for values in (up, right, c)), strict=True)
    ]
    parts = zip(*((k.along[1], k.along[0], k.reaction) for k in made), strict=True)
    return SubdomainGraphs(*(torch.from_numpy(np.stack(part)) for part in parts))


def _least_squares(
    t: torch.Tensor, mean: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the operators ``(B, I, P)`` from what is around to what is inside, ``u (B, I, q)``.

    That is ``t (B, P, q)``, and its mean ``(B, 1, q)``, which has been taken out; what is inside
    for a mean of 1 is returned besides, ``(B, I, 1)``.
    """
    t = torch.cat([t, mean], dim=1)
    gram = t @ t.mT
    scale = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
    ridge = _RIDGE * torch.eye(AROUND + 1, dtype=t.dtype)
    ridge[:AROUND, :AROUND] += 1 / AROUND  # no mean is left for the operator to see
    operators = torch.linalg.solve(gram + scale * ridge, t @ u.mT).mT
    return operators[..., :AROUND], operators[..., AROUND:]


@lru_cache
def _problems() -> tuple[torch.Tensor, torch.Tensor]:
    """Return boundary data and sources of the square, ``(49, 49, problems)`` each."""
    cells = RATIO * CELLS + 2 * _OUTER
    nodes = square_perimeter(cells)
    angle = 2 * np.pi * np.arange(len(nodes)) / len(nodes)
    waves = [f(k * angle) / k**_DECAY for k in range(1, _WAVES + 1) for f in (np.cos, np.sin)]
    edge, f = (np.zeros((cells + 1, cells + 1, len(waves) + MOMENTS)) for _ in range(2))
    edge[*nodes.T, : len(waves)] = np.stack(waves, axis=1)
    t = (np.arange(cells + 1) - cells / 2) / (RATIO * CELLS / 2)
    f[..., len(waves) :] = np.moveaxis(polynomials(t), 0, -1)
    return torch.from_numpy(edge), torch.from_numpy(f)


@lru_cache
def symmetries() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where nodes around and inside go, and what becomes of moments ``(8, moments, moments)``."""
    square, shared = SquareSymmetry(AROUND), shared_moments()
    inside = interior_images(square, CELLS)
    moments = []
    for nodes in inside:
        image = torch.empty_like(shared)
        image[nodes] = shared
        moments.append(torch.linalg.inv(torch.linalg.lstsq(shared, image).solution))
    return square.images, inside, torch.stack(moments).float()


@lru_cache
def _matrices() -> list[list[list[int]]]:
    return SquareSymmetry(AROUND).matrices.long().tolist()


def _swaps(element: int) -> bool:
    """Say whether a symmetry exchanges the axes."""
    return _matrices()[element][0][0] == 0


def turned_field(values: torch.Tensor, element: int) -> torch.Tensor:
    """Return the image of values ``(B, rows, columns)``."""
    matrix = _matrices()[element]
    values = values.mT if _swaps(element) else values
    return values.flip([axis for axis in (1, 2) if sum(matrix[axis - 1]) < 0])


def solve_squares(
    right: torch.Tensor,
    up: torch.Tensor,
    reaction: torch.Tensor,
    edge: torch.Tensor,
    f: torch.Tensor,
) -> torch.Tensor:
    """Return the solutions at all nodes, ``(B, m + 1, m + 1, n)``.

    Conductances are ``(B, m + 1, m)`` and ``(B, m, m + 1)``, reactions ``(B, m + 1, m + 1)``; of
    the values on the edge and the sources inside, ``(m + 1, m + 1, n)`` each, all else does not
    count.
    """
    u = edge.repeat(len(right), 1, 1, 1)
    u[:, 1:-1, 1:-1] = f[1:-1, 1:-1]
    b = u[:, 1:-1, 1:-1]  # right-hand sides, then solutions
    b[:, 0] += up[:, 0, 1:-1, None] * edge[0, 1:-1]
    b[:, -1] += up[:, -1, 1:-1, None] * edge[-1, 1:-1]
    b[:, :, 0] += right[:, 1:-1, 0, None] * edge[1:-1, 0]
    b[:, :, -1] += right[:, 1:-1, -1, None] * edge[1:-1, -1]
    diagonal = right[:, 1:-1, :-1] + right[:, 1:-1, 1:] + up[:, :-1, 1:-1] + up[:, 1:, 1:-1]
    diagonal = diagonal + reaction[:, 1:-1, 1:-1]
    beside, between = right[:, 1:-1, 1:-1], up[:, 1:-1, 1:-1, None]
    inverses: list[torch.Tensor] = []
    for i in range(b.shape[1]):
        row = torch.diag_embed(diagonal[:, i])
        row -= torch.diag_embed(beside[:, i], 1) + torch.diag_embed(beside[:, i], -1)
        if i:
            below = between[:, i - 1]
            row -= below * inverses[-1] * below.mT
            b[:, i] += below * (inverses[-1] @ b[:, i - 1])
        inverses.append(torch.cholesky_inverse(torch.linalg.cholesky(row)))
    for i in reversed(range(b.shape[1])):
        if i + 1 < b.shape[1]:
            b[:, i] += between[:, i] * b[:, i + 1]
        b[:, i] = inverses[i] @ b[:, i]
    return u
