"""From the values at coarse nodes to the field, band by band, and to what it leaves of the equation.

Along the lines through coarse nodes the one-dimensional equation is solved between each two of them,
inside each coarse cell the equation itself; then, five times, on the lines again, given what is inside, with
over-relaxation, and inside the cells. All of it is local: a value depends on coarse nodes at most six
cells away.

Values are held in `_Planes`: of all coarse cells those at the same place side by side, so that every step
runs over memory in order. Shape letters: ``n`` problems; sources are times the squared spacing.
"""

import functools
import itertools
import operator
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, pair
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.problems.conductances import Conductances

_ROUNDS = 5
_ROWS = 32  # of nodes whose residual is taken at once, for the cache
_RELAXATION = 1.25  # on the lines: five rounds do more than six would without
_Node = tuple[int, int]
Slot = tuple[slice | int, slice | int]
REACH = 6
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
        u = _Planes(coarse)
        u.interpolate(*self._heights)
        for (rows, columns), values in self.edges:
            u.impose(rows, columns, values)
        cells = _Cells(up, right, reaction, self.source)
        lines = [_Lines(axis, up, right, reaction, self.source) for axis in (0, 1)]
        cells.solve(u)
        for _ in range(_ROUNDS):
            for one in lines:
                one.solve(u)
            cells.solve(u)
        return u.joined()

    def residual(self, u: torch.Tensor) -> torch.Tensor:
        """Return ``b - A u`` at the fine nodes, zero on the outermost."""
        r = torch.zeros_like(u)
        if self.source is not None:
            r[:, 1:-1, 1:-1] = self.source[:, 1:-1, 1:-1]
        values, (rows, columns) = u.cpu().numpy(), u.shape[1:]
        for start in range(0, rows - 2, _ROWS):
            some = slice(start, min(start + _ROWS + 2, rows))
            applied = self.conductances.part(some, slice(0, columns)).apply(values[:, some])
            r[:, some][:, 1:-1, 1:-1] -= torch.from_numpy(applied).to(u)
        return r

    def squares(self, residual: torch.Tensor, inner: Slices) -> np.ndarray:
        """Return sums of squares at some nodes, ``(3, n)``.

        Of the residual, of the right-hand side, and of the residual over the diagonal.
        """
        given = torch.zeros_like(residual)
        if self.source is not None:
            given += self.source
        for (rows, columns), values in self.edges:
            # The first grid edges, or the last, and the nodes that they join to the outermost.
            along = self.conductances.up if isinstance(rows, int) else self.conductances.right
            beside = [1 if at == 0 else -2 if at == -1 else at for at in (rows, columns)]
            given[:, *beside] += values * torch.from_numpy(along[rows, columns]).to(values)
        diagonal = torch.from_numpy(self.conductances.diagonal()).to(residual)
        parts = (residual, given, residual / diagonal)
        sums = [one[:, *inner].square().sum(dim=(1, 2)) for one in parts]
        return torch.stack(sums).cpu().numpy()

    def restrict(self, r: torch.Tensor) -> torch.Tensor:
        """Share a residual that is zero inside the cells out to the coarse nodes.

        It is the transpose of the interpolation along lines: ``(n, rows, columns)``, right at coarse
        nodes that are not outermost.
        """
        total = r[:, ::RATIO, ::RATIO].clone()
        along_x, along_y = self._heights
        for i in range(1, RATIO):
            for values, nodes, high in (
                (r[:, ::RATIO, i::RATIO], total, along_x[i - 1]),
                (r[:, i::RATIO, ::RATIO].mT, total.mT, along_y[i - 1].mT),
            ):
                upper = values * high.to(r)
                nodes[:, :, 1:] += upper
                nodes[:, :, :-1] += values - upper
        return total

    @functools.cached_property
    def _heights(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """How high nodes between coarse ones lie on the way from 0 to 1, along x and along y.

        For each of these nodes of a coarse cell, ``(rows, coarse cells)`` and ``(coarse cells, columns)``.
        """
        right, up = self.conductances.right[::RATIO], self.conductances.up[:, ::RATIO]
        along = [right[:, i::RATIO] for i in range(RATIO)], [up[i::RATIO] for i in range(RATIO)]
        return pair(_heights(parts) for parts in along)


def _heights(conductances: list[np.ndarray]) -> list[torch.Tensor]:
    """Return the heights between conductances in series."""
    up_to = list(itertools.accumulate(1.0 / one for one in conductances))
    return [torch.from_numpy(one / up_to[-1]) for one in up_to[:-1]]


class _Planes:
    """Values at fine nodes, those at the same place in all coarse cells side by side.

    Parameters
    ----------
    coarse
        Values at the coarse nodes, ``(n, rows, columns)``.
    """

    def __init__(self, coarse: torch.Tensor):
        self._values = coarse.new_zeros(RATIO, RATIO, *coarse.shape)
        self._values[0, 0] = coarse

    def at(self, row: int, column: int, shape: tuple[int, int]) -> torch.Tensor:
        """Return those at so many fine nodes from the first of each cell, of so many cells per axis."""
        (down, y), (across, x) = divmod(row, RATIO), divmod(column, RATIO)
        rows, columns = shape
        return self._values[y, x, :, down : down + rows, across : across + columns]

    def interpolate(self, along_x: list[torch.Tensor], along_y: list[torch.Tensor]) -> None:
        """Fill the lines between coarse nodes, by how high nodes lie on the way to the next."""
        nodes = self._values[0, 0]
        for i in range(1, RATIO):
            between = self._values[0, i, :, :, :-1], self._values[i, 0, :, :-1]
            for axis, high, out in zip(
                (2, 1), (along_x[i - 1], along_y[i - 1]), between, strict=True
            ):
                low = nodes.narrow(axis, 0, nodes.shape[axis] - 1)
                torch.addcmul(low, nodes.diff(dim=axis), high.to(low), out=out)

    def impose(self, rows: slice | int, columns: slice | int, values: torch.Tensor) -> None:
        """Set the values ``(n, nodes)`` of an outermost line."""
        for i in range(RATIO):
            given = values[:, i::RATIO]
            if isinstance(rows, int):
                self._values[0, i, :, rows, : given.shape[1]] = given
            elif isinstance(columns, int):
                self._values[i, 0, :, : given.shape[1], columns] = given

    def joined(self) -> torch.Tensor:
        """Return the values as a field, ``(n, fine rows, fine columns)``."""
        n, rows, columns = self._values.shape[2:]
        whole = self._values.permute(2, 3, 0, 4, 1).reshape(n, RATIO * rows, RATIO * columns)
        return whole[:, : 1 - RATIO, : 1 - RATIO]


class _Lines:
    """Solves for the nodes between coarse ones on the lines of one axis that are not outermost.

    All else is held: systems of three unknowns, by elimination. All numbers are arrays over the coarse
    cells of these lines.
    """

    def __init__(
        self,
        axis: int,
        up: torch.Tensor,
        right: torch.Tensor,
        reaction: torch.Tensor,
        source: torch.Tensor | None,
    ):
        self._axis = axis
        nodes = pair((n - 1) // RATIO for n in reaction.shape)
        self._shape = nodes[axis] - 1, nodes[1 - axis]  # lines, cells
        along, beside = (right, up) if axis == 0 else (up, right)
        self._along = [self._at(along, 0, i).contiguous() for i in range(RATIO)]
        self._before: list[torch.Tensor] = []
        self._after: list[torch.Tensor] = []
        self._sources: list[torch.Tensor] = []
        self._inverse: list[torch.Tensor] = []  # of pivots
        self._factor: list[torch.Tensor] = []
        for i in range(1, RATIO):
            self._before.append(self._at(beside, -1, i).contiguous())
            self._after.append(self._at(beside, 0, i).contiguous())
            d = self._before[-1] + self._after[-1] + self._at(reaction, 0, i)
            d += self._along[i - 1] + self._along[i]
            if i > 1:
                self._factor.append(self._along[i - 1] * self._inverse[-1])
                d -= self._factor[-1] * self._along[i - 1]
            self._inverse.append(d.reciprocal())
            if source is not None:
                self._sources.append(self._at(source, 0, i).contiguous())

    def _at(self, values: torch.Tensor | _Planes, beside: int, i: int) -> torch.Tensor:
        """Return the ``i``-th of each coarse cell's, of nodes or grid edges so many lines beside."""
        first, shape = (RATIO + beside, i), self._shape
        if self._axis == 1:
            first, shape = first[::-1], shape[::-1]
        return _every(values, first, shape)

    def solve(self, u: _Planes) -> None:
        """Overwrite the values between coarse nodes."""
        b = []
        for i in range(1, RATIO):
            one = self._before[i - 1] * self._at(u, -1, i)
            one.addcmul_(self._after[i - 1], self._at(u, 1, i))
            b.append(one.add_(self._sources[i - 1]) if self._sources else one)
        b[0].addcmul_(self._along[0], self._at(u, 0, 0))
        b[-1].addcmul_(self._along[-1], self._at(u, 0, RATIO))
        for i, factor in enumerate(self._factor):
            b[i + 1].addcmul_(factor, b[i])
        for i in reversed(range(RATIO - 1)):
            if i + 1 < len(b):
                b[i].addcmul_(self._along[i + 1], b[i + 1])
            b[i] *= self._inverse[i]
        for i in range(RATIO - 1):
            self._at(u, 0, i + 1).lerp_(b[i], _RELAXATION)


_BLACK = ((1, 1), (1, 3), (3, 1), (3, 3), (2, 2))
_RED = ((1, 2), (2, 1), (2, 3), (3, 2))


class _Cells:
    """Solves for the 3 x 3 nodes inside the coarse cells, given those on their perimeters.

    Corners and middle are coupled to the other four only, and these to them: the first are eliminated,
    the rest is a system of four, by Cholesky. All numbers are arrays over the cells.
    """

    def __init__(
        self,
        up: torch.Tensor,
        right: torch.Tensor,
        reaction: torch.Tensor,
        source: torch.Tensor | None,
    ):
        self._shape = pair((n - 1) // RATIO for n in reaction.shape)

        @functools.cache  # both nodes of a grid edge ask for it
        def cut(values: torch.Tensor, i: int, j: int) -> torch.Tensor:
            return _every(values, (i, j), self._shape).contiguous()

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
        self._shares = {  # of black nodes, over their diagonal
            node: [
                (red, k * self._inverse[node])
                for red, k in sorted(self._beside[node], key=operator.itemgetter(0))
                if red in _RED
            ]
            for node in _BLACK
        }
        # What is left of red nodes when the black ones are gone, then its factor, by columns: the lower
        # triangles, of a node and one before it.
        a = {(r, r): diagonal[r] for r in _RED}
        for black in _BLACK:
            between = dict(self._beside[black])
            for number, (one, share) in enumerate(self._shares[black]):
                for other, _ in self._shares[black][number:]:
                    if (other, one) in a:
                        a[other, one].addcmul_(between[other], share, value=-1.0)
                    else:
                        a[other, one] = (between[other] * share).neg_()
        self._factor: dict[tuple[_Node, _Node], torch.Tensor] = {}
        for number, one in enumerate(_RED):
            root = self._factor[one, one] = a[one, one].rsqrt()  # of the diagonal, inverted
            later = _RED[number + 1 :]
            for place, other in enumerate(later):
                self._factor[other, one] = a[other, one].mul_(root)
                for third in later[: place + 1]:
                    a[other, third].addcmul_(
                        self._factor[other, one], self._factor[third, one], value=-1.0
                    )

        self._sources: dict[_Node, torch.Tensor] = {}
        if source is not None:
            self._sources = {node: cut(source, *node) for node in self._beside}

    def solve(self, u: _Planes) -> None:
        """Overwrite the values inside."""
        f = {node: u.at(*node, self._shape) for node in self._beside}
        for node, beside in self._beside.items():
            if self._sources:
                f[node].copy_(self._sources[node])
            else:
                f[node].zero_()
            for other, k in beside:
                if other not in f:
                    f[node].addcmul_(k, u.at(*other, self._shape))
        for black in _BLACK:
            for red, k in self._shares[black]:
                f[red].addcmul_(k, f[black])
            f[black] *= self._inverse[black]
        for number, one in enumerate(_RED):
            f[one] *= self._factor[one, one]
            for other in _RED[number + 1 :]:
                f[other].addcmul_(self._factor[other, one], f[one], value=-1.0)
        for number, one in reversed(list(enumerate(_RED))):
            for other in _RED[number + 1 :]:
                f[one].addcmul_(self._factor[other, one], f[other], value=-1.0)
            f[one] *= self._factor[one, one]
        for black in _BLACK:
            for red, k in self._shares[black]:
                f[black].addcmul_(k, f[red])


def _every(
    values: torch.Tensor | _Planes, first: tuple[int, int], shape: tuple[int, int]
) -> torch.Tensor:
    """Return what stands at the same place in so many coarse cells per axis, from a first one on."""
    if isinstance(values, _Planes):
        return values.at(*first, shape)
    rows, columns = shape
    return values[..., first[0] :: RATIO, first[1] :: RATIO][..., :rows, :columns]
