"""The equations of a medium on the finest level, in float64 and in differences."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from mosaicdd.axes import Slices, common, frame, moved, within
from mosaicdd.discretisation.node_equations import RowWeights
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.solvers.multigrid.colour_layout import Class, Step, opposite
from mosaicdd.solvers.multigrid.level_operator import Coupled, LevelOperator, shifted
from mosaicdd.solvers.multigrid.level_partition import LevelBox
from mosaicdd.solvers.multigrid.vector_operations import Residual, dot, planned

_FEW = 0.1  # share of nodes with an excess below which only these are kept
# Of `scale` and `least`, above which float32 is too short for levels and directions: of conductors of 1e9 it makes 200 iterations
# of 12.
CONTRAST = 1e8
_LONG = 2**18  # numbers of a stretch where few are read more than once


class NodeEquations(Coupled):
    """``A u = b`` at the nodes of a box that have unknowns; the values beside it are given.

    Vectors are ``(C, M)``, see `ColourLayout`, and zero where no node is.

    Parameters
    ----------
    blocks
        How the nodes that have an unknown lie over the ranks, by global indices.
    conductances
        Between the nodes of a part of the grid, without a velocity also across cells: those of this rank, copies included, and
        those beside them. The conductance from one to a node that has no unknown is an excess of its diagonal, as
        the reaction is. What is along axes in float32 is kept as it is where `scale` is 1.
    start
        The global indices of the part's first nodes.
    active
        Which nodes of the part have an unknown; by default all. The others are decoupled, and stay zero.
    weights
        What rows of the part count in norms of residuals; by default 1.
    contrast
        Of `scale` and `least`, above which levels and directions are float64.

    Attributes
    ----------
    directed
        Whether a velocity makes the conductances of an edge differ in the equations of its nodes.
    strongest, scale
        The largest conductance between unknowns anywhere, and the largest of these and of the excess.
    least
        The least number on the diagonal of an unknown.
    dtype
        Of levels and directions.
    unknowns
        Of all ranks.
    few
        Whether few nodes have an excess, which is kept and computed with for these alone.
    ones
        One at the nodes of the box with an unknown, zero elsewhere, copies included.
    light
        Where in a flat vector rows are that count less in norms of residuals, and what they count; None if none is.
    place
        Of the nodes of the box, copies included, in the part.

    Raises
    ------
    ValueError
        If no node has an unknown.
    """

    side = 8
    # So that every rank can solve for them. SPE10's layers at 2048 x 2048 take 54 iterations by 2**12, 40 by 2**14 and 35 by
    # 2**16, whose factors are four times as large; in space those of 2**15 cost more than they save. At 4096 x 4096 they take
    # more than 100 by 2**14, wider there, and 47 by 2**16.
    squares: ClassVar = {1: 2**14, 2: 2**14, 3: 2**12}
    widest: ClassVar = {2: 16}

    def __init__(
        self,
        blocks: LevelBox,
        conductances: Conductances,
        start: Sequence[int],
        active: np.ndarray | None = None,
        weights: RowWeights | None = None,
        contrast: float = CONTRAST,
    ):
        super().__init__(blocks)
        self.directed = not conductances.symmetric
        self.place = unknown = tuple(
            slice(first - s, last + 1 - s)
            for (first, last), s in zip(self.nodes.box, start, strict=True)
        )
        excess = np.array(conductances.reaction[unknown], float)
        self.ones = np.ones(excess.shape, np.int8)
        if active is not None:
            self.ones[...] = active[unknown]
            excess *= self.ones
        couplings: dict[Step, torch.Tensor] = {}
        self.couplings = couplings
        for step, first, k in _edges(conductances):
            second = moved(first, step)
            both = common(common(unknown, first), moved(unknown, opposite(step)))
            ends = zip(both, start, strict=True)
            values = torch.from_numpy(k[within(both, first)])
            couplings[step] = self.nodes.take(
                values, self.nodes.new(values.dtype), [part.start + s for part, s in ends]
            )
            # What is left leads to nodes with given values; of the second nodes another entry tells it where they differ.
            ends_of = [(first, both), (second, moved(both, step))][: 1 if self.directed else 2]
            for nodes, inner in ends_of:
                for part in frame(common(unknown, nodes), inner):
                    excess[within(part, unknown)] += k[within(part, nodes)]
        self._excess = self.vector(excess)
        del excess
        owned = self._excess
        if self.copies is not None:
            owned = owned.clone()
            self.copies.clear(owned)
        self.light: tuple[torch.Tensor, torch.Tensor] | None = None
        if weights is not None and len(weights.nodes):
            self.light = self._of_rows(weights, conductances.reaction.shape)
        counted = self.nodes.take(torch.from_numpy(self.ones), self.nodes.new(torch.int8))
        if self.copies is not None:
            self.copies.clear(counted)
        self.unknowns = int(blocks.ranks.sum(np.array([float(counted.sum())]))[0])
        if not self.unknowns:
            raise ValueError(
                "the values of all nodes are given, or there are none inside the domain; take "
                "2 cells or more per axis"
            )
        self.strongest = blocks.ranks.largest(max(float(k.max()) for k in couplings.values()))
        self.scale = max(self.strongest, blocks.ranks.largest(float(owned.max())))
        self.least = 1 / blocks.ranks.largest(self._largest_inverse(counted))
        self.dtype = torch.float64 if self.scale > contrast * self.least else torch.float32
        self._finer: dict[Step, torch.Tensor] = {}
        del owned
        for step in list(couplings):
            couplings[step] = self._divided(step, couplings[step])
        self._keep_excess()

    def _divided(self, step: Step, k: torch.Tensor) -> torch.Tensor:
        """Return couplings divided by `scale` in `dtype`; what that leaves of them to float64 is kept beside these.

        Both parts together have 48 bits and more, and take as much memory as float64.
        """
        if self.scale == 1 and k.dtype == self.dtype:
            return k
        if self.dtype == torch.float64:
            return k.double().div_(self.scale)
        main, finer = (torch.empty_like(k, dtype=self.dtype) for _ in range(2))
        for of_class, part, rest in zip(k, main, finer, strict=True):
            exact = of_class.double() / self.scale
            part.copy_(exact)
            # What float32 has no number for is no zero: `require_levels` has to see that it joins what it does.
            part.masked_fill_((exact > 0) & (part == 0), torch.finfo(self.dtype).tiny)
            rest.copy_(exact.sub_(part))
        if finer.any():
            self._finer[step] = finer
        return main

    def excess(self) -> torch.Tensor:
        """Return the excess of the diagonal, a vector; not to be changed."""
        if not self.few:
            return self._excess
        vector = self.vector()
        vector.view(-1)[self._places] = self._amounts
        return vector

    def sums_of_excess(self, labels: torch.Tensor, count: int) -> np.ndarray:
        """Return the sums of the excess by labels, from 0 on, of a vector of int32; below 0 none counts."""
        if self.few:
            parts = [(labels.view(-1)[self._places], self._amounts)]
        else:
            every = itertools.product(range(len(labels)), self.nodes.stretches())
            parts = [(labels[number, s], self._excess[number, s]) for number, s in every]
        total = np.zeros(1 + count)
        for names, amounts in parts:
            places = names.clamp(min=-1).cpu().numpy() + 1
            total += np.bincount(places, amounts.cpu().numpy(), len(total))
        return total[1:]

    def _largest_inverse(self, owned: torch.Tensor) -> float:
        """Return the largest of one over the diagonals, of the unknowns that this rank owns."""
        largest = 0.0
        for number, of in enumerate(self.nodes.classes):
            for s in self.nodes.stretches():
                diagonal = self._excess[number, s].clone()
                for step, where, _, _ in self._around(of, s):
                    diagonal += self.couplings[step][where]
                inverse = diagonal.reciprocal_().masked_fill_(owned[number, s] == 0, 0.0)
                largest = max(largest, float(inverse.max()))
        return largest

    def _of_rows(
        self, weights: RowWeights, shape: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places in a flat vector of rows with a weight below 1, and the weights."""
        nodes = [
            n - part.start + low
            for n, part, low in zip(
                np.unravel_index(weights.nodes, shape), self.place, self.nodes.first, strict=True
            )
        ]
        ends = zip(nodes, self.nodes.box, strict=True)
        inside = np.logical_and.reduce([(n >= low) & (n <= high) for n, (low, high) in ends])
        places = self.nodes.places([n[inside] for n in nodes])
        return places, torch.from_numpy(weights.weights[inside]).to(places.device)

    def square(self, vector: torch.Tensor) -> float:
        """Return the square of a vector over the nodes that this rank owns."""
        if self.copies is None:
            return dot(vector, vector)
        owned = self.nodes.by_class(vector, self.blocks.owned)
        norms = [torch.linalg.vector_norm(of_class) for of_class in owned]
        return sum(norm**2 for norm in torch.stack(norms).tolist())

    def size_here(self, vector: torch.Tensor) -> float:
        """Return the root mean square over the nodes of this rank."""
        return math.sqrt(self.square(vector) / max(self.nodes.count, 1))

    def rms(self, vector: torch.Tensor) -> float:
        """Return the root mean square over the unknowns of all ranks."""
        (total,) = self.blocks.ranks.sum(np.array([self.square(vector)]))
        return math.sqrt(total / max(self.unknowns, 1))

    def level(self) -> LevelOperator:
        """Return the operator in `dtype`, divided by `scale`, for a preconditioner."""
        excess = self.nodes.new(self.dtype)
        if self.few:
            excess.view(-1)[self._places] = (self._amounts / self.scale).to(self.dtype)
        else:
            torch.mul(self._excess, 1 / self.scale, out=excess)
        return LevelOperator(self.nodes, self.couplings, excess)

    def residual(
        self, b: torch.Tensor, x: torch.Tensor, r: torch.Tensor
    ) -> Callable[[float], None]:
        """Plan ``r = (b - A x) / unit``, with ``r`` in float32, computed in differences in float64.

        Parameters
        ----------
        x
            With refreshed copies, whenever it is called.
        """
        stretches, numbers = self.nodes.stretches(_LONG), range(len(x))
        compute = planned([self._left(r, b, x, number, s) for s in stretches for number in numbers])
        flat, values = b.view(-1), x.view(-1)

        def of_all(unit: float) -> None:
            compute(1 / self.scale, self.scale / unit)

        def with_few(unit: float) -> None:
            # The right-hand side itself takes what few excesses make, for the moment.
            kept = flat[self._places]
            flat[self._places] = kept - self._amounts * values[self._places]
            of_all(unit)
            flat[self._places] = kept

        return with_few if self.few else of_all

    def _left(
        self, r: torch.Tensor, b: torch.Tensor, x: torch.Tensor, number: int, s: slice
    ) -> Residual:
        """Return the residual of a class in a stretch."""
        around = []
        for step, where, beside, distance in self._around(self.nodes.classes[number], s):
            finer = self._finer[step][where] if step in self._finer else None
            around.append((self.couplings[step][where], finer, shifted(x[beside], s, distance)))
        excess = None if self.few else self._excess[number, s]
        return Residual(r[number, s], b[number, s], x[number, s], around, excess)

    def _around(self, of: Class, s: slice) -> Iterator[tuple[Step, tuple[int, slice], int, int]]:
        """Yield a class's couplings in all directions in a stretch: whose, and where in these; the neighbours' number and distance."""
        for forth in self.couplings:
            for step in (forth, opposite(forth))[: 1 if self.directed else 2]:
                there, distance = self.nodes.neighbours[of, step]
                beside = self.nodes.number[there]
                where = beside, slice(s.start + distance, s.stop + distance)
                own = self.nodes.number[of], s
                yield forth, own if step == forth else where, beside, distance

    def add_excess(self, p: torch.Tensor, q: torch.Tensor) -> float:
        """Add what few nodes have, divided by `scale`, times values ``p`` to ``q``; return what that adds to ``p q``."""
        if not self.few:
            return 0.0
        values = p.view(-1).index_select(0, self._places)
        more = (self._amounts / self.scale).to(values.dtype).mul_(values)
        q.view(-1).index_add_(0, self._places, more)
        return float(torch.dot(values, more))

    def _keep_excess(self) -> None:
        places = torch.nonzero(self._excess.view(-1)).ravel()
        self.few = len(places) <= _FEW * self.nodes.count
        if self.few:
            self._places, self._amounts = places, self._excess.view(-1)[places]
            self._excess = self._excess.new_empty(0)


def _edges(conductances: Conductances) -> Iterator[tuple[Step, Slices, np.ndarray]]:
    """Yield steps between coupled nodes, the first ones of these, and the couplings in their equations.

    Where those of the second nodes are others, another entry has these, with the step back.
    """
    for step, forth, back in conductances.edges():
        first = tuple(
            slice(int(s < 0), int(s < 0) + count)
            for s, count in zip(step, forth.shape, strict=True)
        )
        yield step, first, np.asarray(forth)
        if back is not forth:
            yield opposite(step), moved(first, step), np.asarray(back)
