"""Values at a rank's nodes and at those around them, as equations between nodes need them.

A rank *owns* a part of the grid's nodes. Of a *wide* array it holds those around its region, too, as far as
the derivative of an equation there depends on them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, pair
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.fields import overlap
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
        shards = [one for one in layout.placements if isinstance(one, Shard)]
        placements = tuple(Halo(one.axis, halo, one.sizes) for one in shards)
        around = Layout(layout.shape, layout.mesh, placements)
        self._widen = Redistribution(layout, around, ranks, np.float64)
        self.wide = pair(
            slice(max(p.start - halo, 0), min(p.stop + halo, nodes))
            for p, nodes in zip(self.own, grid.nodes, strict=True)
        )
        # What the region has of the nodes held, there and in itself; in margins it lies beyond the grid.
        self._nodes = pair(n + 1 for n in block.cells)
        region = pair(slice(a, a + n) for a, n in zip(block.origin, self._nodes, strict=True))
        there, self._inside = overlap(region, grid.nodes)
        self._region = within(there, self.wide)

    def owned(self, u: np.ndarray) -> np.ndarray:
        """Return a view of the nodes of a wide array that this rank owns."""
        return u[within(self.own, self.wide)]

    def widened(self, owned: np.ndarray | torch.Tensor) -> np.ndarray:
        """Return the wide array of values that the ranks own."""
        values = owned.cpu().numpy() if isinstance(owned, torch.Tensor) else owned
        return self._widen(np.ascontiguousarray(values, dtype=np.float64))

    def zeros(self, boundary: Boundary | None = None) -> np.ndarray:
        """Return zeros, with boundary data on the edge of the domain."""
        u = np.zeros([p.stop - p.start for p in self.wide])
        return u if boundary is None else self.imposed(boundary, u)

    def imposed(self, boundary: Boundary, u: np.ndarray) -> np.ndarray:
        """Write boundary data to the edge of the domain."""
        for name, along, there in self._edges():
            u[there] = getattr(boundary, name)[along]
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
        u = self.zeros()
        u[self._region] = (along + across - corners)[self._inside]
        return self.widened(self.owned(u))

    def lines(self, fields: Sequence[np.ndarray], tensors: Tensors) -> Interface:
        """Return the values of wide arrays on the lattice lines of the region."""
        v = Interface(self.block, problems=len(fields), **tensors)
        s = self.block.lattice.spacing
        values = np.zeros((len(fields), *self._nodes))
        for one, u in zip(values, fields, strict=True):
            one[self._inside] = u[self._region]
        nodes = torch.from_numpy(values)
        v.lines[0].copy_(nodes[:, ::s])
        v.lines[1].copy_(nodes[:, :, ::s].mT)
        return v

    def strips(self, fields: Sequence[np.ndarray], tensors: Tensors) -> Iterator[Strip]:
        """Yield the owned nodes of wide arrays, as one strip."""
        owned = np.stack([self.owned(u) for u in fields])
        whole = pair(slice(0, p.stop - p.start) for p in self.own)
        yield Strip(torch.from_numpy(owned).to(**tensors), whole, self.own)

    def _edges(self) -> Iterator[tuple[str, slice, Any]]:
        """Yield the edges of the domain that are here, the nodes along them, and where these are."""
        (rows, columns), nodes = self.wide, self.block.lattice.grid.nodes
        if rows.start == 0:
            yield "bottom", columns, (0, slice(None))
        if rows.stop == nodes[0]:
            yield "top", columns, (-1, slice(None))
        if columns.start == 0:
            yield "left", rows, (slice(None), 0)
        if columns.stop == nodes[1]:
            yield "right", rows, (slice(None), -1)


def within(part: Slices, whole: Slices) -> Slices:
    """Return where a part of the grid lies in an array of another that holds it."""
    return pair(
        slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, whole, strict=True)
    )


def _between(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Interpolate linearly between values along the last axis; ``t`` holds places between two."""
    inside = values[..., :-1, None] * (1 - t) + values[..., 1:, None] * t
    return np.concatenate([inside.reshape(*values.shape[:-1], -1), values[..., -1:]], axis=-1)
