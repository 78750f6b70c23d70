"""The discrete equations tested with an adjoint, whose derivatives by what was given are the gradient.

Of a functional ``J(u)`` and the adjoint ``v``, which is zero where values are given and else solves ``A v = dJ/du``,
the gradient by anything that the equations depend on is that of ``J`` at the given values less the sum of ``v`` times
the equations. Written here once, in torch, which differentiates it, and what comes of it. Along a periodic axis the
first and the last node are two, of the same values, each with the half of the faces and volumes on its own side.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mosaicdd.gradients.between_nodes import Step, flow, flow_between_nodes, tested
from mosaicdd.gradients.fitted_means import fitted_mean
from mosaicdd.gradients.on_outlines import ActingOutlines
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.gradients.values_near import ValuesNear
from mosaicdd.lattice.axes import ends, ends_of, letters, steps_across, steps_along, within
from mosaicdd.problems.discretisation.periodic import GridNodes, places_of
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.edge_means import in_series
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.tensors import (
    between_nodes,
    corners_of,
    mean_of_corners,
    names_of,
    products,
)
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.sides.parts import is_outline

Tensors = Mapping[str, torch.Tensor]
Edges = tuple[torch.Tensor, torch.Tensor | None]
"""The mean of the conductances of edges in the equations of their low and of their high ends, and by how much that of the high
ones is more; None without a velocity."""


class Lagrangian:
    """Of the nodes that a process speaks for, and of what couples them.

    ``own``, ``wide``: these nodes; they and others all around, within the grid: see `reach`.

    Attributes
    ----------
    reported
        Which of the wide nodes have values in a field; None if all.
    active
        Which have an unknown.
    uniform
        Names of numbers that are called with as values at all nodes.
    """

    def __init__(self, parameters: Parameters, own: Part, wide: Part):
        self._parameters, self.uniform = parameters, frozenset[str]()
        problem, grid = parameters.problem, parameters.grid
        self._h, self._axes, self._wide = grid.spacing, len(wide), wide
        conditions = problem.conditions
        cells = GridNodes(grid.shape, (None,) * len(wide)).cells(wide)
        cover, cut, outline = Cover.of_cells(cells), None, parameters.outline
        volumes = cover.volumes
        if outline is not None:
            cut = outline.cut(wide, cells)
            cover, volumes = cut.cover, cut.volumes
        self._volumes = torch.from_numpy(self._h**2 * volumes)
        self._quarters = torch.from_numpy(cover.quarters[0] * len(cover.quarters))
        self._periods = conditions.periods(grid)
        known = np.zeros(volumes.shape, bool)
        known[places_of(parameters.known, wide, self._periods)[1]] = True
        active = (volumes > 0) & ~known
        mine = np.zeros(volumes.shape, bool)
        mine[within(own, wide)] = True
        self._outlines: ActingOutlines | None = None
        self._near: ValuesNear | None = None
        self.reported: torch.Tensor | None = None
        counts = active | known
        if cut is not None and outline is not None:
            known, active = known & ~cut.given, active & ~cut.given
            faces = [cover.of_edges(axis) for axis in range(self._axes)]
            edges = [(between, between) for between in faces]
            on = cut.on_outlines(active, known, edges)
            self._outlines = ActingOutlines(parameters, outline, on, faces, wide, mine)
            self._near = ValuesNear(cover)
            self.reported = torch.from_numpy(on.reported)
            active &= self._outlines.connected
            counts = active | known
        self.active, self._counts = torch.from_numpy(active), torch.from_numpy(counts)
        here: Any = [[torch.from_numpy(face) for face in every] for every in cover.faces]
        quarters: Any = tuple(torch.from_numpy(share) for share in cover.quarters)
        self._cover = Cover(here, quarters)
        self._held = torch.from_numpy(mine & known)
        self._acting = {
            name: self._entries(name, mine, wide)
            for name, part in parameters.parts.items()
            if not is_outline(part.name)
        }
        self._sides = grid.aspect or (1.0,) * self._axes
        self._faces = [
            self._cover.of_edges(axis) / side**2 for axis, side in enumerate(self._sides)
        ]
        self._constant = dict(problem.parameters)
        if parameters.linear:
            numbers = {name: field.number for name, field in self._medium.fields.items()}
            self._constant |= {n: number for n, number in numbers.items() if number is not None}

    @property
    def _medium(self) -> Medium:
        return medium_of(self._parameters.problem.operator)

    @staticmethod
    def reach(parameters: Parameters) -> int:
        """Return how many nodes around a process's what couples its own reaches."""
        if not parameters.linear:
            return 2
        # A value inside counts beside the outline, and so in a flux through it.
        return 1 if parameters.problem.domain.shape is None else 3

    def _entries(self, name: str, mine: np.ndarray, wide: Part) -> tuple[torch.Tensor, ...]:
        """Return of a side's values which act on nodes here, on which, flat, and with which weight."""
        every = []
        # A given value holds at all copies of a node, what flows in counts once.
        periods = self._periods if self._parameters.held(name) else (None,) * self._axes
        for which, nodes, weights in self._parameters.acting(name):
            there, place = places_of(nodes, wide, periods)
            counts = mine[place]
            flat = np.ravel_multi_index(place, mine.shape)
            every.append((which[there][counts], flat[counts], weights[there][counts]))
        return tuple(torch.from_numpy(np.concatenate(each)) for each in zip(*every, strict=True))

    def imposed(self, u: torch.Tensor, named: Tensors) -> torch.Tensor:
        """Return values with those that are given on sides and inside; of the whole grid."""
        u = torch.where(self._held, 0.0, u)
        for name, (which, places, weights) in self._acting.items():
            if self._parameters.held(name):
                there = weights * named[name].reshape(-1)[which]
                u = u.reshape(-1).index_add(0, places, there).reshape(u.shape)
        return u

    def _diffusion(self, named: Tensors) -> list[torch.Tensor]:
        """Return the diffusion along each axis, beside a shape as it counts there; one tensor where it is the same."""
        every, same = [], None
        for letter in letters(self._axes):
            name = f"a{letter}{letter}"
            if name in named:
                every.append(self._around(named, name, 1.0))
            else:
                same = self._around(named, "a", 1.0) if same is None else same
                every.append(same)
        return every

    def _around(
        self, named: Tensors, name: str, fill: float, *, counts: bool = True
    ) -> torch.Tensor:
        """Return a field, beside a shape as it counts there; the problem's number, or `fill`, if it is not named."""
        if name not in named:
            return torch.tensor(self._constant.get(name, fill), dtype=torch.float64)
        if self._near is None or name in self.uniform:
            return named[name]
        return self._near(named[name], fill, counts=counts)

    def _in_volumes(self, values: torch.Tensor) -> torch.Tensor:
        """Return values at the nodes: of those per cell the means over volumes, right within the wide nodes."""
        return self.at_nodes(values) if values.ndim and self._per_cell(values) else values

    def at_nodes(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the means of values per cell over the volumes of the wide nodes, zero where there is none."""
        volumes = self._volumes / self._h**2
        sums = self._cover.of_volumes(_padded(cells, 0.0))
        return torch.where(volumes > 0, sums / torch.where(volumes > 0, volumes, 1.0), 0.0)

    def _conductances(self, named: Tensors) -> list[torch.Tensor]:
        """Return those of the edges along each axis."""
        between = list[torch.Tensor]()
        last = half = torch.zeros(())
        for axis, a in enumerate(self._diffusion(named)):
            if a.ndim and self._per_cell(a):
                between.append(self._cover.of_edges(axis, _padded(a)) / self._sides[axis] ** 2)
                continue
            if last is not a:
                last, half = a, 0.5 / a
            between.append(self._faces[axis] * (in_series(half, axis) if a.ndim else a))
        if self._medium.foils:
            faces = [self._cover.of_edges(axis) for axis in range(self._axes)]
            self._medium.with_foils(self._parameters.grid, self._wide, between, faces)
        return between

    def _with_velocity(self, between: list[torch.Tensor], named: Tensors) -> list[Edges]:
        """Return what flows between nodes where something may be carried; see `fitted`."""
        every: list[Edges] = []
        for axis, (letter, k) in enumerate(zip(letters(self._axes), between, strict=True)):
            name = f"b{letter}"
            if name not in named and not self._constant.get(name):
                every.append((k, None))
                continue
            low, high = ends(axis, self._axes)
            b = self._around(named, name, 0.0).expand(self._volumes.shape)
            half = 0.25 * self._h / self._sides[axis] * self._cover.of_edges(axis)
            more = half * (b[low] + b[high])
            if self._outlines is None:
                every.append((fitted_mean(k, more), more))
                continue
            conducts = k > 0
            mean = fitted_mean(torch.where(conducts, k, 1.0), more)
            every.append((torch.where(conducts, mean, 0.0), torch.where(conducts, more, 0.0)))
        return every

    def _is_plain(self, named: Tensors) -> bool:
        """Say whether nothing but a diffusion at all nodes of a rectangle or box makes what flows."""
        velocities = [f"b{letter}" for letter in letters(self._axes)]
        return (
            self._outlines is None
            and not self._medium.foils
            and not any(name in named or self._constant.get(name) for name in velocities)
            and all(a.shape == self._volumes.shape for a in self._diffusion(named))
        )

    def _counting(self, of_edges: torch.Tensor, step: Step) -> torch.Tensor:
        """Return what the edges along a step have that are inside of a shape."""
        if self._outlines is None:
            return of_edges
        low, high = ends_of(step)
        return torch.where(self._counts[low] & self._counts[high], of_edges, 0.0)

    def _per_cell(self, values: torch.Tensor) -> bool:
        return values.shape == tuple(n - 1 for n in self._volumes.shape)

    def _across_cells(self, named: Tensors) -> tuple[torch.Tensor, ...]:
        """Return the conductances of the edges along each axis, and across the faces of cells, of tensors."""
        mixed = names_of(self._axes)[self._axes :]
        tensor = [*self._diffusion(named), *(self._around(named, name, 0.0) for name in mixed)]
        cells = tuple(n - 1 for n in self._volumes.shape)
        corners = [
            [values[there] if values.shape == self._volumes.shape else values for values in tensor]
            for there in corners_of(cells)
        ]
        several = any(values.shape == self._volumes.shape for values in tensor)
        of_cells = [
            _padded((values / scale).expand(cells), 0.0)
            for values, scale in zip(
                mean_of_corners(corners if several else corners[:1]),
                products(self._sides),
                strict=True,
            )
        ]
        along, across = between_nodes(of_cells, bilinear=self._medium.bilinear)
        return *along, *across

    def __call__(
        self,
        named: Tensors,
        before: Tensors,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Tensors | None = None,
    ) -> torch.Tensor:
        """Return what it is, whose derivatives by what is given are those of the functional.

        ``named``: of the wide nodes or the cells between them, of sides all; ``before``: the same as constants;
        ``w``: the derivatives of the functional by each value; ``rises``: of what is given on outlines, by name.
        """
        if self._outlines is not None:
            u = torch.where(self._counts & u.isfinite(), u, 0.0)
            v = torch.where(self.active & v.isfinite(), v, 0.0)
        imposed = torch.zeros((), dtype=torch.float64)
        for name, (which, places, weights) in self._acting.items():
            held = name in named and self._parameters.held(name)
            if held and named[name].requires_grad and len(places):
                change = weights * (named[name] - before[name]).reshape(-1)[which]
                u = u.reshape(-1).index_add(0, places, change).reshape(u.shape)
                by_held = torch.where(self._held, w, 0.0).reshape(-1)
                imposed = imposed + (by_held[places] * change).sum()
        return imposed + self._tested(named, before, u, v, w, rises or {})

    def _tested(
        self,
        named: Tensors,
        before: Tensors,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Tensors,
    ) -> torch.Tensor:
        """Return the sum of the adjoint times the equations, negative."""
        total = torch.zeros((), dtype=torch.float64)
        steps = [*steps_along(self._axes), *steps_across(self._axes)]
        edges: list[Edges] = []
        if self._medium.couples_corners:
            edges = [(k, None) for k in self._across_cells(named)]
        elif self._is_plain(named):
            along = steps_along(self._axes)
            total = flow_between_nodes(self._diffusion(named), self._faces, u, v, along)
        else:
            edges = self._with_velocity(self._conductances(named), named)
        for (mean, more), step in zip(edges, steps, strict=False):
            total = total + flow(self._counting(mean, step), u, v, step)
            if more is not None:
                total = total + flow(self._counting(more, step), u, v, step, way=1)
        c = self._in_volumes(self._around(named, "c", 0.0))
        f = self._in_volumes(self._around(named, "f", 0.0, counts=False))
        acts = bool(c.ndim or c.requires_grad or c)
        if acts or f.requires_grad or v.requires_grad:  # for derivatives by others it is nothing
            weights = self._volumes * v
            total = total + tested(f, weights)
            total = total - tested(c * u, weights) if acts else total
        total = total + self._through_sides(named, u, v)
        if self._outlines is not None:
            total = total + self._outlines(named, before, edges, u, v, w, rises)
        return total

    def _through_sides(self, named: Tensors, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return what flows in through natural sides of the rectangle, tested."""
        total = torch.zeros((), dtype=torch.float64)
        for name, (which, places, weights) in self._acting.items():
            if self._parameters.held(name):
                continue
            flat = self._h * weights * v.reshape(-1)[places]
            if name in named:
                total = total + (flat * named[name].reshape(-1)[which]).sum()
            if name + ".alpha" in named:
                alpha = named[name + ".alpha"]
                alpha = alpha.reshape(-1)[which] if alpha.ndim else alpha
                total = total - (alpha * flat * u.reshape(-1)[places]).sum()
        return total


def _padded(cells: torch.Tensor, value: float = 1.0) -> torch.Tensor:
    """Return values of cells with one more all around."""
    return torch.nn.functional.pad(cells, (1, 1) * cells.ndim, value=value)
