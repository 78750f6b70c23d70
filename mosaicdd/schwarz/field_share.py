"""What a rank has of a field: the nodes that it owns, with as many around them as are asked for.

A field stays on the ranks: in time, each makes its part of the next source from its part of the last solution;
in Newton's method, of a residual from its part of the values; and only the nodes around come from others.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, contains, within
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.stretched import stretch_of
from mosaicdd.problems.fields.fields import LocalPart, overlap, overlaps
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.layouts import block_of, blocks_along
from mosaicdd.tensors import Tensors


class FieldShare:
    """A rank's share of the fields on the nodes of a lattice's grid.

    Parameters
    ----------
    width
        Nodes of others that are held on each side of those of this rank.
    beyond
        Whether what is held goes on beyond the grid along a periodic axis. Else the ranks at its ends hold all
        along it, with values of both sides, which differ where a source jumps.

    Attributes
    ----------
    own, wide
        Nodes of the grid: those that this rank owns, and those whose values it holds. Where these go on
        beyond the grid, the last node, a copy of the first, has that one's value.
    block
        Of this rank.
    ranks
        All of them.
    """

    def __init__(self, ranks: Ranks, lattice: Lattice, width: int, *, beyond: bool = True):
        self.ranks, self.grid, self._beyond = ranks, lattice.grid, beyond
        self.block = block = block_of(ranks, lattice, ranks.rank)
        self.own: Slices = block.owned_nodes()[1]
        around = tuple(wraps and beyond for wraps in lattice.periodic)
        shape = tuple(n - wraps for n, wraps in zip(self.grid.nodes, around, strict=True))
        owned: list[Shard] = []
        held: list[Halo] = []
        for axis, (count, wraps) in enumerate(zip(shape, around, strict=True)):
            blocks = blocks_along(ranks, lattice, axis)
            parts = [(b.owned_unknowns() if wraps else b.owned_nodes())[1][axis] for b in blocks]
            sizes = tuple(part.stop - part.start for part in parts)
            # What is around the ranks at the ends of a periodic axis is at the other end.
            at_end = [p.start <= width or p.stop + width >= count for p in parts]
            ends = [lattice.periodic[axis] and not beyond and end for end in at_end]
            widths = tuple((count,) * 2 if end else (width + wraps,) * 2 for end in ends)
            owned.append(Shard(axis, sizes))
            held.append(Halo(axis, widths, sizes, lattice.rounds[axis] if wraps else None))
        before, after = (Layout(shape, ranks.dims, tuple(parts)) for parts in (owned, held))
        self.wide: Slices = after.place(ranks.rank)
        self._unknowns = within(before.place(ranks.rank), self.own)
        self._move = Redistribution(before, after, ranks, np.float64)
        # What the region has of the nodes held, there and in itself; in margins it lies beyond the grid.
        region = block.nodes
        clipped = zip(overlap(region, self.grid.nodes)[0], region, lattice.periodic, strict=True)
        there = tuple(p if around else inside for inside, p, around in clipped)
        self._inside = within(there, region)
        self._stretch = stretch_of(there, lattice.rounds, lattice.periods)
        self._region = there if self._stretch is None else self._stretch.part

    def widened(self, own: np.ndarray) -> np.ndarray:
        """Return values at the nodes held, from those owned; all ranks together.

        Where a rank holds what it owns, as a single one does, they are the values that were given.
        """
        if self.own == self.wide and self.ranks.size == 1:
            return np.asarray(own, np.float64)
        return self._move(np.ascontiguousarray(own[self._unknowns], np.float64))

    def owned(self, wide: np.ndarray) -> np.ndarray:
        """Return the owned nodes of values at those held, a view."""
        return self.at(self.own, wide)

    def at(self, part: Slices, wide: np.ndarray) -> np.ndarray:
        """Return values at some of the nodes held, a view."""
        return wide[within(part, self.wide)]

    def as_field(self, wide: np.ndarray) -> LocalPart:
        """Return values at the nodes held as a field for a `Problem`."""
        return LocalPart(self.grid, wide, self.wide)

    def mean_square(self, own: np.ndarray) -> float:
        """Return the mean square of values over the nodes of all ranks."""
        flat = own.reshape(-1) if own.flags.c_contiguous else own.ravel()
        total, count = self.ranks.sum(np.array([np.dot(flat, flat), own.size]))
        return float(total / count)

    def lines(self, fields: Sequence[np.ndarray], **tensors: Unpack[Tensors]) -> Interface:
        """Return values of fields at the nodes held, on the lattice lines of the region."""
        v = Interface(self.block, problems=len(fields), **tensors)
        v.take(torch.from_numpy(self.in_region(wide)) for wide in fields)
        return v

    def in_region(self, wide: np.ndarray) -> np.ndarray:
        """Return values at the nodes of the region, zero where it has none, from those held: a view of them, if it can be."""
        held = self._around(self._region, wide)
        if self._stretch is not None:
            held = self._stretch.interpolated(held)
        region = tuple(n + 1 for n in self.block.cells)
        if held.shape == region:
            return held
        values = np.zeros(region)
        values[self._inside] = held
        return values

    def _around(self, part: Slices, wide: np.ndarray) -> np.ndarray:
        """Return values at nodes that may go on beyond the grid."""
        if self._beyond or contains(tuple(slice(0, n) for n in self.grid.nodes), part):
            return self.at(part, wide)
        values = np.empty([p.stop - p.start for p in part])
        for there, where in overlaps(part, self.grid.nodes, self.block.lattice.rounds):
            values[where] = self.at(there, wide)
        return values

    def strips(self, fields: Sequence[np.ndarray], **tensors: Unpack[Tensors]) -> Iterator[Strip]:
        """Yield the owned nodes of fields at the nodes held, as one strip."""
        owned = np.stack([self.owned(wide) for wide in fields])
        whole = tuple(slice(0, p.stop - p.start) for p in self.own)
        yield Strip(torch.from_numpy(owned).to(**tensors), whole, self.own)

    def between_lines(self, v: Interface, number: int = 0) -> np.ndarray:
        """Return what is smooth between the lattice lines, with a problem's values on these (Coons, 1967; Gordon, 1971)."""
        s, axes = self.block.lattice.spacing, len(v.lines)
        t, total = np.arange(s) / s, np.zeros(())
        for count in range(1, axes + 1):
            for several in itertools.combinations(range(axes), count):
                # Everywhere, from the values where lines constant in each of several axes meet.
                meet = tuple(
                    slice(None, None, s if a in several[1:] else None) for a in range(axes)
                )
                values = v.in_order(several[0])[number].double().cpu().numpy()[meet]
                for axis in reversed(several):
                    values = np.moveaxis(_between(np.moveaxis(values, axis, -1), t), -1, axis)
                total = total - (-1) ** count * values
        values = total[self._inside]
        nodes = self._region
        if self._stretch is not None:
            nodes, values = self._stretch.nodes, values[np.ix_(*self._stretch.there)]
        u = np.zeros([p.stop - p.start for p in self.wide])
        self.at(nodes, u)[...] = values
        return self.widened(self.owned(u))


class FieldStart:
    """Values at the nodes held, from which a solve of one problem begins; as a `Solution` is used."""

    problems = 1

    def __init__(self, share: FieldShare, wide: np.ndarray):
        self._share = share
        self._wide = wide

    def require_start(self, members: Sequence[int], block: Block) -> None:
        """Raise `ValueError` if a solve of a problem cannot begin here, as it lies otherwise over the ranks."""
        if self._share.block != block or list(members) != [0]:
            raise ValueError("start lies otherwise over the ranks; use the same ranks and dims")

    def start(self, members: Sequence[int], **tensors: Unpack[Tensors]) -> Interface:
        """Return the values on the lattice lines of the rank's region."""
        return self._share.lines([self._wide], **tensors)

    def start_fields(self, members: Sequence[int]) -> torch.Tensor:
        """Return the owned nodes, ``(1, rows, columns)``."""
        return torch.from_numpy(np.ascontiguousarray(self._share.owned(self._wide)))[None]


def _between(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Interpolate linearly between values along the last axis; ``t`` holds places between two."""
    inside = values[..., :-1, None] * (1 - t) + values[..., 1:, None] * t
    return np.concatenate([inside.reshape(*values.shape[:-1], -1), values[..., -1:]], axis=-1)
