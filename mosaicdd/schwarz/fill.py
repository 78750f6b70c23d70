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

The solution at arbitrary points, by a network, which takes any position within its subdomain, or interpolated.

A network's value is blended by the partition of unity from the up to four subdomains that cover a point: between
nodes a network is worst beside its perimeter, where the weights vanish. (Of a smooth solution, errors
from one tile alone were twice as large.) The field is not blended, so at grid nodes the two differ by
errors of the network. On the edge of the domain the boundary data are interpolated linearly.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.axes import Slices, at, family
from mosaicdd.discretisation.system import Method
from mosaicdd.grid.grid import perimeter_nodes
from mosaicdd.grid.window import Strip, Window, interpolate, nodes_around
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Block, Tiles, region_tiles
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement, fill_batch
from mosaicdd.schwarz.local_solvers.bound import BlockPlan
from mosaicdd.schwarz.sweep import SweepContext
from mosaicdd.schwarz.transfer import Transfer
from mosaicdd.tensors import Tensors

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
        """Return the node of a lattice line in the region."""
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
        """Write the local solver's values inside tiles, a run per axis, to their part of the field."""
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


# For some points, one of the subdomains that cover each: which of the points ``(B,)``; the lattice nodes in the middle of
# the subdomains ``(B, 2)``; the points in cells from their lower-left corners ``(B, 2)``; and the weights of the partition
# of unity ``(B,)``.
PointCover = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def owned_points(points: np.ndarray, block: Block) -> np.ndarray:
    """Return whether points ``(q, 2)`` on the grid lie in lattice cells of a block, ``(q,)``."""
    cells = _lattice_cells(points, block)
    owned = np.ones(len(points), bool)
    for axis, first in enumerate(block.first):
        part = block.owned_cells(axis)
        owned &= (cells[:, axis] >= first + part.start) & (cells[:, axis] < first + part.stop)
    return owned


def covers(points: np.ndarray, index: np.ndarray, block: Block) -> Iterator[PointCover]:
    """Yield up to four covers (in space eight) of the points ``points[index]``, whose weights add up to 1.

    The weights are hats along all axes, at any point: in a lattice cell they are bilinear, and 1
    towards an edge of the domain, where no other subdomain reaches.
    """
    s, chosen = block.lattice.spacing, points[index]
    cells = _lattice_cells(chosen, block)
    fraction = chosen / s - cells
    fraction[cells == 0] = 1.0
    fraction[cells == np.array(block.lattice.cells) - 1] = 0.0
    for corner in itertools.product((0, 1), repeat=cells.shape[1]):
        upper = np.array(corner)
        weights = np.where(upper == 1, fraction, 1.0 - fraction).prod(axis=1)
        within = weights > 0
        centres = (cells + upper)[within]
        local = chosen[within] - (centres - 1) * s
        yield index[within], centres, local, weights[within]


def _lattice_cells(points: np.ndarray, block: Block) -> np.ndarray:
    """Return the lattice cells ``(q, 2)`` that points lie in; the last ones are closed."""
    last = np.array(block.lattice.cells) - 1
    return np.minimum(np.floor(points / block.lattice.spacing).astype(int), last)


class PointValues:
    """Evaluates solutions at points; every rank those that lie in its block.

    `Unsupported` if the local solver has values at grid nodes only, or has a source.
    ``points``: ``(q, 2)``, (y, x) in cells of the grid, the same on all ranks.
    """

    takes_source = False

    def __init__(
        self,
        ranks: Ranks,
        local_solver: Method,
        movement: InterfaceMovement,
        points: np.ndarray,
        **tensors: Unpack[Tensors],
    ):
        self._ranks = ranks
        self._movement = movement
        self._points = points
        self._values_at, self._chunk = local_solver.plan_points(**tensors)

    def seen(self, strips: Iterator[Strip]) -> Iterator[Strip]:
        """Pass strips of the field on; nothing of it is needed."""
        return strips

    def __call__(self, v: Interface, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the values of each problem, ``(n, q)``, on all ranks."""
        wide = self._movement.widen(v, FILL_HALO)
        block, points = wide.block, self._points
        values = np.zeros((wide.problems, len(points)))
        ends = np.array(block.lattice.grid.shape)
        owned = owned_points(points, block)
        inside = ((points > 0) & (points < ends)).all(axis=1)
        mine = np.flatnonzero(owned & inside)
        for index, centres, local, weights in covers(points, mine, block):
            for problem in range(wide.problems):
                predicted = self._predict(wide, problem, centres, local)
                values[problem, index] += weights * predicted
        edge = np.flatnonzero(owned & ~inside)
        for problem, boundary in enumerate(boundaries):
            values[problem, edge] = _on_edge(boundary, points[edge])
        return self._ranks.sum(values)

    def _predict(
        self, v: Interface, problem: int, centres: np.ndarray, local: np.ndarray
    ) -> np.ndarray:
        """Return the values at points of one subdomain each, as of `covers`."""
        values, chunk = np.empty(len(local)), self._chunk
        for start in range(0, len(values), chunk):
            part = slice(start, start + chunk)
            g = perimeters_at(v, problem, centres[part])
            values[part] = self._values_at(g, local[part]).cpu().numpy()
        return values


class InterpolatedValues:
    """Values at points, interpolated linearly along each axis. Each rank adds up the shares of its nodes.

    They are those of `lattice.points.interpolate`, of domains that are no rectangles `interpolate_within`, of fields
    that pass strip by strip.

    Parameters
    ----------
    points
        ``(q, axes)``, in cells of the grid, the same on all ranks.
    window
        The part of the field that the strips are of; a point outside of it is a `ValueError`.
    level
        Of a domain that is no rectangle, at some nodes of the grid: negative inside.
    """

    takes_source = True

    def __init__(
        self,
        ranks: Ranks,
        points: np.ndarray,
        window: Window,
        level: Callable[[Slices], np.ndarray] | None,
    ):
        self._ranks, self._level = ranks, level
        inside = points - np.array(window.start)
        self._corners = [
            (np.stack(place, axis=1) + np.array(window.start), weights)
            for place, weights in nodes_around(inside, window.shape)
        ]
        self._sums = np.zeros((3, len(points)))

    def seen(self, strips: Iterator[Strip]) -> Iterator[Strip]:
        """Yield the strips of one problem's field, and add up their shares at the points."""
        self._sums[:] = 0.0
        for strip in strips:
            self._add(strip)
            yield strip

    def _add(self, strip: Strip) -> None:
        place = strip.place
        low, high = np.array([(part.start, part.stop) for part in place]).T
        for nodes, weights in self._corners:
            here = np.flatnonzero(((nodes >= low) & (nodes < high) & (weights[:, None] > 0)).all(1))
            if not len(here):
                continue
            there, share = tuple((nodes[here] - low).T), weights[here]
            held = strip.owned[0][tuple(map(torch.from_numpy, there))].double().cpu().numpy()
            if self._level is not None:
                around = tuple(slice(int(at.min()), int(at.max()) + 1) for at in nodes[here].T)
                level = self._level(around)[tuple(nodes[here].T - [[p.start] for p in around])]
                self._sums[2, here] += share * level
                known = np.isfinite(held) | (level < 0)
                share = share * known
                held = np.where(known, held, 0.0)
            self._sums[:2, here] += share * held, share

    def __call__(self, v: Interface, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the values of the problem whose strips passed, ``(1, q)``, on all ranks."""
        values, weights, level = self._ranks.sum(self._sums)
        if self._level is None:
            return values[None]
        outside = (level > 0) | (weights == 0)
        return np.where(outside, np.nan, values / np.where(weights > 0, weights, 1.0))[None]


def perimeters_at(v: Interface, problem: int, centres: np.ndarray) -> torch.Tensor:
    """Gather the perimeters of subdomains given by their centres, ``(B, 2)``: ``(B, P)``."""
    block, device = v.block, v.flat.device
    s, m = block.lattice.spacing, block.lattice.subdomain.cells
    nodes = perimeter_nodes((m,) * len(v.lines))
    corners = (centres - np.array(block.first) - 1) * s
    places = torch.from_numpy(corners[:, None] + nodes).to(device)  # in the region, (B, P, 2)
    out = v.flat.new_empty(places.shape[:2])
    for axis, lines in enumerate(v.lines):
        on = np.flatnonzero(nodes[:, axis] % m == 0)
        line, *along = (places[:, on, other] for other in family(axis, len(v.lines)))
        out[:, on] = lines[problem][(line // s, *along)]
    return out


def _on_edge(boundary: Boundary, points: np.ndarray) -> np.ndarray:
    """Interpolate boundary data at points ``(q, 2)`` on the edge of the domain."""
    values = np.empty(len(points))
    for (axis, end), edge in boundary.edges.items():
        here = points[:, axis] == end * boundary.shape[axis]
        along = np.delete(points[here], axis, axis=1)
        values[here] = interpolate(edge[None], along)[0]
    return values
