"""Values at a rank's nodes and at those around them, as equations between nodes need them.

A rank *owns* a part of the grid's nodes. Of a *wide* array it holds those around its region, too, as far as
the derivative of an equation there depends on them. Along a periodic axis it goes on beyond the grid.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.stretched import stretch_of
from mosaicdd.problems.fields.fields import overlap
from mosaicdd.problems.shapes.outline import Side
from mosaicdd.problems.sides.boundary import Boundary, Place, on_side
from mosaicdd.schwarz.fill import Strip
from mosaicdd.tensors import Tensors


class WideField:
    """Where the values of a field are, and how they get there.

    Parameters
    ----------
    block
        This rank's part of the lattice.
    layout
        How the owned parts lie over the ranks.

    Attributes
    ----------
    own, wide
        The nodes of the grid that this rank owns, and those it holds.
    """

    def __init__(self, ranks: Ranks, block: Block, layout: Layout):
        grid = block.lattice.grid
        self.block = block
        self.own = block.owned_nodes()[1]
        halo = block.lattice.spacing + 2  # a region, and what its conductances and diagonal need
        lattice = block.lattice
        unknowns = block.owned_unknowns()[1]
        self._unknowns = within(unknowns, self.own)
        # The last node along a periodic axis, a copy of the first, has that one's values.
        widths = tuple(halo + around for around in lattice.periodic)
        self._widen = _widening(ranks, lattice, layout, widths)
        self.wide = tuple(
            slice(p.start - width, p.stop + width)
            if around
            else slice(max(p.start - width, 0), min(p.stop + width, nodes))
            for p, width, nodes, around in zip(
                unknowns, widths, grid.nodes, lattice.periodic, strict=True
            )
        )
        # What the region has of the nodes held, there and in itself; in margins it lies beyond the grid.
        self._nodes = tuple(n + 1 for n in block.cells)
        region = tuple(slice(a, a + n) for a, n in zip(block.origin, self._nodes, strict=True))
        clipped = zip(overlap(region, grid.nodes)[0], region, lattice.periodic, strict=True)
        there = tuple(p if around else inside for inside, p, around in clipped)
        self._inside = within(there, region)
        self._stretch = stretch_of(there, lattice.rounds, lattice.periods)
        held = there if self._stretch is None else self._stretch.part
        self._region = within(held, self.wide)

    def owned(self, u: np.ndarray) -> np.ndarray:
        """Return a view of the nodes of a wide array that this rank owns."""
        return u[within(self.own, self.wide)]

    def widened(self, owned: np.ndarray | torch.Tensor) -> np.ndarray:
        """Return the wide array of values that the ranks own."""
        values = owned.cpu().numpy() if isinstance(owned, torch.Tensor) else owned
        return self._widen(np.ascontiguousarray(values[self._unknowns], dtype=np.float64))

    def zeros(self, boundary: Boundary | None = None) -> np.ndarray:
        """Return zeros, with boundary data on the edge of the domain."""
        u = np.zeros([p.stop - p.start for p in self.wide])
        return u if boundary is None else self.imposed(boundary, u)

    def imposed(self, boundary: Boundary, u: np.ndarray) -> np.ndarray:
        """Write boundary data to the edge of the domain."""
        for side, along, there in self._edges():
            u[there] = boundary.edges[side][along]
        return u

    def clear_edges(self, u: np.ndarray) -> None:
        """Write zeros to the edge of the domain."""
        for _, _, there in self._edges():
            u[there] = 0.0

    def between_lines(self, v: Interface) -> np.ndarray:
        """Return smooth surfaces between the lattice lines, with their values on these (Coons, 1967)."""
        s = self.block.lattice.spacing
        rows, columns = (lines[0].double().cpu().numpy() for lines in v.lines)
        t = np.arange(s) / s
        along = _between(rows.T, t).T  # everywhere, from the lines constant in y
        across = _between(columns.T, t)
        corners = _between(_between(rows[:, ::s], t).T, t).T
        u, values = self.zeros(), (along + across - corners)[self._inside]
        if self._stretch is None:
            u[self._region] = values
        else:
            rows, columns = self._stretch.there
            u[within(self._stretch.nodes, self.wide)] = values[rows][:, columns]
        return self.widened(self.owned(u))

    def lines(self, fields: Sequence[np.ndarray], tensors: Tensors) -> Interface:
        """Return the values of wide arrays on the lattice lines of the region."""
        v = Interface(self.block, problems=len(fields), **tensors)
        values = np.zeros((len(fields), *self._nodes))
        for one, u in zip(values, fields, strict=True):
            held = u[self._region]
            one[self._inside] = held if self._stretch is None else self._stretch.interpolated(held)
        v.take(torch.from_numpy(values))
        return v

    def strips(self, fields: Sequence[np.ndarray], tensors: Tensors) -> Iterator[Strip]:
        """Yield the owned nodes of wide arrays, as one strip."""
        owned = np.stack([self.owned(u) for u in fields])
        whole = tuple(slice(0, p.stop - p.start) for p in self.own)
        yield Strip(torch.from_numpy(owned).to(**tensors), whole, self.own)

    def _edges(self) -> Iterator[tuple[Side, Slices, Place]]:
        """Yield the edges of the domain that are here, the nodes along them, and where these are."""
        for axis, (part, nodes) in enumerate(
            zip(self.wide, self.block.lattice.grid.nodes, strict=True)
        ):
            along = (*self.wide[:axis], *self.wide[axis + 1 :])
            for end, here in enumerate((part.start == 0, part.stop == nodes)):
                if here:
                    yield (axis, end), along, on_side((axis, end))


def _widening(
    ranks: Ranks, lattice: Lattice, layout: Layout, widths: tuple[int, ...]
) -> Redistribution:
    """Plan the way of values, without copies, from the ranks that own them to those that hold them.

    Parameters
    ----------
    layout
        Of the field.
    widths
        How many nodes more are held on each side, per axis.
    """
    shape = tuple(n - around for n, around in zip(layout.shape, lattice.periodic, strict=True))
    owned, held = [], []
    for one, period in zip(layout.placements, lattice.rounds, strict=True):
        if not isinstance(one, Shard) or one.sizes is None:
            raise TypeError("fields lie in shards of known sizes")
        sizes = (*one.sizes[:-1], one.sizes[-1] - (period is not None))
        owned.append(Shard(one.axis, sizes))
        held.append(Halo(one.axis, widths[one.axis], sizes, period))
    before, after = (Layout(shape, layout.mesh, tuple(one)) for one in (owned, held))
    return Redistribution(before, after, ranks, np.float64)


def _between(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Interpolate linearly between values along the last axis; ``t`` holds places between two."""
    inside = values[..., :-1, None] * (1 - t) + values[..., 1:, None] * t
    return np.concatenate([inside.reshape(*values.shape[:-1], -1), values[..., -1:]], axis=-1)
