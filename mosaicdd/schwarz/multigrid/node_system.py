"""The equations of a medium on the finest level, in float64 and in differences."""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import at
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.parities import Step, opposite

_FEW = 0.1  # share of nodes with an excess below which only these are kept


class NodeSystem:
    """``A u = b`` at the nodes of a box that have unknowns; the values beside it are given.

    Vectors are ``(C, M)``, see `Parities`, and zero where no node is.

    Parameters
    ----------
    blocks
        How the nodes that have an unknown lie over the ranks, by global indices.
    conductances
        Between the nodes of a part of the grid, without a velocity: those of this rank, copies included, and
        those beside them. The conductance from one to a node that has no unknown is an excess of its diagonal, as
        the reaction is.
    start
        The global indices of the part's first nodes.

    Attributes
    ----------
    held
        Whether there is an excess anywhere.
    scale
        The largest conductance or excess anywhere.

    Raises
    ------
    ValueError
        If the operator is not symmetric, or couples nodes that are no neighbours along an axis.
    """

    def __init__(self, blocks: Blocks, conductances: Conductances, start: Sequence[int]):
        if not conductances.symmetric or conductances.across is not None:
            raise ValueError(
                "the operator has a velocity or couples nodes across cells; multigrid needs "
                "conductances along the axes that are the same from both ends"
            )
        self.blocks, self.nodes = blocks, blocks.nodes
        unknown = tuple(
            slice(first - s, last + 1 - s)
            for (first, last), s in zip(self.nodes.box, start, strict=True)
        )
        axes = self.nodes.axes
        excess = np.array(np.asarray(conductances.reaction)[unknown], float)
        self.couplings: dict[Step, torch.Tensor] = {}
        for axis in range(axes):
            k = np.asarray(conductances.along[axis])
            nodes_along, inside = unknown[axis], [*unknown]
            if nodes_along.start > 0:
                inside[axis] = slice(nodes_along.start - 1, nodes_along.start)
                excess[at(axis, axes, slice(0, 1))] += k[tuple(inside)]
            if nodes_along.stop - 1 < k.shape[axis]:
                inside[axis] = slice(nodes_along.stop - 1, nodes_along.stop)
                excess[at(axis, axes, slice(-1, None))] += k[tuple(inside)]
            inside[axis] = slice(nodes_along.start, nodes_along.stop - 1)
            padded = np.zeros_like(excess)
            padded[at(axis, axes, slice(0, -1))] = k[tuple(inside)]
            step = tuple(int(axis == other) for other in range(axes))
            self.couplings[step] = self.vector(padded)
        self._excess = self.vector(excess)
        self.copies = blocks.exchange(self._excess)
        owned = self._excess.clone()
        if self.copies is not None:
            self.copies.clear(owned)
        self.held = blocks.ranks.any(bool(owned.any()))
        largest = max(float(k.max()) for k in (*self.couplings.values(), owned))
        self.scale = blocks.ranks.largest(largest)
        self._keep_excess()

    def vector(self, values: np.ndarray | None = None) -> torch.Tensor:
        """Return a vector of values at the nodes of the box; zeros by default."""
        new = self.nodes.new(torch.float64)
        return new if values is None else self.nodes.take(torch.from_numpy(values), new)

    def values(self, vector: torch.Tensor) -> np.ndarray:
        """Return a vector's values at the nodes of the box."""
        box = [high - low + 1 for low, high in zip(self.nodes.first, self.nodes.last, strict=True)]
        return self.nodes.give(vector, torch.empty(box, dtype=torch.float64)).numpy()

    def level(self) -> LevelOperator:
        """Return them in float32, divided by `scale`, for a preconditioner."""
        excess = self.nodes.new()
        if self._few:
            excess.view(-1)[self._places] = (self._amounts / self.scale).float()
        else:
            torch.mul(self._excess, 1 / self.scale, out=excess)
        couplings = {step: (k / self.scale).float() for step, k in self.couplings.items()}
        return LevelOperator(self.nodes, couplings, excess)

    def add_excess(self, p: torch.Tensor, q: torch.Tensor) -> None:
        """Add the excess times values ``p`` to ``q``."""
        if self._few:
            q.view(-1)[self._places] += self._amounts * p.view(-1)[self._places]
        else:
            q.addcmul_(self._excess, p)

    def _keep_excess(self) -> None:
        places = torch.nonzero(self._excess.view(-1)).ravel()
        self._few = len(places) <= _FEW * self.nodes.count
        if self._few:
            self._places, self._amounts = places, self._excess.view(-1)[places]
            self._excess = self._excess.new_empty(0)


class Product:
    """Computes ``q = A p`` of two vectors, stretch by stretch; planned once.

    Attributes
    ----------
    stretches
        Of slots.
    """

    def __init__(self, equations: NodeSystem, p: torch.Tensor, q: torch.Tensor):
        self._equations, self._p, self._q = equations, p, q
        self.stretches = equations.nodes.stretches(p.element_size())
        longest = max(s.stop - s.start for s in self.stretches)
        self._room = p.new_empty(longest)
        self._rows = [self._of_stretch(s) for s in self.stretches]

    def _of_stretch(self, stretch: slice) -> list[tuple[torch.Tensor, ...]]:
        """Return views for the sums of a stretch: ``(q, p, room, k, beside, k, beside, ..)`` of each class."""
        equations, nodes = self._equations, self._equations.nodes
        rows = []
        for of in nodes.classes:
            number, room = nodes.number[of], self._room[: stretch.stop - stretch.start]
            row = [self._q[number, stretch], self._p[number, stretch], room]
            for forth, coupling in equations.couplings.items():
                for step in (forth, opposite(forth)):
                    there, distance = nodes.neighbour(of, step)
                    k = coupling[number, stretch]
                    if step != forth:
                        k = shifted(coupling[nodes.number[there]], stretch, distance)
                    row += [k, shifted(self._p[nodes.number[there]], stretch, distance)]
            rows.append(tuple(row))
        return rows

    def of_stretch(self, number: int) -> None:
        """Compute it in a stretch, but for the excess where few nodes have one: see `finish`."""
        for q, p, difference, k, beside, *pairs in self._rows[number]:
            torch.sub(p, beside, out=difference)
            torch.mul(k, difference, out=q)
            for k, beside in zip(pairs[::2], pairs[1::2], strict=True):
                torch.sub(p, beside, out=difference)
                q.addcmul_(k, difference)

    def finish(self) -> None:
        """Add the excess times the values."""
        self._equations.add_excess(self._p, self._q)

    def __call__(self) -> None:
        """Compute all of it."""
        for number in range(len(self.stretches)):
            self.of_stretch(number)
        self.finish()
