"""The operator of a level: couplings to the neighbours, and an excess of the diagonal.

A node's equation is ``sum_j k_j (u - u_j) + e u``. Between neighbours only differences count, and the diagonal is made as
a sum, so nothing is lost where couplings differ by many orders of magnitude; what given values, reactions and Robin
conditions add to the diagonal is the excess ``e``, which is carried by itself. Numbers are float32: they make a
preconditioner.

Nodes of a box with couplings between them and an excess: the finest equations, or those of a level below.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import scipy.sparse
import torch

from mosaicdd.solvers.multigrid.colour_layout import Class, ColourLayout, Step, opposite
from mosaicdd.solvers.multigrid.level_partition import GhostExchange, LevelBox, PeriodicGhosts

LEAST = 1e-37
"""Of a sum of couplings, beside the largest of all: less is none, as float32 has no inverse of it."""
# Of the sizes of a node's couplings: where these cancel to less, its diagonal is rounding, whose inverse enlarges what a sweep
# finds. Such a coarse function is next to nothing: beside an outline, where it belongs to a node without an unknown.
_LOST = 1e-5

Couplings = Callable[[Class, slice], Mapping[Step, torch.Tensor]]
"""The couplings of a class to its neighbours, by direction, in a stretch of slots."""


class LevelOperator:
    """An operator on the nodes of one level.

    Parameters
    ----------
    couplings
        By direction: ``(C, M)``, of each node to its neighbour there, zero where there is none. One of each pair of
        opposite directions where the neighbour's equation has the same number; both where a velocity makes them differ.
    excess
        ``(C, M)``.

    Attributes
    ----------
    directed
        Whether both are given.
    steps
        To all neighbours.
    inverse
        Of the diagonal, ``(C, M)``; zero where no unknown is, or next to nothing on its diagonal.
    positive
        Whether no coupling is negative here.
    """

    def __init__(
        self, nodes: ColourLayout, couplings: Mapping[Step, torch.Tensor], excess: torch.Tensor
    ):
        self.nodes, self.couplings, self.excess = nodes, dict(couplings), excess
        self.directed = any(opposite(step) in couplings for step in couplings)
        ways = [either for step in couplings for either in (step, opposite(step))]
        self.steps = tuple(dict.fromkeys(ways))
        self._rows = {of: self._row(of) for of in nodes.classes}
        self.positive = min([float(k.min()) for k in self.couplings.values()], default=0.0) >= 0
        self.inverse = excess.clone()
        for number, of in enumerate(nodes.classes):
            for stretch in nodes.stretches():
                diagonal = self.inverse[number, stretch]
                sizes: torch.Tensor | None = None
                for _, coupling, _, _ in self.row(of, stretch):
                    diagonal += coupling
                    if not self.positive:
                        sizes = coupling.abs() if sizes is None else sizes.add_(coupling.abs())
                there = diagonal >= LEAST
                if sizes is not None:
                    there &= diagonal >= _LOST * sizes
                diagonal.reciprocal_().masked_fill_(there.logical_not_(), 0.0)

    def _row(self, of: Class) -> list[tuple[Step, torch.Tensor, int, int, int]]:
        """Return per direction a class's couplings and by how many slots they begin later; the neighbours' number and distance."""
        row, own = [], self.nodes.number[of]
        for step in self.steps:
            there, distance = self.nodes.neighbours[of, step]
            number = self.nodes.number[there]
            if step in self.couplings:
                row.append((step, self.couplings[step][own], 0, number, distance))
            else:
                row.append(
                    (step, self.couplings[opposite(step)][number], distance, number, distance)
                )
        return row

    def row(self, of: Class, stretch: slice) -> list[tuple[Step, torch.Tensor, int, slice]]:
        """Return a class's rows in a stretch of slots: per direction the couplings, the neighbours' number and their slots."""
        start, stop = stretch.start, stretch.stop
        return [
            (step, k[start + later : stop + later], number, slice(start + d, stop + d))
            for step, k, later, number, d in self._rows[of]
        ]

    def couplings_of(self, of: Class, stretch: slice) -> dict[Step, torch.Tensor]:
        """Return the couplings of a class in its own equations, by direction."""
        return {step: k for step, k, _, _ in self.row(of, stretch)}

    def couplings_back(self, of: Class, stretch: slice) -> dict[Step, torch.Tensor]:
        """Return the couplings to a class in the equations of its neighbours, by the direction of these; of a directed level."""
        row = self.row(of, stretch)
        return {q: self.couplings[opposite(q)][beside, there] for q, _, beside, there in row}

    def mean_couplings(self, of: Class, stretch: slice) -> dict[Step, torch.Tensor]:
        """Return the means of both, which are those without the velocity where it is small."""
        back = self.couplings_back(of, stretch)
        return {q: (k + back[q]).mul_(0.5) for q, k in self.couplings_of(of, stretch).items()}

    def matrix(
        self, copies: GhostExchange | PeriodicGhosts | None = None
    ) -> tuple[scipy.sparse.csc_array, torch.Tensor]:
        """Return the operator as a sparse matrix in float64, and the places of its rows in ``(C M)``.

        Parameters
        ----------
        copies
            Which nodes are, on a rank that has all; by default none.
        """
        nodes = self.nodes
        inverse = torch.zeros_like(self.inverse)
        ours = [nodes.by_class(of, nodes.box) for of in (inverse, self.inverse)]
        for kept, values in zip(*ours, strict=True):  # slots without nodes hold anything
            kept.copy_(values)
        if copies is not None:
            copies.clear(inverse)
        places = torch.nonzero(inverse.ravel()).ravel()
        rows = torch.arange(len(places), device=places.device)
        row = rows.new_full((inverse.numel(),), -1)
        row[places] = rows
        row = row.view(inverse.shape)
        own_row = row.clone()
        if copies is not None:
            copies.refresh(row)
        reach = nodes.distance([1] * nodes.axes)
        every = slice(reach, nodes.size - reach)
        diagonal = self.excess.view(-1)[places].double()
        entries = []
        for of in nodes.classes:
            own = own_row[nodes.number[of], every]
            for _, coupling, beside, there in self.row(of, every):
                other = row[beside, there]
                both = (own >= 0) & (other >= 0)
                k = coupling[both].double()
                entries.append((own[both], other[both], -k))
                diagonal.index_add_(0, own[both], k)
        entries.append((rows, rows, diagonal))
        of_rows, of_columns, numbers = (
            torch.cat(parts).cpu().numpy() for parts in zip(*entries, strict=True)
        )
        shape = len(places), len(places)
        return scipy.sparse.csc_array((numbers, (of_rows, of_columns)), shape=shape), places


def shifted(values: torch.Tensor, stretch: slice, distance: int) -> torch.Tensor:
    """Return a view of the flat values so many slots after those of a stretch."""
    return values[stretch.start + distance : stretch.stop + distance]


class Coupled(ABC):
    """Nodes with couplings and an excess, of which aggregates are made.

    Attributes
    ----------
    blocks, nodes
        How the nodes lie over the ranks, and those of this rank.
    couplings
        By direction, ``(C, M)``, divided by `scale`; see `LevelOperator`.
    ones
        One at the nodes of the box with an unknown, zero elsewhere, copies included.
    scale
        By which an excess is to be divided.
    side, squares
        Nodes of the smallest squares that parts of conductors are looked for in, along an axis, and how many of these there
        are at most, by axes.
    widest
        Nodes of squares along an axis, by axes, from which on there are as many as a large grid has.
    """

    blocks: LevelBox
    couplings: Mapping[Step, torch.Tensor]
    ones: np.ndarray
    scale: float
    side: ClassVar[int]
    squares: ClassVar[Mapping[int, int]]
    widest: ClassVar[Mapping[int, int]]

    def __init__(self, blocks: LevelBox):
        self.blocks, self.nodes = blocks, blocks.nodes
        self.copies = blocks.exchange(self.nodes.room(torch.float64))

    @abstractmethod
    def sums_of_excess(self, labels: torch.Tensor, count: int) -> np.ndarray:
        """Return the sums of the excess by labels, from 0 on, of a vector of int32; below 0 none counts."""

    def vector(self, values: np.ndarray | None = None) -> torch.Tensor:
        """Return a vector of values at the nodes of the box, in float64; zeros by default."""
        new = self.nodes.new(torch.float64)
        return new if values is None else self.nodes.take(torch.from_numpy(values), new)

    def values(self, vector: torch.Tensor) -> np.ndarray:
        """Return a vector's values at the nodes of the box."""
        box = [high - low + 1 for low, high in zip(self.nodes.first, self.nodes.last, strict=True)]
        return self.nodes.give(vector, vector.new_empty(box)).cpu().numpy()


class CoupledLevel(Coupled):
    """A level of a cycle, whose excess is there."""

    scale = 1.0
    side = 4
    # In space, at 128 x 128 x 128, spheres, wires and plates take 18, 19 and 15 iterations by 2**12, 20, 22 and 17 by 2**11,
    # whose factors are a fifth, and 22, 25 and 18 by 2**9.
    squares: ClassVar = {1: 2**14, 2: 2**13, 3: 2**11}
    widest: ClassVar = {2: 12}

    def __init__(self, level: LevelOperator, blocks: LevelBox):
        super().__init__(blocks)
        self.couplings = level.couplings
        self.ones = (self.values(level.inverse) > 0).astype(np.int8)
        self._excess = level.excess

    def sums_of_excess(self, labels: torch.Tensor, count: int) -> np.ndarray:
        """Return the sums of the excess by labels."""
        places = labels.view(-1).clamp(min=-1).cpu().numpy() + 1
        return np.bincount(places, self._excess.view(-1).cpu().numpy(), 1 + count)[1:]
