r"""Condensed elements: the discrete equation on the nodes of lattice lines alone, exactly.

An element is a square of ``s`` cells between lattice lines. Eliminating its inner nodes leaves a dense
matrix on its ``P = 4 s`` perimeter nodes, its Schur complement ``S``, and a load. Elements are
eliminated in levels, all of a strip at once: small squares by Gauss and Jordan's algorithm on numbers
that are vectors over thousands of squares, then again and again four squares merged to one:

```
   +---+---+       +-------+      b  the perimeter of the merged square
   | 2 | 3 |       |       |      i  the nodes between the four, which are eliminated:
   +---+---+  -->  |       |      S = A_bb - V W,  W = L^-1 A_ib,  V = A_bi U^-1,  A_ii = L U
   | 0 | 1 |       |       |      load = f_b - V L^-1 f_i
   +---+---+       +-------+      u_i = U^-1 (L^-1 f_i - W u_b)
```

Without a velocity all is symmetric, ``U = L^T`` by Cholesky and ``V = W^T``; with one, ``L U`` is
Gauss's, with rows exchanged. Grid edges and nodes on a perimeter are shared by two squares, so each
counts half of them. What is left of ``A_ii`` is kept: new sources, and the values inside, cost a few
products.

Shape letters: ``E`` elements, ``B`` squares of a level, row by row from the bottom, ``p`` perimeter
nodes of a square, ``n`` problems. Sources are times the squared spacing.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.subdomain import perimeter_nodes
from mosaicdd.problems.medium import Conductances
from mosaicdd.tensors import Tensors

_Edges = tuple[torch.Tensor, torch.Tensor]
"""Of squares, between a node and the one above it ``(l, l + 1, B)``, and to the right."""

_SMALLEST = 3  # cells along a side that are not halved any more
_STRIP = {"cpu": 64, "cuda": 8192}  # elements eliminated at once, or one row: few, for the cache


class CondensedElements:
    """The elements of a rectangle of lattice cells.

    Parameters
    ----------
    conductances
        Between the nodes of the rectangle.
    spacing
        ``s``, cells along the side of an element.

    Attributes
    ----------
    shape
        Elements per axis, ``(K_y, K_x)``.
    schur
        ``(E, P, P)``; the perimeter runs counter-clockwise from the lower-left corner.
    """

    def __init__(
        self,
        conductances: Conductances,
        spacing: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ):
        rows, columns = self.shape = tuple(
            (nodes - 1) // spacing for nodes in conductances.reaction.shape
        )
        self._s = spacing
        self.schur = torch.empty(
            rows * columns, 4 * spacing, 4 * spacing, device=device, dtype=dtype
        )
        self._strips: list[tuple[slice, _Elimination]] = []
        down = max(1, _STRIP[device.type] // columns)
        for first in range(0, rows, down):
            strip = slice(first, min(first + down, rows))
            nodes = slice(strip.start * spacing, strip.stop * spacing + 1)
            part = conductances.part(nodes, slice(0, columns * spacing + 1))
            schur = self.schur[strip.start * columns : strip.stop * columns]
            self._strips.append((strip, _Elimination(part, spacing, schur)))

    def loads(self, source: torch.Tensor) -> torch.Tensor:
        """Return what sources inside the elements add to their perimeters, ``(E, P, n)``.

        Parameters
        ----------
        source
            ``(n, rows, columns)`` at all nodes; those on lattice lines do not count.
        """
        return torch.cat([one.loads(self._of(source, strip)) for strip, one in self._strips])

    def fill(
        self, perimeters: torch.Tensor, source: torch.Tensor | None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield the values at the nodes, strip by strip from the bottom.

        Parameters
        ----------
        perimeters
            ``(E, P, n)``.
        source
            As for `loads`; None for zero.

        Yields
        ------
        slice, Tensor
            Rows of elements, and the values ``(n, s rows, s K_x)`` there, but for the last line and
            column of nodes.
        """
        columns = self.shape[1]
        for strip, one in self._strips:
            given = perimeters[strip.start * columns : strip.stop * columns]
            yield strip, one.fill(given, None if source is None else self._of(source, strip))

    def _of(self, source: torch.Tensor, strip: slice) -> torch.Tensor:
        return source[:, strip.start * self._s : strip.stop * self._s + 1]


class _Elimination:
    """The levels of a strip of elements; writes their Schur complements to ``out``."""

    def __init__(self, conductances: Conductances, spacing: int, out: torch.Tensor):
        side = spacing
        while side % 2 == 0 and side // 2 >= _SMALLEST:
            side //= 2
        self._squares = _Squares(conductances, side, device=out.device, dtype=out.dtype)
        schur = self._squares.schur
        del self._squares.schur
        self._merges: list[_Merge] = []
        while side < spacing:
            shape = tuple((nodes - 1) // (2 * side) for nodes in conductances.reaction.shape)
            merge = _Merge(schur, side, shape, symmetric=conductances.symmetric)
            schur = merge.schur()
            self._merges.append(merge)
            side *= 2
        out.copy_(schur.movedim(-1, 0))

    def loads(self, source: torch.Tensor) -> torch.Tensor:
        loads, _ = self._condense(source)
        return loads.permute(2, 1, 0)

    def fill(self, perimeters: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
        inner = [None] * len(self._merges) if source is None else self._condense(source)[1]
        values = perimeters.permute(2, 1, 0)
        for merge, y in zip(reversed(self._merges), reversed(inner), strict=True):
            values = merge.expand(values, y)
        return self._squares.expand(values, source)

    def _condense(self, source: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the loads ``(n, P, E)``, and what each level leaves of the inner ones."""
        loads, inner = self._squares.loads(source), []
        for merge in self._merges:
            loads, y = merge.condense(loads, source)
            inner.append(y)
        return loads, inner


class _Squares:
    """The smallest squares, of ``l`` cells a side. Their numbers are vectors over all squares.

    ``schur``, ``(p, p, B)``, is for whoever makes them to take away.

    An inner node beside the perimeter is coupled to one node of it on each side, by ``g`` in its own
    equation and by ``h`` in that node's. So with ``Z = A_ii^-1`` the Schur complement is ``A_bb - h Z g``,
    entry by entry.
    """

    def __init__(self, conductances: Conductances, side: int, **tensors: Unpack[Tensors]):
        self._side, self._tensors = side, tensors
        self._shape = tuple((nodes - 1) // side for nodes in conductances.reaction.shape)
        # Of an edge's upper or right node, in the equation of the other; and the other way round.
        forwards = self._edges(conductances.up, conductances.right)
        symmetric = conductances.symmetric
        backwards = forwards if symmetric else self._edges(conductances.down, conductances.left)
        nodes = perimeter_nodes(side)
        y, x = (torch.from_numpy(part) for part in nodes.T)
        self._ring = y, x
        # Places along the perimeter that are no corners, and the inner nodes that they are coupled to.
        self._beside = torch.from_numpy(np.flatnonzero(np.arange(4 * side) % side))
        at = (nodes[self._beside].clip(1, max(side - 1, 1)) - 1) @ [side - 1, 1]
        self._coupled = torch.from_numpy(at.astype(int))
        self._inwards = _beside_perimeter(*forwards, *backwards)  # h, (4 (l - 1), B)
        self._outwards = self._inwards if symmetric else _beside_perimeter(*backwards, *forwards)
        diagonal = self._diagonal(conductances, forwards, backwards)
        self._inverse = self._inverted(diagonal, forwards, backwards)  # (I, I, B)
        self.schur = self._complement(diagonal, forwards, backwards)

    def _edges(self, up: np.ndarray, right: np.ndarray) -> _Edges:
        """Cut conductances into squares; those on perimeters are halved."""
        side = self._side
        cut = self._cut(up, side, side + 1), self._cut(right, side + 1, side)
        cut[0][:, [0, side]] *= 0.5
        cut[1][[0, side]] *= 0.5
        return cut

    def _cut(self, values: np.ndarray, rows: int, columns: int) -> torch.Tensor:
        """Cut values into squares, ``(rows, columns, B)``."""
        cut = torch.from_numpy(values).to(**self._tensors)
        cut = cut.unfold(0, rows, self._side).unfold(1, columns, self._side)
        return cut.permute(2, 3, 0, 1).flatten(2).clone()

    def _diagonal(
        self, conductances: Conductances, forwards: _Edges, backwards: _Edges
    ) -> torch.Tensor:
        """Return the squares' own parts of the diagonal, ``(l + 1, l + 1, B)``."""
        side = self._side
        total = self._cut(conductances.reaction, side + 1, side + 1)
        total[[0, side]] *= 0.5
        total[:, [0, side]] *= 0.5
        total[:-1] += forwards[0]
        total[1:] += backwards[0]
        total[:, :-1] += forwards[1]
        total[:, 1:] += backwards[1]
        return total

    def _inverted(
        self, diagonal: torch.Tensor, forwards: _Edges, backwards: _Edges
    ) -> torch.Tensor:
        """Return ``A_ii^-1``, by Gauss and Jordan's algorithm in place."""
        inside = self._side - 1
        a = diagonal.new_zeros(inside, inside, inside, inside, diagonal.shape[2])
        every = torch.arange(inside)
        y, x = every[:, None], every
        a[y, x, y, x] = diagonal[1:-1, 1:-1]
        a[y[:-1], x, y[1:], x] = -forwards[0][1:-1, 1:-1]
        a[y[1:], x, y[:-1], x] = -backwards[0][1:-1, 1:-1]
        a[y, x[:-1], y, x[1:]] = -forwards[1][1:-1, 1:-1]
        a[y, x[1:], y, x[:-1]] = -backwards[1][1:-1, 1:-1]
        a = a.flatten(2, 3).flatten(0, 1)
        for k in range(len(a)):
            column = a[:, k].clone()
            row = a[k] / column[k]
            row[k] = column[k].reciprocal()
            a[:, k] = column[k] = 0.0
            a.addcmul_(column[:, None], row, value=-1.0)
            a[k] = row
        return a

    def _complement(
        self, diagonal: torch.Tensor, forwards: _Edges, backwards: _Edges
    ) -> torch.Tensor:
        """Return ``A_bb - h Z g``."""
        (y, x), count = self._ring, 4 * self._side
        schur = diagonal.new_zeros(count, count, diagonal.shape[2])
        every = torch.arange(count)
        schur[every, every] = diagonal[y, x]
        following = every.roll(-1)  # counter-clockwise: along the axes twice, against them twice
        schur[every, following] = -_along_perimeter(*forwards, *backwards)
        schur[following, every] = -_along_perimeter(*backwards, *forwards)
        pairs = self._inverse[self._coupled[:, None], self._coupled]
        beside = self._beside
        schur[beside[:, None], beside] -= pairs * self._inwards[:, None] * self._outwards
        return schur

    def loads(self, source: torch.Tensor) -> torch.Tensor:
        """Return the loads of the squares, ``(n, p, B)``."""
        inner = self._solve(self._inside(source))
        loads = inner.new_zeros(len(inner), 4 * self._side, inner.shape[2])
        loads[:, self._beside] = self._inwards * inner[:, self._coupled]
        return loads

    def expand(self, values: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
        """Return the values at all nodes from those on the perimeters ``(n, p, B)``."""
        side, (rows, columns) = self._side, self._shape
        force = values.new_zeros(len(values), (side - 1) ** 2, values.shape[2])
        if source is not None:
            force += self._inside(source)
        force.index_add_(1, self._coupled, self._outwards * values[:, self._beside])
        nodes = values.new_empty(len(values), side, side, values.shape[2])
        nodes[:, 0] = values[:, :side]
        nodes[:, 1:, 0] = values[:, 3 * side + 1 :].flip(1)
        nodes[:, 1:, 1:] = self._solve(force).unflatten(1, (side - 1, side - 1))
        nodes = nodes.unflatten(3, (rows, columns)).permute(0, 3, 1, 4, 2)
        return nodes.flatten(3).flatten(1, 2)

    def _inside(self, source: torch.Tensor) -> torch.Tensor:
        """Cut a source, ``(n, (l - 1)**2, B)``."""
        side = self._side
        cut = source[:, 1:, 1:].unfold(1, side, side).unfold(2, side, side)[..., :-1, :-1]
        return cut.permute(0, 3, 4, 1, 2).flatten(3).flatten(1, 2)

    def _solve(self, force: torch.Tensor) -> torch.Tensor:
        """Return ``Z f``, ``(n, I, B)``."""
        return torch.stack([(self._inverse * one).sum(1) for one in force])


def _along_perimeter(
    up: torch.Tensor, right: torch.Tensor, down: torch.Tensor, left: torch.Tensor
) -> torch.Tensor:
    """Return the conductances from each perimeter node to the next, ``(4 l, B)``."""
    return torch.cat([right[0], up[:, -1], left[-1].flip(0), down[:, 0].flip(0)])


def _beside_perimeter(
    up: torch.Tensor, right: torch.Tensor, down: torch.Tensor, left: torch.Tensor
) -> torch.Tensor:
    """Return those from the perimeter nodes that are no corners inwards, ``(4 (l - 1), B)``."""
    inwards = (
        up[0, 1:-1],
        left[1:-1, -1],
        down[-1, 1:-1].flip(0),
        right[1:-1, 0].flip(0),
    )
    return torch.cat(inwards)


class _Merge:
    """Four squares of ``l`` cells a side become one.

    Parameters
    ----------
    schur
        Of the small squares, ``(p, p, B)``.
    side
        ``l``.
    shape
        Merged squares per axis.
    """

    def __init__(self, schur: torch.Tensor, side: int, shape: tuple[int, int], *, symmetric: bool):
        self._shape = shape
        self._perimeter, self._nodes, maps = _merging(side)
        self._maps = [torch.from_numpy(one).to(schur.device) for one in maps]
        count, across = len(self._nodes), self._perimeter
        total = schur.new_zeros(count * count, shape[0] * shape[1])
        small = schur.flatten(0, 1).unflatten(1, (2 * shape[0], 2 * shape[1]))
        for number, one in enumerate(self._maps):
            pairs = (one[:, None] * count + one).flatten()
            part = small[:, number // 2 :: 2, number % 2 :: 2]
            total.index_add_(0, pairs, part.flatten(1))
        total = total.view(count, count, -1)
        inner = total[across:, across:].movedim(-1, 0).contiguous()
        wide = schur.new_zeros(len(inner), count - across, count)
        wide[..., :across] = total[across:, :across].movedim(-1, 0)
        wide[..., across:].diagonal(dim1=1, dim2=2).fill_(1.0)
        if symmetric:
            factor = torch.linalg.cholesky(inner)
            self._right = torch.linalg.solve_triangular(factor, wide, upper=False)  # [W, L^-1]
            self._left = self._right  # [V^T, U^-T]
        else:
            exchanged, factor, upper = torch.linalg.lu(inner)
            self._right = torch.linalg.solve_triangular(
                factor, exchanged.mT @ wide, upper=False, unitriangular=True
            )
            wide[..., :across] = total[:across, across:].permute(2, 1, 0)
            self._left = torch.linalg.solve_triangular(upper.mT, wide, upper=False)
        self._outer = total[:across, :across].movedim(-1, 0).contiguous()

    def schur(self) -> torch.Tensor:
        """Return ``(p, p, B)`` of the merged squares, and forget it."""
        v, w = (one[..., : self._perimeter] for one in (self._left, self._right))
        schur = torch.baddbmm(self._outer, v.mT, w, alpha=-1.0)
        del self._outer
        return schur.flatten(1).t().contiguous().view(self._perimeter, self._perimeter, -1)

    def condense(
        self, loads: torch.Tensor, source: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge loads ``(n, p, B)``; return those of the merged squares and ``L^-1 f_i``."""
        total = loads.new_zeros(len(loads), len(self._nodes), math.prod(self._shape))
        small = loads.unflatten(2, tuple(2 * k for k in self._shape))
        for number, one in enumerate(self._maps):
            part = small[:, :, number // 2 :: 2, number % 2 :: 2]
            total.index_add_(1, one, part.flatten(2))
        across = self._perimeter
        inner = total[:, across:]
        inner += self._sources(source)
        y = self._right[..., across:] @ inner.permute(2, 1, 0)  # (B, i, n)
        return total[:, :across] - (self._left[..., :across].mT @ y).permute(2, 1, 0), y

    def _sources(self, source: torch.Tensor) -> torch.Tensor:
        """Return the sources at the eliminated nodes, ``(n, i, B)``."""
        y, x = self._nodes[self._perimeter :].T
        step = int(self._nodes.max())
        cut = source.unfold(1, step + 1, step).unfold(2, step + 1, step)
        return cut[..., y, x].permute(0, 3, 1, 2).flatten(2)

    def expand(self, values: torch.Tensor, y: torch.Tensor | None) -> torch.Tensor:
        """Return the values on the perimeters of the small squares from those of the merged ones."""
        across, (rows, columns) = self._perimeter, self._shape
        force = -(self._right[..., :across] @ values.permute(2, 1, 0))
        if y is not None:
            force += y
        inner = self._left[..., across:].mT @ force
        everything = torch.cat([values, inner.permute(2, 1, 0)], dim=1)
        small = values.new_empty(len(values), len(self._maps[0]), 2 * rows, 2 * columns)
        for number, one in enumerate(self._maps):
            part = everything[:, one].unflatten(2, (rows, columns))
            small[:, :, number // 2 :: 2, number % 2 :: 2] = part
        return small.flatten(2)


@lru_cache
def _merging(side: int) -> tuple[int, np.ndarray, list[np.ndarray]]:
    """Return how four squares of a side make one.

    Returns
    -------
    int, ndarray, list
        The nodes on the merged perimeter; the nodes, (y, x), these before those between the squares;
        and for each small square, where among them its own perimeter lies.
    """
    perimeter = perimeter_nodes(2 * side)
    inner = np.arange(1, 2 * side)
    middle = np.full_like(inner, side)
    across, up = np.stack([middle, inner], 1), np.stack([inner, middle], 1)
    nodes = np.concatenate([perimeter, across, np.delete(up, side - 1, axis=0)])
    number = {(int(y), int(x)): i for i, (y, x) in enumerate(nodes)}
    corners = ((0, 0), (0, side), (side, 0), (side, side))
    own = [perimeter_nodes(side) + np.array(corner) for corner in corners]
    maps = [np.array([number[int(y), int(x)] for y, x in one]) for one in own]
    return len(perimeter), nodes, maps
