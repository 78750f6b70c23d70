"""Layouts of the interface and the field over the ranks, and movements of whole interfaces.

Sizes that the engine works with, and a plan counts with; nothing slow is imported here.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from mosaicdd.axes import Slices, family
from mosaicdd.parallel.layouts.layout import Halo, Layout
from mosaicdd.parallel.layouts.redistribution import Redistribution, rows_from_root, rows_to_root
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.interface import Interface

# Numbers that are added up over the ranks in an iteration: calls of the watch; and update, size,
# residual and error of each problem.
CALLS, SUMS = 2, 4
_FILLED = 8  # a filled subdomain takes about 8 times the memory of a swept one
# Ranks whose messages cost more than they would save by sharing the coarse problem, and coarse nodes from which on it
# is shared with fewer ranks and with more: by a model of cost (version 0.2).
_FEW, _REPLICATED_ON_FEW, _REPLICATED_ON_MANY = 8, 2**20, 2**17


def count_of_sums(problems: int) -> int:
    """Return the number of sums over the ranks in an iteration."""
    return CALLS + SUMS * problems


def coarse_is_replicated(nodes: int, ranks: int) -> bool:
    """Say whether every rank solves the whole coarse problem, of so many nodes."""
    return ranks == 1 or nodes <= (_REPLICATED_ON_FEW if ranks <= _FEW else _REPLICATED_ON_MANY)


def fill_batch(batch_subdomains: int) -> int:
    """Return the batch of subdomains of a fill, where a sweep has ``batch_subdomains``."""
    return max(1, batch_subdomains // _FILLED)


# Per coordinate of an axis of the process grid, where a part begins and ends.
Bounds = Sequence[tuple[int, int]]


def block_of(ranks: Ranks, lattice: Lattice, rank: int, halo: int = 1) -> Block:
    """Return the block of a rank."""
    start, stop = ranks.partition(lattice.subdomains, rank)
    first, last = (tuple(a + 1 for a in end) for end in (start, stop))
    return Block(lattice, first, last, halo)


def blocks_along(ranks: Ranks, lattice: Lattice, axis: int, halo: int = 1) -> list[Block]:
    """Return the blocks of the first ranks along an axis of the process grid."""
    step = math.prod(ranks.dims[axis + 1 :])
    return [block_of(ranks, lattice, c * step, halo) for c in range(ranks.dims[axis])]


def lines_layout(ranks: Ranks, lattice: Lattice, axis: int, *, halo: int) -> Layout:
    """Return the layout of the lines constant in an axis, ``(lines, nodes)``.

    Each block holds those of its region. Values on the edge of the domain are the outermost blocks'.
    """
    placements = []
    order = family(axis, len(ranks.dims))
    for along, count in enumerate(lattice.cells):
        blocks = blocks_along(ranks, lattice, along, halo)
        starts = [0 if b.start[along] == 1 else b.start[along] for b in blocks]
        ends = [*starts[1:], count + 1]
        held = [(b.first[along], b.last[along] + 1) for b in blocks]
        if along != axis:
            s = lattice.spacing
            starts, ends = [s * a for a in starts], [*(s * b for b in ends[:-1]), s * count + 1]
            held = [(s * a, s * (b - 1) + 1) for a, b in held]
        owned = list(zip(starts, ends, strict=True))
        placements.append(_with_copies(order.index(along), owned, held))
    return Layout(lattice.line_shape(axis), ranks.dims, tuple(placements))


def nodes_layout(ranks: Ranks, lattice: Lattice, *, halo: int) -> Layout:
    """Return the layout of the lattice nodes inside the domain, ``(K_y - 1, K_x - 1)``.

    Each block holds the nodes of its region.
    """
    placements = []
    for axis, count in enumerate(lattice.subdomains):
        blocks = blocks_along(ranks, lattice, axis, halo)
        owned = [(b.start[axis] - 1, b.stop[axis] - 1) for b in blocks]
        held = [(max(b.first[axis], 1) - 1, min(b.last[axis], count)) for b in blocks]
        placements.append(_with_copies(axis, owned, held))
    return Layout(lattice.subdomains, ranks.dims, tuple(placements))


def _with_copies(axis: int, owned: Bounds, held: Bounds) -> Halo:
    """Return the placement of consecutive items, per coordinate those owned among those held."""
    sizes = tuple(stop - start for start, stop in owned)
    pairs = zip(owned, held, strict=True)
    return Halo(axis, tuple((a - low, high - b) for (a, b), (low, high) in pairs), sizes)


_PORTION = 2**20  # values that the root takes or gives at a time


class InterfaceMovement:
    """Moves interfaces of blocks with a certain halo.

    ``halo``: lattice cells.
    """

    def __init__(self, ranks: Ranks, lattice: Lattice, halo: int):
        self._ranks = ranks
        self._lattice = lattice
        self._halo = halo
        self._plans: dict[tuple[int, int, int, np.dtype], Redistribution] = {}

    def _layout(self, axis: int) -> Layout:
        return lines_layout(self._ranks, self._lattice, axis, halo=self._halo)

    def scatter(self, lines: tuple[np.ndarray, ...] | None, v: Interface) -> None:
        """Scatter the whole domain's lines, which the root alone needs, to the ranks."""
        for axis, own in enumerate(v.lines):
            layout = self._layout(axis)
            part = rows_from_root(
                None if lines is None else lines[axis].__getitem__,
                layout,
                self._ranks,
                np.float64,
                rows=_rows(layout),
            )
            own.copy_(torch.from_numpy(part))

    def gather(
        self, v: Interface, axis: int, sink: Callable[[np.ndarray, Slices], None] | None
    ) -> None:
        """Hand the whole domain's lines constant in an axis to the root, portion by portion.

        ``sink``: ``sink(lines, place)``, called on the root only; the others may have None.
        """
        v.require()
        layout = self._layout(axis)
        everything = tuple(slice(0, count) for count in layout.shape[1:])

        def take(lines: np.ndarray, rows: slice) -> None:
            if sink is not None:
                sink(lines, (rows, *everything))

        rows_to_root(_host(v.lines[axis][0]), layout, self._ranks, take, rows=_rows(layout))

    def widen(self, v: Interface, halo: int) -> Interface:
        """Return the same values on blocks with another halo; ``v`` itself on a single rank."""
        v.require()
        if self._ranks.size == 1:
            return v
        block = block_of(self._ranks, self._lattice, self._ranks.rank, halo)
        wide = Interface(block, problems=v.problems, **v.tensors)
        for axis, (mine, lines) in enumerate(zip(v.lines, wide.lines, strict=True)):
            values = _host(mine)
            way = axis, halo, len(values), values.dtype
            if way not in self._plans:
                target = lines_layout(self._ranks, self._lattice, axis, halo=halo)
                before, after = (of.stacked(len(values)) for of in (self._layout(axis), target))
                self._plans[way] = Redistribution(before, after, self._ranks, values.dtype)
            # At once into its place, where that is one array.
            there = lines.numpy() if lines.is_cpu and lines.is_contiguous() else None
            moved = self._plans[way](values, there)
            if there is None:
                lines.copy_(torch.from_numpy(moved))
        return wide


def _host(lines: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(lines.cpu().numpy())


def _rows(layout: Layout) -> int:
    return max(1, _PORTION // math.prod(layout.shape[1:]))
