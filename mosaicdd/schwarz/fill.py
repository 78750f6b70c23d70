"""The final fill: every node of the field from the subdomains around it, blended, strip by strip.

The weights are products of the hats along both axes, a partition of unity of the plane that on
the lattice lines is that of the sweep: there the field is ``T v``. A rank computes the subdomains
around its own nodes, one ring more than it owns, and so needs nothing of the others while it fills;
of the field it holds one strip at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mosaicdd.lattice.block import Block, Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch, Transfer, batches
from mosaicdd.local_solvers.base import Plan
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch

FILL_HALO = 2  # lattice cells: the perimeters of one ring of subdomains around the owned ones


@dataclass(frozen=True)
class Strip:
    """Some rows of this rank's part of the field, with a node more all around within the domain.

    Parameters
    ----------
    values
        ``(n, rows, columns)``, a buffer that the next strip overwrites.
    inner
        Which of them this rank owns.
    place
        Where these belong in the field of the whole domain.
    """

    values: torch.Tensor
    inner: Slices
    place: Slices

    @property
    def owned(self) -> torch.Tensor:
        """The values without those of other ranks, and without those of other strips."""
        return self.values[..., *self.inner]


class Fill:
    """Predicts the values at all nodes that a block owns.

    Parameters
    ----------
    block
        With a halo of `FILL_HALO`.
    plan
        The local solver, planned for the nodes inside a subdomain.
    batch_subdomains
        Subdomains per call of the local solver, at most.
    """

    def __init__(
        self,
        block: Block,
        plan: Plan,
        settings: SolveSettings,
        problems: int,
        clock: Stopwatch,
        *,
        batch_subdomains: int,
    ):
        kind = {"device": settings.device, "dtype": settings.dtype}
        self.block = block
        self._plan = plan
        self._problems = problems
        self._m = m = block.lattice.subdomain.cells
        self._s = s = block.lattice.spacing
        rows, columns = block.region_subdomains
        across = min(columns, max(1, batch_subdomains // problems))
        self._down = min(rows, max(1, batch_subdomains // (problems * columns)))
        self._across = across
        self._transfer = Transfer(block, **kind)
        largest = problems * self._down * across
        self._perimeters = torch.empty(largest, 4 * m, **kind)
        self._values = torch.empty(largest, (m - 1) ** 2, **kind)
        # Two complete rows of the strip before, then lattice cells, each with the line above it.
        height, width = 2 + (self._down + 1) * s, block.cells[1] + 1
        self._buffer = torch.zeros(problems, height, width, **kind)
        hat = 1.0 - torch.arange(1 - s, s, **kind).abs() / s
        self._halves = (slice(0, s), slice(s, None))  # up to the centre line, and beyond it
        self._windows = [[hat[a, None] * hat[b] for b in self._halves] for a in self._halves]
        self._restore = s / torch.arange(1, s, **kind)  # divides by the hat, where it must be 1
        self._filling = clock.part("fill")

    def strips(self, v: Interface) -> Iterator[Strip]:
        """Yield the owned part of the field (``Block.owned_nodes``) from below, in strips.

        Parameters
        ----------
        v
            On the block of this fill.
        """
        self._buffer.zero_()
        rows = self.block.region_subdomains[0]
        (owned, _), _ = self.block.owned_nodes()
        done = owned.start
        for first in range(0, rows, self._down):
            with self._filling:
                down = min(self._down, rows - first)
                self._add(v, first, down)
                top = (first + down) * self._s  # the last complete row
                if first + down == rows and self.block.at_edge(0)[1]:
                    top += self._s
                self._copy_edges(v, first, top)
                last = min(top, owned.stop) if top < self.block.cells[0] else owned.stop
                strip = self._strip(first * self._s - 1, done, last) if last > done else None
            if strip is not None:
                yield strip
            done = max(done, last)
            self._shift(down)

    def _add(self, v: Interface, first: int, down: int) -> None:
        """Add the weighted values of some rows of subdomains to the buffer."""
        s, m = self._s, self._m
        columns = slice(0, self.block.region_subdomains[1])
        cells = self._buffer[:, 2:, 1:].unflatten(1, (-1, s)).unflatten(3, (-1, s))
        part = (slice(first, first + down), columns)
        for batch in batches(part, down * self._across):
            count = columns_of(batch)
            perimeters = self._perimeters[: self._problems * down * count]
            values = self._values[: len(perimeters)]
            self._transfer.restrict(v, batch, perimeters)
            self._plan(perimeters, values)
            values = values.view(self._problems, down, count, m - 1, m - 1)
            self._undo_hats_at_edges(values, batch)
            values = values.transpose(2, 3)  # (n, down, y, count, x)
            left = batch[1].start
            for up, above in enumerate(self._halves):
                for right, beside in enumerate(self._halves):
                    window = self._windows[up][right]
                    height, width = window.shape
                    target = cells[
                        :, up : up + down, :height, left + right : left + right + count, :width
                    ]
                    target.addcmul_(values[:, :, above, :, beside], window[:, None])

    def _undo_hats_at_edges(self, values: torch.Tensor, batch: Batch) -> None:
        """Divide by the hat beside an edge of the domain, where no other subdomain reaches."""
        s, count = self._s, self.block.region_subdomains
        for axis, part in enumerate(batch):
            low, high = self.block.at_edge(axis)
            for at, index, half in (
                (low and part.start == 0, 0, slice(0, s - 1)),
                (high and part.stop == count[axis], -1, slice(s, None)),
            ):
                if at:
                    side = values.select(axis + 1, index % values.shape[axis + 1])
                    factor = self._restore if index == 0 else self._restore.flip(0)
                    # of (n, other subdomains, y, x)
                    if axis == 0:
                        side[:, :, half] *= factor[:, None]
                    else:
                        side[..., half] *= factor

    def _copy_edges(self, v: Interface, first: int, top: int) -> None:
        """Copy the boundary data to the rows that are complete now."""
        base = first * self._s - 1  # the region's row that stands first in the buffer
        for end, at in zip((0, -1), self.block.at_edge(1), strict=True):
            if at:
                rows = slice(max(base, 0), top + 1)
                self._buffer[:, rows.start - base : rows.stop - base, end] = v.lines[1][
                    :, end, rows
                ]
        low, high = self.block.at_edge(0)
        if low and first == 0:
            self._buffer[:, 1] = v.lines[0][:, 0]
        if high and top == self.block.cells[0]:
            self._buffer[:, top - base] = v.lines[0][:, -1]

    def _strip(self, base: int, start: int, stop: int) -> Strip:
        """Return the rows ``start..stop`` of the region, with those around them."""
        (_, columns), whole = self.block.owned_nodes()
        parts, inner = [], []
        rows = slice(start, stop)
        for axis, part in enumerate((rows, columns)):
            low = max(part.start - 1, 0 if self.block.at_edge(axis)[0] else 1 - 1)
            high = min(part.stop + 1, self.block.cells[axis] + 1)
            parts.append(slice(low, high))
            inner.append(slice(part.start - low, part.stop - low))
        origin = self.block.origin[0]
        return Strip(
            values=self._buffer[:, parts[0].start - base : parts[0].stop - base, parts[1]],
            inner=tuple(inner),
            place=(slice(origin + start, origin + stop), whole[1]),
        )

    def _shift(self, down: int) -> None:
        """Keep two complete rows and the cells that the next rows of subdomains reach, too."""
        s = self._s
        kept = self._buffer[:, down * s : down * s + 2 + s].clone()
        self._buffer[:, 2 + s :] = 0.0
        self._buffer[:, : 2 + s] = kept


def columns_of(batch: Batch) -> int:
    """Return the columns of a batch without steps."""
    return batch[1].stop - batch[1].start
