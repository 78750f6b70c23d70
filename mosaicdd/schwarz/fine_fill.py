"""From the values at coarse nodes to the field, band by band, and to what it leaves of the equation.

Along the lines through coarse nodes the one-dimensional equation is solved between each two of them,
inside each coarse cell the equation itself; then, six times, on the lines again, given what is inside, and
inside the cells. All of it is local: a value depends on coarse nodes at most seven cells away.

Shape letters: ``n`` problems; sources are times the squared spacing.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, pair
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.problems.conductances import Conductances

_ROUNDS = 6
_Node = tuple[int, int]
Slot = tuple[slice | int, slice | int]
REACH = 7
"""Coarse cells around a fine node that its value depends on."""


@dataclass(frozen=True)
class Band:
    """Some rows of coarse cells, with what lies between their nodes in the fine medium.

    Parameters
    ----------
    conductances
        Between the fine nodes.
    source
        At the fine nodes, ``(n or 1, rows, columns)``; None for zero.
    edges
        Where the band ends at the edge of the domain: which nodes, rows and columns, and the values
        there, ``(n, nodes)``.
    """

    conductances: Conductances
    source: torch.Tensor | None
    edges: list[tuple[Slot, torch.Tensor]]

    def fill(self, coarse: torch.Tensor) -> torch.Tensor:
        """Return the values at the fine nodes from those at coarse ones ``(n, rows, columns)``."""
        up, right, reaction = (
            torch.from_numpy(np.ascontiguousarray(one)).to(coarse)
            for one in (self.conductances.up, self.conductances.right, self.conductances.reaction)
        )
        u = coarse.new_zeros(len(coarse), *reaction.shape)
        axes = (
            (u, right, up, reaction, self.source),
            (u.mT, up.mT, right.mT, reaction.mT, None if self.source is None else self.source.mT),
        )
        u[:, ::RATIO, ::RATIO] = coarse
        for values, along, *_ in axes:
            _interpolate(values, along)
        self._impose(u)
        cells = _Cells(up, right, reaction)
        cells.solve(u, self.source)
        for _ in range(_ROUNDS):
            for one in axes:
                _relax(*one)
            cells.solve(u, self.source)
        return u

    def _impose(self, u: torch.Tensor) -> None:
        for (rows, columns), values in self.edges:
            u[:, rows, columns] = values

    def residual(self, u: torch.Tensor) -> torch.Tensor:
        """Return ``b - A u`` at the fine nodes, zero on the outermost."""
        r = torch.zeros_like(u)
        r[:, 1:-1, 1:-1] = -torch.from_numpy(self.conductances.apply(u.cpu().numpy())).to(u)
        if self.source is not None:
            r[:, 1:-1, 1:-1] += self.source[:, 1:-1, 1:-1]
        return r

    def squares(self, residual: torch.Tensor, inner: Slices) -> np.ndarray:
        """Return sums of squares at some nodes, ``(3, n)``.

        Of the residual, of the right-hand side, and of the residual over the diagonal.
        """
        edge = torch.zeros_like(residual)
        self._impose(edge)  # what the boundary data add to the right-hand side
        diagonal = torch.from_numpy(self.conductances.diagonal()).to(residual)
        parts = (residual, self.residual(edge), residual / diagonal)
        sums = [one[:, *inner].square().sum(dim=(1, 2)) for one in parts]
        return torch.stack(sums).cpu().numpy()

    def restrict(self, r: torch.Tensor) -> torch.Tensor:
        """Share a residual that is zero inside the cells out to the coarse nodes.

        It is the transpose of the interpolation along lines: ``(n, rows, columns)``, right at coarse
        nodes that are not outermost.
        """
        total = r[:, ::RATIO, ::RATIO].clone()
        pairs = ((r, total, self.conductances.right), (r.mT, total.mT, self.conductances.up.T))
        for values, nodes, along in pairs:
            high = _heights(torch.from_numpy(np.ascontiguousarray(along[::RATIO])).to(r))
            inner = values[:, ::RATIO, :-1].unflatten(2, (-1, RATIO))[..., 1:]
            nodes[:, :, 1:] += (inner * high).sum(-1)
            nodes[:, :, :-1] += (inner * (1.0 - high)).sum(-1)
        return total


def _heights(along: torch.Tensor) -> torch.Tensor:
    """Return how high the nodes between coarse ones lie on the way from 0 to 1.

    From conductances ``(lines, cells)`` to ``(lines, coarse cells, RATIO - 1)``.
    """
    resistance = along.reciprocal().unflatten(1, (-1, RATIO))
    return (resistance.cumsum(-1) / resistance.sum(-1, keepdim=True))[..., :-1]


def _interpolate(u: torch.Tensor, along: torch.Tensor) -> None:
    """Fill the lines constant in y between coarse nodes."""
    nodes = u[:, ::RATIO, ::RATIO]
    low, high = nodes[:, :, :-1, None], nodes[:, :, 1:, None]
    lines = u[:, ::RATIO, :-1].unflatten(2, (-1, RATIO))
    lines[..., 1:] = low + (high - low) * _heights(along[::RATIO])


def _relax(
    u: torch.Tensor,
    along: torch.Tensor,
    beside: torch.Tensor,
    reaction: torch.Tensor,
    source: torch.Tensor | None,
) -> None:
    """Solve for the nodes between coarse ones, on lines constant in y that are not outermost.

    All else is held: systems of three unknowns, by elimination.
    """
    rows = slice(RATIO, -RATIO, RATIO)
    below, above = beside[RATIO - 1 : -RATIO : RATIO], beside[RATIO : 1 - RATIO : RATIO]
    k = along[rows].unflatten(1, (-1, RATIO))

    def between(values: torch.Tensor) -> torch.Tensor:
        return values[..., :-1].unflatten(-1, (-1, RATIO))[..., 1:]

    diagonal = between(below + above + reaction[rows]) + k[..., :-1] + k[..., 1:]
    before, after = u[:, RATIO - 1 : -RATIO : RATIO], u[:, RATIO + 1 : 1 - RATIO : RATIO]
    f = between(below * before + above * after)
    if source is not None:
        f = f + between(source[:, rows])
    nodes = u[:, rows, ::RATIO]
    f[..., 0] += k[..., 0] * nodes[..., :-1]
    f[..., -1] += k[..., -1] * nodes[..., 1:]
    d = [diagonal[..., i] for i in range(RATIO - 1)]
    b = [f[..., i] for i in range(RATIO - 1)]
    for i in range(1, RATIO - 1):
        factor = k[..., i] / d[i - 1]
        d[i] = d[i] - factor * k[..., i]
        b[i] = b[i] + factor * b[i - 1]
    x = [b[-1] / d[-1]]
    for i in reversed(range(RATIO - 2)):
        x.insert(0, (b[i] + k[..., i + 1] * x[0]) / d[i])
    u[:, rows, :-1].unflatten(2, (-1, RATIO))[..., 1:] = torch.stack(x, dim=-1)


_BLACK = ((1, 1), (1, 3), (3, 1), (3, 3), (2, 2))
_RED = ((1, 2), (2, 1), (2, 3), (3, 2))


class _Cells:
    """Solves for the 3 x 3 nodes inside the coarse cells, given those on their perimeters.

    Corners and middle are coupled to the other four only, and these to them: the first are eliminated,
    the rest is a system of four, by Cholesky. All numbers are arrays over the cells.
    """

    def __init__(self, up: torch.Tensor, right: torch.Tensor, reaction: torch.Tensor):
        self._shape = rows, columns = pair((n - 1) // RATIO for n in reaction.shape)

        def cut(values: torch.Tensor, i: int, j: int) -> torch.Tensor:
            return values[i::RATIO, j::RATIO][:rows, :columns].contiguous()

        self._beside: dict[_Node, list[tuple[_Node, torch.Tensor]]] = {}
        diagonal: dict[_Node, torch.Tensor] = {}
        for i, j in (*_BLACK, *_RED):
            self._beside[i, j] = [
                ((i - 1, j), cut(up, i - 1, j)),
                ((i + 1, j), cut(up, i, j)),
                ((i, j - 1), cut(right, i, j - 1)),
                ((i, j + 1), cut(right, i, j)),
            ]
            total = cut(reaction, i, j)
            diagonal[i, j] = sum((k for _, k in self._beside[i, j]), total)
        self._inverse = {node: diagonal[node].reciprocal() for node in _BLACK}
        # What is left of red nodes when the black ones are gone, then its factor, by columns.
        a = {(r, r): diagonal[r] for r in _RED}
        for black in _BLACK:
            red = [(node, k) for node, k in self._beside[black] if node in _RED]
            for one, k in red:
                for other, q in red:
                    a[one, other] = a.get((one, other), 0.0) - k * q * self._inverse[black]
        self._factor: dict[tuple[_Node, _Node], torch.Tensor] = {}
        for number, one in enumerate(_RED):
            root = self._factor[one, one] = a[one, one].rsqrt()  # of the diagonal, inverted
            for other in _RED[number + 1 :]:
                self._factor[other, one] = a[other, one] * root
            for other in _RED[number + 1 :]:
                for third in _RED[number + 1 :]:
                    a[other, third] = a[other, third] - (
                        self._factor[other, one] * self._factor[third, one]
                    )

    def solve(self, u: torch.Tensor, source: torch.Tensor | None) -> None:
        """Overwrite the values inside."""
        rows, columns = self._shape

        def at(values: torch.Tensor, node: _Node) -> torch.Tensor:
            return values[:, node[0] :: RATIO, node[1] :: RATIO][:, :rows, :columns]

        f: dict[_Node, torch.Tensor] = {}
        for node, beside in self._beside.items():
            outer = [k * at(u, other) for other, k in beside if other not in self._beside]
            if source is not None:
                outer.append(at(source, node))
            f[node] = sum(outer, u.new_zeros(()))
        for black in _BLACK:
            f[black] = f[black] * self._inverse[black]
            for node, k in self._beside[black]:
                if node in _RED:
                    f[node] = f[node] + k * f[black]
        for number, one in enumerate(_RED):
            f[one] = f[one] * self._factor[one, one]
            for other in _RED[number + 1 :]:
                f[other] = f[other] - self._factor[other, one] * f[one]
        for number, one in reversed(list(enumerate(_RED))):
            for other in _RED[number + 1 :]:
                f[one] = f[one] - self._factor[other, one] * f[other]
            f[one] = f[one] * self._factor[one, one]
            at(u, one).copy_(f[one])
        for black in _BLACK:
            around = [k * f[node] for node, k in self._beside[black] if node in _RED]
            at(u, black).copy_(sum(around, u.new_zeros(())) * self._inverse[black] + f[black])
