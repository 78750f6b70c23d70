"""What a rank has of a field: the nodes that it owns, with as many around them as a solve asks for.

A field that changes from solve to solve, as in time, stays on the ranks: each makes its part of the next
source from its part of the last solution, and only the nodes around it come from other ranks.
"""

import itertools
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.fields import LocalPart
from mosaicdd.schwarz.fill import FILL_HALO
from mosaicdd.schwarz.layouts import Overlapping, block_of, field_layout
from mosaicdd.tensors import Tensors


class FieldShare:
    """A rank's share of the fields of a lattice.

    Attributes
    ----------
    own, wide
        Nodes of the grid: those that this rank owns, and those whose values it holds.
    block
        Of this rank.
    ranks
        All of them.
    """

    def __init__(self, ranks: Ranks, lattice: Lattice):
        self.ranks = ranks
        self.grid = lattice.grid
        self.block = block_of(ranks, lattice, ranks.rank)
        self.own: Slices = self.block.owned_nodes()[1]
        layout = field_layout(ranks, lattice)
        shards = [one for one in layout.placements if isinstance(one, Shard)]
        held = [_held(lattice, one) for one in shards]
        self.wide: Slices = tuple(
            slice(*one.held[c]) for one, c in zip(held, ranks.coords, strict=True)
        )
        wide = Layout(layout.shape, layout.mesh, tuple(held))
        self._move = Redistribution(layout, wide, ranks, np.float64)

    def widen(self, own: np.ndarray) -> np.ndarray:
        """Return values at the nodes held, from those owned; all ranks together."""
        if self.own == self.wide:
            return own
        return self._move(np.ascontiguousarray(own, np.float64))

    def owned(self, wide: np.ndarray) -> np.ndarray:
        """Return the owned nodes of values at those held, a view."""
        return wide[within(self.own, self.wide)]

    def as_field(self, wide: np.ndarray) -> LocalPart:
        """Return values at the nodes held as a field for a `Problem`."""
        return LocalPart(self.grid, wide, self.wide)

    def start(self, wide: np.ndarray) -> "FieldStart":
        """Return values at the nodes held as something that a solve begins with."""
        return FieldStart(self, wide)

    def mean_square(self, own: np.ndarray) -> float:
        """Return the mean square of values over the nodes of all ranks."""
        flat = own.reshape(-1) if own.flags.c_contiguous else own.ravel()
        total, count = self.ranks.sum(np.array([np.dot(flat, flat), own.size]))
        return float(total / count)


class FieldStart:
    """Values at the nodes held, from which a solve of one problem begins; as a `Solution` is used."""

    problems = 1

    def __init__(self, share: FieldShare, wide: np.ndarray):
        self._share = share
        self._wide = wide

    def require_start(self, members: Sequence[int], block: Block) -> None:
        """Check that a solve of a problem can begin here.

        Raises
        ------
        ValueError
            If it lies otherwise over the ranks.
        """
        if self._share.block != block or list(members) != [0]:
            raise ValueError("start lies otherwise over the ranks; use the same ranks and dims")

    def start(self, members: Sequence[int], **tensors: Unpack[Tensors]) -> Interface:
        """Return the values on the lattice lines of the rank's region."""
        block = self._share.block
        region, nodes = block.nodes, self._share.grid.nodes
        if any(p.start < 0 or p.stop > n for p, n in zip(region, nodes, strict=True)):
            values = np.zeros(
                [p.stop - p.start for p in region]
            )  # beyond the grid there is nothing
            inside = tuple(
                slice(max(p.start, 0), min(p.stop, n)) for p, n in zip(region, nodes, strict=True)
            )
            values[within(inside, region)] = self._wide[within(inside, self._share.wide)]
            for axis, more in enumerate(block.lattice.periodic):
                if more:
                    self._come_round(np.moveaxis(values, axis, 0), region[axis].start, axis)
        else:
            values = self._wide[within(region, self._share.wide)]
        v = Interface(block, problems=1, **tensors)
        v.take(torch.from_numpy(values[None]))
        return v

    def _come_round(self, values: np.ndarray, first: int, axis: int) -> None:
        """Go on linearly from the last node but one of a periodic axis to the next round."""
        lattice = self._share.block.lattice
        cells, more = lattice.grid.shape[axis], lattice.margins[axis][1]
        last = cells - 1 - first
        if last + 1 >= len(values):
            return
        low, high = values[last].copy(), values[last + 1].copy()
        for k in range(1, more + 2):
            values[last + k] = low + (high - low) * k / (more + 1)

    def start_fields(self, members: Sequence[int]) -> torch.Tensor:
        """Return the owned nodes, ``(1, rows, columns)``."""
        return torch.from_numpy(np.ascontiguousarray(self._share.owned(self._wide)))[None]


def _held(lattice: Lattice, owned: Shard) -> Overlapping:
    """Return what ranks along an axis hold: their nodes with those around.

    Along a periodic axis those at its ends hold all, as what is around them is at the other end.
    """
    axis, halo = owned.axis, FILL_HALO * lattice.spacing
    nodes = lattice.grid.nodes[axis]
    ends = itertools.accumulate(owned.sizes or (), initial=0)
    bounds = tuple(itertools.pairwise(ends))
    held = [(max(a - halo, 0), min(b + halo, nodes)) for a, b in bounds]
    if lattice.periodic[axis]:
        held = [
            (0, nodes) if a <= halo or b + halo >= nodes else part
            for part, (a, b) in zip(held, bounds, strict=True)
        ]
    return Overlapping(axis, bounds, tuple(held))
