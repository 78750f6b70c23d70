"""How the interface and the field lie over the ranks, and how whole interfaces move between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Merge, Segment, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.layouts.root import rows_from_root, rows_to_root
from mosaicdd.parallel.ranks import Ranks


@dataclass(frozen=True)
class Overlapping:
    """Consecutive items of an axis for each coordinate, with copies of others' on both sides.

    Parameters
    ----------
    owned, held
        Start and stop of what each coordinate owns, and of what it holds. Along a periodic axis the last
        item stands for the first, too, and what is held may begin before it.
    """

    axis: int
    owned: tuple[tuple[int, int], ...]
    held: tuple[tuple[int, int], ...]

    merge: ClassVar[Merge] = Merge.OWNER

    def split(self, length: int, parts: int) -> Sequence[Sequence[Segment]]:
        """Return what each coordinate holds: copies, its own items, copies."""
        return [
            [
                *([Segment(length - 1 + low, length - 1, owned=False)] if low < 0 else []),
                Segment(max(low, 0), start, owned=False),
                Segment(start, stop),
                Segment(stop, high, owned=False),
            ]
            for (start, stop), (low, high) in zip(self.owned, self.held, strict=True)
        ]


def block_of(ranks: Ranks, lattice: Lattice, rank: int, halo: int = 1) -> Block:
    """Return the block of a rank."""
    start, stop = ranks.partition(lattice.subdomains, rank)
    first, last = (
        tuple(a + first for a, first in zip(end, lattice.first_centre, strict=True))
        for end in (start, stop)
    )
    return Block(lattice, first, last, halo)


def lines_layout(ranks: Ranks, lattice: Lattice, axis: int, *, halo: int) -> Layout:
    """Return the layout of the lines constant in an axis, ``(lines, nodes)``.

    Each block holds those of its region. Values on the edge of the domain are the outermost blocks'.
    """
    s, cells = lattice.spacing, lattice.cells
    placements = []
    for mesh_axis in (0, 1):
        count = cells[mesh_axis]
        owned, held = [], []
        for block in _blocks_along(ranks, lattice, mesh_axis, halo):
            start, stop = block.start[mesh_axis], block.stop[mesh_axis]
            low, high = block.first[mesh_axis], block.last[mesh_axis]
            first = lattice.first_centre[mesh_axis]
            bounds = (0 if start == first else start, count + 1 if stop == count else stop)
            if mesh_axis == axis:
                owned.append(bounds)
                held.append((low, high + 1))
            else:
                owned.append((bounds[0] * s, min(bounds[1] * s, count * s + 1)))
                held.append((low * s, high * s + 1))
        array_axis = 0 if mesh_axis == axis else 1
        placements.append(Overlapping(array_axis, tuple(owned), tuple(held)))
    return Layout(lattice.line_shape(axis), ranks.dims, tuple(placements))


def nodes_layout(ranks: Ranks, lattice: Lattice, *, halo: int) -> Layout:
    """Return the layout of the lattice nodes inside the domain, ``(K_y - 1, K_x - 1)``.

    Each block holds the nodes of its region.
    """
    placements = []
    for axis in (0, 1):
        blocks = _blocks_along(ranks, lattice, axis, halo)
        owned = [(b.start[axis] - 1, b.stop[axis] - 1) for b in blocks]
        count = lattice.subdomains[axis]
        held = [(max(b.first[axis], 1) - 1, min(b.last[axis], count)) for b in blocks]
        placements.append(Overlapping(axis, tuple(owned), tuple(held)))
    return Layout(lattice.subdomains, ranks.dims, tuple(placements))


def field_layout(ranks: Ranks, lattice: Lattice) -> Layout:
    """Return the layout of the field, ``(ny + 1, nx + 1)``: every node has one owner."""
    placements = []
    for axis in (0, 1):
        places = [b.owned_nodes()[1][axis] for b in _blocks_along(ranks, lattice, axis, 1)]
        placements.append(Shard(axis, tuple(part.stop - part.start for part in places)))
    return Layout(lattice.grid.nodes, ranks.dims, tuple(placements))


def _blocks_along(ranks: Ranks, lattice: Lattice, axis: int, halo: int) -> list[Block]:
    """Return the blocks of the first ranks along an axis of the process grid."""
    step = 1 if axis == 1 else ranks.dims[1]
    return [block_of(ranks, lattice, c * step, halo) for c in range(ranks.dims[axis])]


_PORTION = 2**20  # values that the root takes or gives at a time


class InterfaceMovement:
    """Moves interfaces of blocks with a certain halo.

    Parameters
    ----------
    halo
        Lattice cells.
    """

    def __init__(self, ranks: Ranks, lattice: Lattice, halo: int):
        self._ranks = ranks
        self._lattice = lattice
        self._halo = halo

    def _layout(self, axis: int) -> Layout:
        return lines_layout(self._ranks, self._lattice, axis, halo=self._halo)

    def scatter(self, lines: tuple[np.ndarray, np.ndarray] | None, v: Interface) -> None:
        """Hand every rank its part of the whole domain's lines, which the root alone needs."""
        for axis in (0, 1):
            layout = self._layout(axis)
            part = rows_from_root(
                None if lines is None else lines[axis].__getitem__,
                layout,
                self._ranks,
                np.float64,
                rows=_rows(layout),
            )
            v.lines[axis].copy_(torch.from_numpy(part))

    def gather(
        self, v: Interface, axis: int, sink: Callable[[np.ndarray, Slices], None] | None
    ) -> None:
        """Hand the whole domain's lines constant in an axis to the root, portion by portion.

        Parameters
        ----------
        sink
            ``sink(lines, place)``, called on the root only; the others may have None.
        """
        layout = self._layout(axis)
        everything = slice(0, layout.shape[1])

        def take(lines: np.ndarray, rows: slice) -> None:
            if sink is not None:
                sink(lines, (rows, everything))

        rows_to_root(_host(v.lines[axis][0]), layout, self._ranks, take, rows=_rows(layout))

    def widen(self, v: Interface, halo: int) -> Interface:
        """Return the same values on blocks with another halo; ``v`` itself on a single rank."""
        if self._ranks.size == 1:
            return v
        block = block_of(self._ranks, self._lattice, self._ranks.rank, halo)
        wide = Interface(block, problems=v.problems, **v.tensors)
        for axis in (0, 1):
            target = lines_layout(self._ranks, self._lattice, axis, halo=halo)
            given = _host(v.lines[axis])
            move = Redistribution(self._layout(axis), target, self._ranks, given.dtype)
            for mine, lines in zip(given, wide.lines[axis], strict=True):
                lines.copy_(torch.from_numpy(move(mine)))
        return wide


def _host(lines: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(lines.cpu().numpy())


def _rows(layout: Layout) -> int:
    return max(1, _PORTION // layout.shape[1])
