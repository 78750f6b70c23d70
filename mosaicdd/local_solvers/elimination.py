r"""The elimination of the nodes inside elements, in levels, for all of a piece at once.

Small squares are eliminated by Gauss and Jordan's algorithm on numbers that are vectors over thousands
of squares; then again and again four squares are merged to one:

```
   +---+---+       +-------+      b  the perimeter of the merged square
   | 2 | 3 |       |       |      i  the nodes between the four, which are eliminated:
   +---+---+  -->  |       |      S = A_bb - V W,  W = L^-1 A_ib,  V = A_bi U^-1,  A_ii = L U
   | 0 | 1 |       |       |      load = f_b - V L^-1 f_i
   +---+---+       +-------+      u_i = U^-1 (L^-1 f_i - W u_b)
```

Without a velocity all is symmetric, ``U = L^T`` by Cholesky and ``V = W^T``; with one, ``L U`` is
Gauss's, with rows exchanged. Grid edges and nodes on a perimeter are shared by two squares, so each
counts half of them.

Squares are numbered so that the four that are merged follow each other. Then the matrices of a level
are those of the level before at other places, and assembling them is one gather.

Shape letters: ``E`` elements, ``B`` squares of a level, ``p`` perimeter nodes of a square, ``i`` eliminated
ones, ``n`` problems; vectors are rows, ``(B, n, p)``.
"""

from functools import lru_cache
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.subdomain import perimeter_nodes
from mosaicdd.problems.medium import Conductances
from mosaicdd.tensors import Tensors

_SMALLEST = 3  # cells along a side that are not halved any more

_Edges = tuple[torch.Tensor, torch.Tensor]
"""Of squares, between a node and the one above it ``(l, l + 1, B)``, and to the right."""


class Elimination:
    """The levels of a piece of elements; writes their Schur complements to ``out``.

    Parameters
    ----------
    conductances
        Between the nodes of the piece.
    spacing
        ``s``, cells along the side of an element.
    out
        ``(E, 4 s, 4 s)``, contiguous.
    """

    def __init__(self, conductances: Conductances, spacing: int, out: torch.Tensor):
        side, halvings = _halved(spacing)
        tensors: Tensors = {"device": out.device, "dtype": out.dtype}
        self._squares = _Squares(conductances, side, halvings, **tensors)
        self._merges: list[_Merge] = []
        schur = self._squares.complement()
        for level in range(halvings):
            into = out if level == halvings - 1 else None
            merge = _Merge(schur, side << level, symmetric=conductances.symmetric, out=into)
            schur = merge.take_schur()
            self._merges.append(merge)
        if not halvings:
            out.copy_(schur.view(out.shape))

    def condense(self, force: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the loads ``(E, n, 4 s)`` of sources inside, and what the fill needs of them.

        Parameters
        ----------
        force
            ``(E, n, (s - 1)**2)``, in the order of elimination.
        """
        first, *others = self._split(force)
        loads, left = self._squares.loads(first), [first]
        for merge, one in zip(self._merges, others, strict=True):
            loads, y = merge.condense(loads, one)
            left.append(y)
        return loads, left

    def fill(self, perimeters: torch.Tensor, left: list[torch.Tensor] | None) -> torch.Tensor:
        """Return the values inside, ``(E, n, (s - 1)**2)``, in the order of elimination.

        Parameters
        ----------
        perimeters
            Values ``(E, n, 4 s)``.
        left
            Of the sources, by `condense`; None for zero.
        """
        elements, n = perimeters.shape[:2]
        first, *others = left or [None] * (1 + len(self._merges))
        values, filled = perimeters, []
        for merge, y in zip(reversed(self._merges), reversed(others), strict=True):
            values, inner = merge.expand(values, y)
            filled.append(inner)
        filled.append(self._squares.expand(values, first))
        parts = (one.unflatten(0, (elements, -1)).transpose(1, 2) for one in reversed(filled))
        return torch.cat([one.reshape(elements, n, -1) for one in parts], dim=2)

    def _split(self, force: torch.Tensor) -> list[torch.Tensor]:
        """Split values inside elements into those of each level's squares, ``(B, n, i)``."""
        levels = [self._squares, *self._merges]
        counts = [4 ** (len(self._merges) - k) for k in range(len(levels))]
        sizes = [count * level.inside for count, level in zip(counts, levels, strict=True)]
        return [
            one.unflatten(2, (count, -1)).transpose(1, 2).flatten(0, 1)
            if one.numel()
            else one.new_empty(len(one) * count, one.shape[1], 0)
            for one, count in zip(force.split(sizes, dim=2), counts, strict=True)
        ]


@lru_cache
def elimination_order(spacing: int) -> np.ndarray:
    """Return the order in which the nodes inside an element are eliminated, ``((s - 1)**2,)``.

    They are numbered row by row from the bottom.
    """
    side, halvings = _halved(spacing)
    quarters = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    corners, levels = np.zeros((1, 2), int), []
    for level in reversed(range(halvings)):
        half = side << level
        plan = _merging(half)
        levels.append((corners[:, None] + plan.nodes[plan.perimeter :]).reshape(-1, 2))
        corners = (corners[:, None] + half * quarters).reshape(-1, 2)
    inner = np.argwhere(np.ones((side - 1, side - 1))) + 1
    levels.append((corners[:, None] + inner).reshape(-1, 2))
    nodes = np.concatenate(levels[::-1])
    return (nodes - 1) @ np.array([spacing - 1, 1])


def _halved(spacing: int) -> tuple[int, int]:
    """Return the cells along the smallest squares, and how often four of them are merged."""
    side, halvings = spacing, 0
    while side % 2 == 0 and side // 2 >= _SMALLEST:
        side, halvings = side // 2, halvings + 1
    return side, halvings


class _Squares:
    """The smallest squares, of ``l`` cells a side.

    An inner node beside the perimeter is coupled to one node of it on each side, by ``g`` in its own
    equation and by ``h`` in that node's. So with ``Z = A_ii^-1`` the Schur complement is ``A_bb - h Z g``,
    entry by entry.

    Parameters
    ----------
    halvings
        How often elements are halved to make them.
    """

    def __init__(
        self, conductances: Conductances, side: int, halvings: int, **tensors: Unpack[Tensors]
    ):
        self._side, self._halvings, self._tensors = side, halvings, tensors
        self.inside = (side - 1) ** 2
        # Of an edge's upper or right node, in the equation of the other; and the other way round.
        forwards = self._edges(conductances.up, conductances.right)
        symmetric = conductances.symmetric
        backwards = forwards if symmetric else self._edges(conductances.down, conductances.left)
        # The inner nodes that the places along the perimeter that are no corners are coupled to.
        ring = perimeter_nodes(side)
        beside = ring[np.arange(4 * side) % side > 0]
        coupled = (beside.clip(1, max(side - 1, 1)) - 1) @ np.array([side - 1, 1])
        self._coupled = torch.from_numpy(coupled.astype(int)).to(tensors["device"])
        inwards = _beside_perimeter(*forwards, *backwards)  # h, (4 (l - 1), B)
        outwards = inwards if symmetric else _beside_perimeter(*backwards, *forwards)
        diagonal = self._diagonal(conductances, forwards, backwards)
        inverse = self._inverted(diagonal, forwards, backwards)
        self._schur = self._complement(ring, inverse, diagonal, forwards, backwards, (inwards, outwards))
        self._inwards = inwards.t().contiguous()[:, None]
        self._outwards = self._inwards if symmetric else outwards.t().contiguous()[:, None]
        self._inverse = inverse.flatten(0, 1).t().contiguous().unflatten(1, inverse.shape[:2])

    def complement(self) -> torch.Tensor:
        """Return the Schur complements, ``(B, p * p)``, and forget them."""
        schur = self._schur.flatten(0, 1).t().contiguous()
        del self._schur
        return schur

    def _edges(self, up: np.ndarray, right: np.ndarray) -> _Edges:
        """Cut conductances into squares; those on perimeters are halved."""
        side = self._side
        cut = self._cut(up, side, side + 1), self._cut(right, side + 1, side)
        cut[0][:, [0, side]] *= 0.5
        cut[1][[0, side]] *= 0.5
        return cut

    def _cut(self, values: np.ndarray, rows: int, columns: int) -> torch.Tensor:
        """Cut values into squares, ``(rows, columns, B)``."""
        k = self._halvings
        cut = torch.from_numpy(values).to(**self._tensors)
        cut = cut.unfold(0, rows, self._side).unfold(1, columns, self._side)
        cut = cut.unflatten(1, (-1, *[2] * k)).unflatten(0, (-1, *[2] * k))
        pairs = (axis for j in range(k + 1) for axis in (j, k + 1 + j))
        return cut.permute(-2, -1, *pairs).clone(memory_format=torch.contiguous_format).flatten(2)

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
        """Return ``A_ii^-1``, ``(i, i, B)``, by Gauss and Jordan's algorithm in place."""
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
        self,
        ring: np.ndarray,
        inverse: torch.Tensor,
        diagonal: torch.Tensor,
        forwards: _Edges,
        backwards: _Edges,
        couplings: _Edges,
    ) -> torch.Tensor:
        """Return ``A_bb - h Z g``, ``(p, p, B)``."""
        side, count = self._side, len(ring)
        y, x = torch.from_numpy(ring.T)
        schur = diagonal.new_zeros(count, count, diagonal.shape[2])
        every = torch.arange(count)
        schur[every, every] = diagonal[y, x]
        following = every.roll(-1)  # counter-clockwise: along the axes twice, against them twice
        schur[every, following] = -_along_perimeter(*forwards, *backwards)
        schur[following, every] = -_along_perimeter(*backwards, *forwards)
        inwards, outwards = couplings
        at = self._coupled[:, None] * len(inverse) + self._coupled
        pairs = inverse.flatten(0, 1).index_select(0, at.flatten()).unflatten(0, at.shape)
        pairs.mul_(inwards[:, None]).mul_(outwards)
        sides = pairs.unflatten(1, (4, side - 1)).unflatten(0, (4, side - 1))
        schur.unflatten(1, (4, side)).unflatten(0, (4, side))[:, 1:, :, 1:] -= sides
        return schur

    def loads(self, force: torch.Tensor) -> torch.Tensor:
        """Return the loads of the squares, ``(B, n, p)``, for sources ``(B, n, i)``."""
        inner = torch.bmm(force, self._inverse.mT)[..., self._coupled] * self._inwards
        loads = inner.new_zeros(*inner.shape[:2], 4, self._side)
        loads[..., 1:] = inner.unflatten(2, (4, self._side - 1))
        return loads.flatten(2)

    def expand(self, values: torch.Tensor, force: torch.Tensor | None) -> torch.Tensor:
        """Return the values inside from those on the perimeters ``(B, n, p)``."""
        squares, n, _ = values.shape
        side, inside = self._side, self._side - 1
        total = values.new_zeros(squares, n, inside, inside)
        if force is not None:
            total += force.view(total.shape)
        beside = values.unflatten(2, (4, side))[..., 1:]
        beside = beside * self._outwards.unflatten(2, (4, inside))
        total[:, :, :1] += beside[:, :, :1]
        total[..., -1:] += beside[:, :, 1, :, None]
        total[:, :, -1:] += beside[:, :, 2:3].flip(-1)
        total[..., :1] += beside[:, :, 3].flip(-1)[..., None]
        return torch.bmm(total.flatten(2), self._inverse.mT)


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
        Of the small squares, ``(4 B, ..)``, contiguous.
    side
        ``l``.
    out
        Where those of the merged squares go, ``(B, p, p)``; None for a new tensor.
    """

    def __init__(
        self, schur: torch.Tensor, side: int, *, symmetric: bool, out: torch.Tensor | None
    ):
        self._plan = plan = _merging(side)
        across, count = plan.perimeter, len(plan.nodes)
        self.inside = count - across
        small = schur.view(-1, 4 * (4 * side) ** 2)
        edge, inner = slice(0, across), slice(across, count)
        wide = plan.gather(small, inner, slice(0, count))  # [A_ib, A_ii], to be [A_ib, 1]
        unit = wide[..., across:]
        if symmetric:
            factor = torch.linalg.cholesky(unit)
            unit.copy_(torch.eye(self.inside).to(unit))
            self._right = _triangular(factor, wide)  # [W, L^-1]
            self._left = self._right  # [V^T, U^-T]
        else:
            exchanged, factor, upper = torch.linalg.lu(unit)
            unit.copy_(torch.eye(self.inside).to(unit))
            self._right = _triangular(factor, exchanged.mT @ wide)
            wide[..., :across] = plan.gather(small, edge, inner).mT
            self._left = _triangular(upper.mT, wide)
        v, w = (one[..., :across] for one in (self._left, self._right))
        schur = small.new_empty(len(small), across, across) if out is None else out
        torch.baddbmm(schur, v.mT, w, beta=0.0, alpha=-1.0, out=schur)
        plan.add_outer(small, schur)
        self._schur = schur

    def take_schur(self) -> torch.Tensor:
        """Return ``(B, p, p)`` of the merged squares, and forget it."""
        schur = self._schur
        del self._schur
        return schur

    def condense(
        self, loads: torch.Tensor, force: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge loads ``(4 B, n, p)``; return those of the merged squares and ``L^-1 f_i``."""
        plan, across = self._plan, self._plan.perimeter
        small = loads.unflatten(0, (-1, 4)).transpose(1, 2).flatten(2)
        first, second = torch.from_numpy(plan.loads).to(loads.device)
        total = small[..., first] + small[..., second]
        y = torch.bmm(total[..., across:] + force, self._right[..., across:].mT)
        return total[..., :across].baddbmm(y, self._left[..., :across], alpha=-1.0), y

    def expand(
        self, values: torch.Tensor, y: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values on the small squares' perimeters, ``(4 B, n, p)``, and between them."""
        across = self._plan.perimeter
        force = torch.bmm(values, self._right[..., :across].mT).neg_()
        if y is not None:
            force += y
        inner = torch.bmm(force, self._left[..., across:])
        everything = torch.cat([values, inner], dim=2)
        maps = torch.from_numpy(self._plan.maps).to(values.device)
        return everything[..., maps].transpose(1, 2).flatten(0, 1), inner


def _triangular(factor: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``L^-1 R``, of rows that follow each other in memory as LAPACK wants columns to."""
    return torch.linalg.solve_triangular(factor.mT, right.mT, upper=True, left=False).mT


class _Merging:
    """How four squares of a side make one.

    Attributes
    ----------
    perimeter
        Number of nodes on the merged perimeter.
    nodes
        (y, x) of these, then of those between the squares.
    maps
        ``(4, p)``: where among them each small square's perimeter lies.
    loads
        ``(2, nodes)``: where among the loads of four squares the two parts of each node's stand. Corners
        have none, so one of theirs stands for what is not there.
    """

    def __init__(self, side: int):
        perimeter = perimeter_nodes(2 * side)
        inner = np.arange(1, 2 * side)
        middle = np.full_like(inner, side)
        across, up = np.stack([middle, inner], 1), np.stack([inner, middle], 1)
        self.perimeter = len(perimeter)
        self.nodes = np.concatenate([perimeter, across, np.delete(up, side - 1, axis=0)])
        number = {(int(y), int(x)): i for i, (y, x) in enumerate(self.nodes)}
        corners = ((0, 0), (0, side), (side, 0), (side, side))
        own = [perimeter_nodes(side) + np.array(corner) for corner in corners]
        self.maps = np.array([[number[int(y), int(x)] for y, x in one] for one in own])
        small = self.maps.shape[1]
        self._own = np.full((4, len(self.nodes)), -1)  # where a node is on a square's perimeter
        for square, one in enumerate(self.maps):
            self._own[square, one] = np.arange(small)
        self.loads = _first(self._own + small * np.arange(4)[:, None], self._own >= 0, 0)[:2]
        # The nodes of the merged perimeter from the middle of a side to that of the next.
        ring = np.arange(self.perimeter)
        firsts = (7 * side, side, 5 * side, 3 * side)
        self._halves = [np.roll(ring, -first)[: 2 * side + 1] for first in firsts]
        self._blocks: dict[tuple, list] = {}
        self._outer: dict[torch.device, list[torch.Tensor]] = {}

    def gather(self, small: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        """Assemble a block of the merged squares' matrices, ``(B, rows, columns)``.

        Parameters
        ----------
        small
            Four matrices in a row, ``(B, 4 p p)``.
        """
        key = rows.start, rows.stop, columns.start, columns.stop, small.device
        if key not in self._blocks:
            self._blocks[key] = self._places(rows, columns, small.device)
        (_, _, where), *others = self._blocks[key]
        total = _taken(small, where)
        for across, along, where in others:
            total[:, across, along] += _taken(small, where)
        return total

    def add_outer(self, small: torch.Tensor, total: torch.Tensor) -> None:
        """Add the block of the perimeter to ``(B, p, p)`` merged; few of its entries are not zero."""
        side, device = self.maps.shape[1] // 4, small.device
        if device not in self._outer:
            self._outer[device] = [
                torch.from_numpy(self._whereabouts(square, at)).to(device)
                for square, at in enumerate(self._halves)
            ]
        for at, where in zip(self._halves, self._outer[device], strict=True):
            part = _taken(small, where)
            # The first square's part of the perimeter goes on beyond its end, from its begin.
            ends = [(0, len(at))] if (np.diff(at) == 1).all() else [(0, side), (side, len(at))]
            for a, b in ends:
                for c, d in ends:
                    rows, columns = slice(at[a], at[b - 1] + 1), slice(at[c], at[d - 1] + 1)
                    total[:, rows, columns] += part[:, a:b, c:d]

    def _whereabouts(self, square: int, at: np.ndarray) -> np.ndarray:
        """Return where the entries between some nodes of one square stand."""
        small, own = self.maps.shape[1], self._own[square, at]
        return small * (small * square + own[:, None]) + own

    def _places(self, rows: slice, columns: slice, device: torch.device) -> list:
        """Return where the parts of a block's entries stand: of all entries, and of those with more.

        An entry has up to four parts. Opposite corners of a square are not coupled, so that number
        stands for what is not there.
        """
        small = self.maps.shape[1]
        down, right = self._own[:, rows, None], self._own[:, None, columns]
        where = small * (small * np.arange(4)[:, None, None] + down) + right
        there = (down >= 0) & (right >= 0)
        where = _first(where, there, small // 2)
        blocks = [(slice(None), slice(None), where[0])]
        for count, part in enumerate(where[1:], start=2):
            more = there.sum(axis=0) >= count
            # Columns of the perimeter, few of which have more, apart from the others.
            edge = np.arange(len(self.nodes))[columns] < self.perimeter
            for those in (more & edge, more & ~edge):
                if those.any():
                    across, along = (_covering(those.any(axis=axis)) for axis in (1, 0))
                    blocks.append((across, along, part[across, along]))
        return [(*place, torch.from_numpy(part.copy()).to(device)) for *place, part in blocks]


_merging = lru_cache(_Merging)


def _taken(small: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Return numbers of each of some squares, ``(B, ..)``."""
    return small.gather(1, where.flatten().expand(len(small), -1)).unflatten(1, where.shape)


def _first(places: np.ndarray, there: np.ndarray, other: int) -> np.ndarray:
    """Move the places that are there to the front of the first axis; the rest is another place."""
    order = np.argsort(~there, axis=0, kind="stable")
    return np.take_along_axis(np.where(there, places, other), order, axis=0)


def _covering(chosen: np.ndarray) -> slice:
    """Return the smallest evenly spaced range that has all of what is chosen."""
    at = np.flatnonzero(chosen)
    return slice(at[0], at[-1] + 1, max(1, np.gcd.reduce(np.diff(at))))
