"""Ghost nodes: a rank's own nodes of a field, with copies of its neighbours' around them."""

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.axes import Slices, within
from mosaicdd.grid.partition import Partition
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.safe_norms import is_safe, norm, squares_of
from mosaicdd.tensors import Tensors


class GhostNodes:
    """Exchanges the ghost nodes of fields; planned once.

    Parameters
    ----------
    width
        Ghost nodes on each side.
    beyond
        Whether ghost nodes go on beyond the grid along a periodic axis. Else the ranks at its ends hold all along it,
        with values of both sides, which differ where a source jumps.

    Attributes
    ----------
    owned, ghosted
        Nodes of the grid that this rank owns, without and with ghost nodes. Where these go on beyond the grid, the last
        node, a copy of the first, has that one's value.
    """

    def __init__(self, partition: Partition, width: int, *, beyond: bool = True):
        self.partition, self.grid, self.ranks = partition, partition.grid, partition.ranks
        self.owned: Slices = partition.owned
        around = tuple(wraps and beyond for wraps in partition.periodic)
        shape = tuple(n - wraps for n, wraps in zip(self.grid.nodes, around, strict=True))
        owned: list[Shard] = []
        held: list[Halo] = []
        for axis, (count, wraps) in enumerate(zip(shape, around, strict=True)):
            parts = (partition.unknowns_along if wraps else partition.along)[axis]
            sizes = tuple(part.stop - part.start for part in parts)
            # What is around the ranks at the ends of a periodic axis is at the other end.
            at_end = [p.start <= width or p.stop + width >= count for p in parts]
            ends = [partition.periodic[axis] and not beyond and end for end in at_end]
            widths = tuple((count,) * 2 if end else (width + wraps,) * 2 for end in ends)
            owned.append(Shard(axis, sizes))
            held.append(Halo(axis, widths, sizes, partition.rounds[axis] if wraps else None))
        before, after = (Layout(shape, self.ranks.dims, tuple(p)) for p in (owned, held))
        self.ghosted: Slices = after.place(self.ranks.rank)
        self._unknowns = within(before.place(self.ranks.rank), self.owned)
        self._move = Redistribution(before, after, self.ranks, np.float64)

    def with_ghosts(self, owned: np.ndarray) -> np.ndarray:
        """Return values at the ghosted nodes, from those owned; all ranks together.

        Where a rank has no ghost nodes, as a single one does, they are the values that were given.
        """
        if self.owned == self.ghosted and self.ranks.size == 1:
            return np.asarray(owned, np.float64)
        return self._move(np.ascontiguousarray(owned[self._unknowns], np.float64))

    def without_ghosts(self, ghosted: np.ndarray) -> np.ndarray:
        """Return a view of values at the owned nodes."""
        return self.at(self.owned, ghosted)

    def at(self, part: Slices, ghosted: np.ndarray) -> np.ndarray:
        """Return a view of values at some of the ghosted nodes."""
        return ghosted[within(part, self.ghosted)]

    def strip(self, fields: Sequence[np.ndarray], **tensors: Unpack[Tensors]) -> Strip:
        """Return the owned nodes of ghosted fields, as one strip."""
        owned = np.stack([self.without_ghosts(values) for values in fields])
        whole = tuple(slice(0, p.stop - p.start) for p in self.owned)
        return Strip(torch.from_numpy(owned).to(**tensors), whole, self.owned)

    def rms(self, owned: np.ndarray) -> float:
        """Return the root mean square of values over the nodes of all ranks."""
        flat = owned.reshape(-1) if owned.flags.c_contiguous else owned.ravel()
        total, count = self.ranks.sum(np.array([squares_of(flat), owned.size])).tolist()
        size = math.sqrt(total / count) if total >= 0 else math.nan
        return size if is_safe(size) else norm(self.ranks, flat, total) / math.sqrt(count)


class FieldStart:
    """Values at ghosted nodes, from which a solve of one problem begins; as a `Solution` is used."""

    problems = 1

    def __init__(self, ghosts: GhostNodes, values: np.ndarray):
        self.ghosts, self.values = ghosts, values

    def require_start(
        self, members: Sequence[int], partition: Partition, halo: int | None = None
    ) -> None:
        """Raise `ValueError` if a solve of a problem cannot begin here, as it lies otherwise over the ranks."""
        if self.ghosts.owned != partition.owned or list(members) != [0]:
            raise ValueError("start lies otherwise over the ranks; use the same ranks and dims")

    def start_fields(self, members: Sequence[int]) -> torch.Tensor:
        """Return the owned nodes, ``(1, rows, columns)``."""
        owned = self.ghosts.without_ghosts(self.values)
        return torch.from_numpy(np.ascontiguousarray(owned))[None]
