"""The smallest squares of an element, eliminated by Gauss and Jordan's algorithm.

Their numbers are vectors over thousands of squares, ``B`` last, until they are eliminated. Squares are
numbered as they are merged: the four of a larger one follow each other.
"""

from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.perimeter import square_perimeter
from mosaicdd.local_solvers.elements.planes import coloured
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.tensors import Tensors

_Edges = tuple[torch.Tensor, torch.Tensor]
"""Of squares, between a node and the one above it ``(l, l + 1, B)``, and to the right."""


class Squares:
    """The smallest squares, of ``l`` cells a side.

    An inner node beside the perimeter is coupled to one node of it on each side, by ``g`` in its own
    equation and by ``h`` in that node's. So with ``Z = A_ii^-1`` the Schur complement is ``A_bb - h Z g``,
    entry by entry.

    Parameters
    ----------
    halvings
        How often elements are halved to make them.

    Attributes
    ----------
    schur
        The Schur complements, ``(B, p * p)``.
    inverse
        The part of ``A_ii^-1`` that belongs to the nodes that are `coloured`, ``(B, r, r)``.
    """

    def __init__(
        self, conductances: Conductances, side: int, halvings: int, **tensors: Unpack[Tensors]
    ):
        self._side, self._halvings, self._tensors = side, halvings, tensors
        # Of an edge's upper or right node, in the equation of the other; and the other way round.
        forwards = self._edges(*conductances.along)
        symmetric = conductances.symmetric
        backwards = forwards if symmetric else self._edges(*conductances.against)
        # The inner nodes that the places along the perimeter that are no corners are coupled to.
        ring = square_perimeter(side)
        beside = ring[np.arange(4 * side) % side > 0]
        coupled = (beside.clip(1, max(side - 1, 1)) - 1) @ np.array([side - 1, 1])
        self._coupled = torch.from_numpy(coupled.astype(int)).to(tensors["device"])
        inwards = _beside_perimeter(*forwards, *backwards)  # h, (4 (l - 1), B)
        outwards = inwards if symmetric else _beside_perimeter(*backwards, *forwards)
        diagonal = self._diagonal(conductances, forwards, backwards)
        inverse = self._inverted(diagonal, forwards, backwards)
        schur = self._complement(ring, inverse, diagonal, forwards, backwards, (inwards, outwards))
        self.schur = schur.flatten(0, 1).t().contiguous()
        at = torch.from_numpy((coloured(side, crossed=False) - 1) @ np.array([side - 1, 1]))
        self.inverse = inverse[at[:, None], at].movedim(-1, 0)

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
        cut = torch.from_numpy(np.ascontiguousarray(values)).to(**self._tensors)
        cut = cut.unfold(-2, rows, self._side).unfold(-2, columns, self._side)
        if cut.dim() == 5:  # of elements one by one, which stand side by side from now on
            cut = cut.movedim(0, 1).flatten(1, 2)
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
        return _invert(a.flatten(2, 3).flatten(0, 1))

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


class CrossedSquares(Squares):
    """The smallest squares where there are conductances across cells, too; without a velocity.

    A node inside may be coupled to any of three on the perimeter.
    """

    def __init__(
        self, conductances: Conductances, side: int, halvings: int, **tensors: Unpack[Tensors]
    ):
        self._side, self._halvings, self._tensors = side, halvings, tensors
        edges = up, right = self._edges(*conductances.along)
        if conductances.across is None or not conductances.symmetric:
            raise ValueError("conductances across cells are needed, and no velocity")
        rising, falling = (self._cut(k, side, side) for k in conductances.across)
        every = torch.arange((side + 1) ** 2).view(side + 1, side + 1)
        a = up.new_zeros(every.numel(), every.numel(), up.shape[2])
        total = self._diagonal(conductances, edges, edges)
        for first, second, k in (
            (every[:-1], every[1:], up),
            (every[:, :-1], every[:, 1:], right),
            (every[:-1, :-1], every[1:, 1:], rising),
            (every[1:, :-1], every[:-1, 1:], falling),
        ):
            a[first, second] = a[second, first] = -k
        for places, k in (
            ((slice(0, -1), slice(0, -1)), rising),
            ((slice(1, None), slice(1, None)), rising),
            ((slice(1, None), slice(0, -1)), falling),
            ((slice(0, -1), slice(1, None)), falling),
        ):
            total[places] += k
        a[every, every] = total
        ring, inner = square_perimeter(side) @ np.array([side + 1, 1]), every[1:-1, 1:-1].flatten()
        b = torch.from_numpy(ring)
        inverse = _invert(a[inner[:, None], inner])
        self.inverse = inverse.movedim(-1, 0).contiguous()
        beside = a[inner[:, None], b].movedim(-1, 0).contiguous()  # A_ib, (B, i, p)
        outer = a[b[:, None], b].movedim(-1, 0)
        self.schur = (outer - beside.mT @ (self.inverse @ beside)).flatten(1).contiguous()


def _invert(a: torch.Tensor) -> torch.Tensor:
    """Return the inverses of matrices ``(i, i, B)``, by Gauss and Jordan's algorithm in place."""
    for k in range(len(a)):
        column = a[:, k].clone()
        row = a[k] / column[k]
        row[k] = column[k].reciprocal()
        a[:, k] = column[k] = 0.0
        a.addcmul_(column[:, None], row, value=-1.0)
        a[k] = row
    return a


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
