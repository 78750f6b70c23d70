"""Integrals over a domain, or a region of it: sums over control volumes, of second order in the spacing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mosaicdd.axes import (
    all_of,
    at,
    common,
    ends,
    ends_of,
    grown,
    in_order,
    in_rows,
    last,
    letters,
    sizes,
    steps_across,
    within,
)
from mosaicdd.discretisation.crossings import BoundaryTerms
from mosaicdd.discretisation.periodic import grid_cells
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.fields.given import as_mask, require_place, usable
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures, cut_cells, staircase
from mosaicdd.problems.shapes.shape import Shape, has_values
from mosaicdd.problems.sides.sides import jumps_of

_VALUES = 2**17  # that are handled at once, for the cache


@dataclass(frozen=True)
class FieldOnRank:
    """The part of fields that a process holds; sums are called by all processes together."""

    grid: Grid
    problem: Problem  # of the members only
    problems: int  # of all
    members: slice  # which of them are held here
    own: Part  # nodes that this process speaks for; of all processes each once
    wide: Part  # these and one more all around, beyond the grid where it is periodic
    values: np.ndarray  # float64, of the wide nodes, ``(members, rows, columns)``; NaN outside
    add: Callable[[np.ndarray], np.ndarray]  # over all processes
    gather: Callable[[Any], list]  # from all processes, in their order

    def at(self, part: Part) -> np.ndarray:
        """Return values at some of the wide nodes, a view."""
        return self.values[:, *within(part, self.wide)]

    def around(self, part: Part) -> Part:
        """Return a part with one node more all around, within the grid."""
        return tuple(
            slice(max(p.start - 1, 0), min(p.stop + 1, nodes))
            for p, nodes in zip(part, self.grid.nodes, strict=True)
        )

    def total(self, mine: np.ndarray) -> np.ndarray:
        """Add up numbers of the members ``(members, ..)`` over all processes: ``(problems, ..)``."""
        terms = np.zeros((self.problems, *mine.shape[1:]))
        terms[self.members] = mine
        return self.add(terms)


def alone(problem: Problem, grid: Grid, fields: np.ndarray) -> FieldOnRank:
    """Return whole fields ``(n, rows, columns)`` that one process holds."""
    everywhere = all_of(grid.nodes)
    wide, values = [], np.asarray(fields, np.float64)
    for axis, period in enumerate(problem.conditions.periods(grid)):
        around = 0 if period is None else 1
        if around:
            jump = jumps_of(problem.conditions)[axis]
            low, high = (
                values.take([at], axis + 1) + rise for at, rise in ((-2, -jump), (1, jump))
            )
            values = np.concatenate([low, values, high], axis + 1)
        wide.append(slice(-around, grid.nodes[axis] + around))
    members = slice(0, len(values))
    return FieldOnRank(
        grid,
        problem,
        len(values),
        members,
        everywhere,
        tuple(wide),
        values,
        lambda a: a,
        lambda a: [a],
    )


def rows_of(field: FieldOnRank) -> Iterator[Part]:
    """Yield what a process speaks for, some rows at a time."""
    if all(p.stop > p.start for p in field.own):
        yield from in_rows(field.own, _VALUES)


@dataclass(frozen=True)
class VolumesPart:
    """The control volumes of a part of the grid, right but on its edge within the grid.

    All is times the squared spacing, as in the discrete equation.
    """

    between: Conductances  # of the faces between volumes; the reaction times the volumes
    volumes: np.ndarray  # what the domain has of each, in cells
    present: np.ndarray  # which nodes have a volume, and no value by an outline
    outlines: BoundaryTerms | None

    def edge_flows(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the flow to the next node along each axis, of values ``(n, rows, columns)``, without a velocity.

        What flows along a diagonal of a cell's face goes half around either side of the face, so that each node loses
        what its equation says.
        """
        axes = self.present.ndim
        flows = [
            k * (u[low] - u[high])
            for k, (low, high) in zip(self.between.along, self._ends, strict=True)
        ]
        for step, k in zip(steps_across(axes), self.between.across, strict=False):
            first, end = ends_of(step)
            half = k * (u[last(first)] - u[last(end)]) / 2
            first_axis, second_axis = (axis for axis in range(axes) if step[axis])
            for axis, beside in ((first_axis, second_axis), (second_axis, first_axis)):
                for edge in ends(beside, axes):
                    flows[axis][last(edge)] += step[axis] * half
        return tuple(flows)

    def to_neighbours(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the terms of neighbours along each axis in the nodes' equations, ``(n, rows, columns)``."""
        totals, flows = [], self.edge_flows(u)
        along = zip(flows, self.between.against, self._ends, strict=True)
        for flow, back, (low, high) in along:
            total = np.zeros(u.shape)
            total[low] += flow
            total[high] -= flow if self.between.symmetric else back * (u[low] - u[high])
            totals.append(total)
        return tuple(totals)

    def consumed(self, u: np.ndarray) -> np.ndarray:
        """Return the consumption of the reaction in each volume, ``(n, rows, columns)``."""
        return self.between.reaction * u

    def falling(self, u: np.ndarray) -> np.ndarray:
        """Return the flow from each node if all other values fell to zero, ``(n, rows, columns)``."""
        return abs(u) * self._leaving

    @cached_property
    def filled(self) -> np.ndarray:
        """The volumes of present nodes within the domain, ``(rows, columns)``."""
        return self.volumes * self.present

    @cached_property
    def _ends(self) -> list[tuple[Any, Any]]:
        """The nodes at the low and at the high ends of the edges along each axis."""
        axes = self.present.ndim
        return [(last(low), last(high)) for low, high in (ends(axis, axes) for axis in range(axes))]

    @cached_property
    def _leaving(self) -> np.ndarray:
        return self.between.diagonal() - self.between.reaction


Region = Mapping[str, tuple[float, float]] | Any
"""A box by the names of coordinates, ``{"x": (x0, x1)}``, or a mask of cells or nodes; None for all of the domain."""


def region_volumes(
    problem: Problem, grid: Grid, region: Region = None
) -> Callable[[Part], np.ndarray]:
    """Return a function of parts: the volumes of the domain, or a region of it, around the nodes.

    In units of domain length to the power of the axes. `ValueError` if a region is empty, or no box or mask of the grid.
    """
    axes = len(grid.shape)
    box: tuple[np.ndarray, ...] = ()
    cells_in: np.ndarray | None = None
    nodes_in: np.ndarray | None = None
    if isinstance(region, Mapping):
        box = _box(region, grid)
    elif region is not None:
        region = usable(region, "the region")
        mask = as_mask(region, "the region")
        if mask.shape not in (tuple(grid.shape), grid.nodes):
            raise ValueError(
                f"the region has the shape {mask.shape}, the grid has {tuple(grid.shape)} cells and {grid.nodes} "
                "nodes: give a mask of cells or nodes, or a box as {'x': (x0, x1)}"
            )
        require_place(region, grid, "the region")
        cells_in, nodes_in = (mask, None) if mask.shape == tuple(grid.shape) else (None, mask)

    def volumes_of(part: Part) -> np.ndarray:
        cells = grid_cells(part, grid.shape)
        if cells_in is not None:
            cells &= np.pad(cells_in, 1)[tuple(slice(p.start, p.stop + 1) for p in part)]
        volumes = _cover(problem.domain.shape, grid, part, cells).volumes * grid.spacing**axes
        if nodes_in is not None:
            volumes = volumes * nodes_in[part]
        for axis, box_ends in enumerate(box):
            nodes = np.arange(part[axis].start, part[axis].stop)
            share = _share(nodes, box_ends, grid.shape[axis])
            volumes = volumes * share.reshape(at(axis, axes, -1, 1))
        return volumes

    return volumes_of


def _box(region: Mapping[str, tuple[float, float]], grid: Grid) -> tuple[np.ndarray, ...]:
    """Return the ends of a box along each axis, in cells."""
    axes = len(grid.shape)
    named = in_order(region, axes, default=grid.ends)
    box = [(float(low), float(high)) for low, high in named]
    for letter, (low, high), (begin, end) in zip(letters(axes), box, grid.ends, strict=True):
        if not (low < high and low < end and high > begin):
            raise ValueError(
                f"the region goes from {low:g} to {high:g} along {letter}, the domain from {begin:.10g} to "
                f"{end:.10g}: give the lower end first, within the domain"
            )
    return tuple(grid.cells(np.transpose(box)).T)


def _cover(shape: Shape | None, grid: Grid, part: Part, cells: np.ndarray) -> Apertures:
    """Return the apertures of cells around the nodes of a part, whatever holds on the outline."""
    if shape is None:
        return Apertures.of_cells(cells)
    if shape.voxels is not None:
        return Apertures.of_cells(cells & shape.cells(part))
    ring = grown(part)
    level = np.ones(sizes(ring))
    inside = common(ring, all_of(grid.nodes))
    level[within(inside, ring)] = shape.level(grid, inside)
    return staircase(level, cells) if shape.staircase else cut_cells(level, cells)[0]


def _share(at: np.ndarray, ends: np.ndarray, last: int) -> np.ndarray:
    """Return the integrals of nodes' hat functions over an interval, in cells, relative to the whole axis's."""

    def integral(x: np.ndarray) -> np.ndarray:
        """Return the integral of a hat of height and half width 1 from its foot on."""
        x = x.clip(-1.0, 1.0)
        return np.where(x < 0, (1 + x) ** 2 / 2, 1 - (1 - x) ** 2 / 2)

    low, high = (min(max(end, 0.0), float(last)) for end in ends)
    within_interval = integral(high - at) - integral(low - at)
    return within_interval / (integral(last - at) - integral(-at))


def integrals(field: FieldOnRank, region: Region = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the integral of each problem's field, and the size of the region, ``(n,)`` each.

    Nodes without a value, of whose volumes a part is inside, have the mean of the values around.
    `ValueError` if no part of the domain lies in the region.
    """
    sums, volumes_of = (
        np.zeros((len(field.values), 2)),
        region_volumes(field.problem, field.grid, region),
    )
    for part in rows_of(field):
        volumes, wide = volumes_of(part), field.around(part)
        values = field.at(part)
        shown = has_values(field.problem.domain.shape, field.grid, part, values)
        u = np.where(shown, values, _filled(field.at(wide))[:, *within(part, wide)])
        counts = shown | np.isfinite(u)
        sums[:, 0] += (np.where(counts, u, 0.0) * volumes).reshape(len(u), -1).sum(axis=1)
        sums[:, 1] += (counts * volumes).reshape(len(u), -1).sum(axis=1)
    total = field.total(sums)
    if not total[:, 1].all():
        raise ValueError("the region is empty: no part of the domain lies in it")
    return total[:, 0], total[:, 1]


def _filled(u: np.ndarray) -> np.ndarray:
    """Return fields ``(n, rows, columns)`` where NaN beside numbers are the means of these."""
    finite = np.isfinite(u)
    if finite.all():
        return u
    around = [(0, 0), *[(1, 1)] * (u.ndim - 1)]
    values, counts = np.pad(np.where(finite, u, 0.0), around), np.pad(finite.astype(float), around)
    for axis in range(1, u.ndim):  # sums over three nodes along each axis
        values, counts = (_of_three(a, axis) for a in (values, counts))
    return np.where(
        finite, u, np.divide(values, counts, out=np.full(u.shape, np.nan), where=counts > 0)
    )


def _of_three(a: np.ndarray, axis: int) -> np.ndarray:
    """Return the sums of each three neighbours along an axis, which gets shorter by two."""
    count = a.shape[axis] - 2
    return (
        a.take(range(count), axis)
        + a.take(range(1, count + 1), axis)
        + a.take(range(2, count + 2), axis)
    )
