"""The final fill: every node of the field from one subdomain that holds it, strip by strip.

The tiles, subdomains that do not overlap, lie between the even lattice lines. On these the field has
the values of the interface, inside a tile those that the local solver predicts from them. (The paper,
section 4.2, predicts from all subdomains and averages: four times the work for errors that are the same on
smooth data and a tenth smaller on rough, each being first of all that of the interface:
``benchmarks/paper.md``.) Where an axis has an odd number
of lattice cells, the last is filled from the subdomain that ends with it.

Which tile a node lies in depends on the lattice alone. A rank computes every tile that reaches into
its part of the field, so it needs nothing of the others while it fills; of the field it holds one
strip at a time.
"""

import itertools
import math
from collections.abc import Iterator

import torch

from mosaicdd.axes import at
from mosaicdd.grid.faces import perimeter_nodes
from mosaicdd.grid.strips import Strip
from mosaicdd.schwarz.block import Tiles, region_tiles
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import fill_batch
from mosaicdd.schwarz.local_solvers.bound import BlockPlan
from mosaicdd.schwarz.sweep import SweepContext
from mosaicdd.schwarz.transfer import Transfer

FILL_HALO = 2  # lattice cells: the perimeters of one ring of subdomains around the owned ones


class InteriorReconstruction:
    """Predicts the values at all nodes that a block owns.

    Parameters
    ----------
    task
        On a block with a halo of `FILL_HALO`.
    plan
        The local solver, planned for the nodes inside a subdomain.
    """

    def __init__(self, task: SweepContext, plan: BlockPlan):
        block, tensors, problems = task.block, task.tensors, task.problems
        self.block = block
        self._plan = plan
        self._problems = problems
        self._m = m = block.lattice.subdomain.cells
        self._s = block.lattice.spacing
        axes = len(block.cells)
        room = max(1, fill_batch(task.settings.batch_subdomains) // problems)
        tiles, largest = [], problems
        for axis in reversed(range(axes)):
            runs = [part for run in region_tiles(block, axis) for part in run.split(room)]
            tiles.append(runs)
            largest *= max(run.count for run in runs)
            room = max(1, room // max(run.count for run in region_tiles(block, axis)))
        self._rows, *self._across = reversed(tiles)
        self._transfer = Transfer(block, **tensors)
        self._perimeters = torch.empty(largest, len(perimeter_nodes((m,) * axes)), **tensors)
        self._values = torch.empty(largest, (m - 1) ** axes, **tensors)
        # The last row of the strip before, then tiles, from their first lattice line to their last.
        height = 2 + max(run.count for run in self._rows) * m
        across = (cells + 1 for cells in block.cells[1:])
        self._buffer = torch.zeros(problems, height, *across, **tensors)
        self._filling = task.clock.part("fill")

    def strips(self, v: Interface, region: torch.Tensor | None = None) -> Iterator[Strip]:
        """Yield the owned part of the field (``Block.owned_nodes``) from below, in strips.

        ``v``: on the block of this fill; ``region``: where to keep all strips, as views: ``(n, rows, columns)`` of
        the block's region. By default each overwrites the one before.
        """
        (owned, *_), _ = self.block.owned_nodes()
        done = owned.start
        field = self._buffer if region is None else region
        for rows in self._rows:
            with self._filling:
                bottom, top = self._node(rows.line, 0), self._node(rows.end, 0)
                first = 1 if region is None else bottom  # row of the field that is the bottom one
                target = field[:, first : first + top - bottom + 1]
                self._copy_lines(v, rows, target)
                for across in itertools.product(*self._across):
                    self._predict(v, (rows, *across), target)
                # What is above the last row is known where the domain ends only.
                last = min(top if top < self.block.cells[0] else top + 1, owned.stop)
                strip = self._strip(field, bottom - first, done, last) if last > done else None
            if strip is not None:
                yield strip
                done = last
            if region is None:  # the next strip begins with the last two rows of this one
                height = top - bottom
                field[:, :2] = field[:, height : height + 2].clone()

    def _node(self, line: int, axis: int) -> int:
        """Return where a lattice line lies among the nodes of the region."""
        return (line - self.block.first[axis]) * self._s

    def _copy_lines(self, v: Interface, rows: Tiles, target: torch.Tensor) -> None:
        """Copy the values on the lattice lines around tiles to their part of the field."""
        axes, whole = len(self.block.cells), slice(None)
        bottom, top = self._node(rows.line, 0), self._node(rows.end, 0)
        for axis, runs in enumerate(([rows], *self._across)):
            lines = v.in_order(axis)
            if axis > 0:
                lines = lines[:, bottom : top + 1]
            base = bottom if axis == 0 else 0  # the node that stands first in the target
            for run in runs:
                low, high = (line - self.block.first[axis] for line in (run.line, run.end))
                nodes = slice(low * self._s - base, high * self._s - base + 1, run.cells * self._s)
                here = at(axis, axes, nodes)
                there = at(axis, axes, slice(low, high + 1, run.cells))
                target[(whole, *here)] = lines[(whole, *there)]

    def _predict(self, v: Interface, tiles: tuple[Tiles, ...], target: torch.Tensor) -> None:
        """Write what the local solver predicts inside of tiles, a run per axis, to their part of the field."""
        m, axes = self._m, len(tiles)
        counts = [run.count for run in tiles]
        perimeters = self._perimeters[: self._problems * math.prod(counts)]
        values = self._values[: len(perimeters)]
        batch = tuple(run.subdomains(self.block, axis) for axis, run in enumerate(tiles))
        self._transfer.restrict(v, batch, perimeters)
        self._plan(batch, perimeters, values)
        # Of each axis the tiles, then the nodes in them.
        order = (place for axis in range(1, 1 + axes) for place in (axis, axis + axes))
        values = values.view(self._problems, *counts, *[m - 1] * axes).permute(0, *order)
        for axis in reversed(range(axes)):
            run, sides = tiles[axis], tiles[axis].cells * self._s
            first = 0 if axis == 0 else self._node(run.line, axis)
            target = target.narrow(1 + axis, first, run.count * sides)
            target = target.unflatten(1 + axis, (-1, sides))
            target = target.narrow(2 + axis, 1, sides - 1)
            values = values.narrow(2 + 2 * axis, m - sides, sides - 1)
        target.copy_(values)

    def _strip(self, field: torch.Tensor, base: int, start: int, stop: int) -> Strip:
        """Return the rows ``start..stop`` of the region, with those around them.

        ``base`` is the row that stands first in the field.
        """
        (_, *across), whole = self.block.owned_nodes()
        parts, inner = [], []
        for axis, part in enumerate((slice(start, stop), *across)):
            low = max(part.start - 1, 0)
            high = min(part.stop + 1, self.block.cells[axis] + 1)
            parts.append(slice(low, high))
            inner.append(slice(part.start - low, part.stop - low))
        origin = self.block.origin[0]
        return Strip(
            values=field[:, parts[0].start - base : parts[0].stop - base, *parts[1:]],
            inner=tuple(inner),
            place=(slice(origin + start, origin + stop), *whole[1:]),
        )
