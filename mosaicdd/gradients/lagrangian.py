"""The Lagrangian of a functional and the discrete equations, whose derivatives are the gradient.

Of a functional ``J(u)`` and the adjoint ``v``, which is zero where values are given and else solves ``A v = dJ/du``,
the gradient by anything that the equations depend on is that of ``J`` at the given values less the sum of ``v`` times
the equations. Torch differentiates it. Along a periodic axis the
first and the last node are two, of the same values, each with the half of the faces and volumes on its own side.

Outlines of shapes add given values, fluxes and exchange.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import letters, within
from mosaicdd.discretisation.crossings import BoundaryIntersections, BoundaryTerms
from mosaicdd.discretisation.cut_cells import CutCells, tie_conductances
from mosaicdd.discretisation.embedded_boundary import covered
from mosaicdd.discretisation.periodic import grid_cells, places_of
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.tensors import at_corners, mean_of_corners, names_of
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.sampling import NearOutline
from mosaicdd.problems.sides.parts import is_outline

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Inputs:
    """The data of a problem by name, as tensors to differentiate by and as constants.

    Parameters
    ----------
    named
        Of fields the values at the wide nodes, or in the cells between them; of sides all.
    before
        The same as constants.
    rises
        Zeros that are added to what is given on outlines, by their names.
    uniform
        Names of numbers that are given as values at all nodes.
    """

    named: Tensors
    before: Tensors
    rises: Tensors = field(default_factory=dict)
    uniform: frozenset[str] = frozenset()

    def on(
        self, name: str, values: torch.Tensor, counts: torch.Tensor, mine: torch.Tensor
    ) -> torch.Tensor:
        """Return values, replaced by named data where these count; constants at nodes of other processes."""
        if name in self.named:
            named = torch.where(mine, self.named[name], self.before[name])
            values = torch.where(counts, named, values)
        if name in self.rises:
            values = values + torch.where(counts & mine, self.rises[name], 0.0)
        return values


OutlineFlows = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[], torch.Tensor]]
"""Returns the flows along cut edges to values at their ends ``(T,)``, where conductances are 1; the diffusion at nodes of facets."""


class ActingOutlines:
    """The terms of the outline of a shape in the Lagrangian of a part.

    Parameters
    ----------
    cut
        The outline there.
    active
        Which nodes may have an unknown.
    on
        Of conductances that are the faces alone.
    mine
        Which nodes a process speaks for: what is given counts there.

    Attributes
    ----------
    connected
        Which nodes something flows to.
    ties
        The edges from active nodes that end at given values.
    natural
        The pieces of natural outlines.
    """

    def __init__(
        self,
        parameters: Parameters,
        cut: CutCells,
        active: np.ndarray,
        on: BoundaryTerms,
        mine: np.ndarray,
    ):
        self._parameters, self._cut, self.natural = parameters, cut, on.natural
        self._h, self._mine = parameters.grid.spacing, mine.reshape(-1)
        outline = parameters.outline
        self._outlines = () if outline is None else outline.names
        parts = [parameters.problem.conditions.outline(name) for name in self._outlines]
        self._names = ["outline" if part is None else part.as_given for part in parts]
        self.ties = cut.cut_edges(active)
        self._tied = self._acting(on.ties)
        self._alphas = torch.from_numpy(on.natural.alphas)
        self._flows = self._acting(on.natural)
        self._on = self._acting(on.on)
        owned = self._mine[on.on.nodes]
        self._held = self._acting(on.on.chosen(owned, on.on.nodes[owned]))
        faces = Conductances(cut.cover.edge_faces, np.zeros(mine.shape))
        self.connected = faces.diagonal() > 0
        self.connected.reshape(-1)[on.ties.nodes] = True

    def _acting(self, crossings: BoundaryIntersections) -> tuple[torch.Tensor, ...]:
        """Return nodes, numbers of outlines, what they were given, and whether they are this process's."""
        where = self._parameters.problem.conditions, self._outlines, self._parameters.grid
        values = crossings.values(*where)[0]
        mine = self._mine[crossings.nodes]
        arrays = crossings.nodes, crossings.outlines, values.copy(), mine
        return tuple(map(torch.from_numpy, arrays))

    def _given(self, acting: Sequence[torch.Tensor], inputs: Inputs) -> torch.Tensor:
        """Return the given values at crossings."""
        _, outlines, values, mine = acting
        for number, name in enumerate(self._names):
            values = inputs.on(name, values, outlines == number, mine)
        return values

    def __call__(
        self,
        inputs: Inputs,
        between: Conductances,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        flows: OutlineFlows | None = None,
    ) -> torch.Tensor:
        """Return the terms that outlines add to the Lagrangian.

        ``between``: the conductances; ``flows``: of equations that are not linear; else as `Lagrangian`.
        """
        u, v, nodes = u.reshape(-1), v.reshape(-1), self._tied[0]

        def linear_falls(values: torch.Tensor) -> torch.Tensor:
            return u[nodes] - values

        def linear_diffusion() -> torch.Tensor:
            at_nodes: torch.Tensor = self._cut.diffusion(between, torch)
            return at_nodes.reshape(-1)[self._flows[0]]

        falls, diffusion = flows or (linear_falls, linear_diffusion)
        out = falls(self._given(self._tied, inputs)) * v[nodes]
        total = (tie_conductances(self.ties, between, torch) * out).sum()
        return self.imposed_by(w, inputs) - total + self.inflow(inputs, u, v, diffusion)

    def imposed_by(self, w: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """Return the given values at nodes on the outline, times ``w`` there."""
        return (w.reshape(-1)[self._held[0]] * self._given(self._held, inputs)).sum()

    def imposed(self, u: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """Return values with those that are given at nodes on the outline."""
        flat = u.reshape(-1).index_put((self._on[0],), self._given(self._on, inputs))
        return flat.reshape(u.shape)

    def inflow(
        self,
        inputs: Inputs,
        u: torch.Tensor,
        v: torch.Tensor,
        diffusion: Callable[[], torch.Tensor],
    ) -> torch.Tensor:
        """Return the inflow through natural outlines, tested, of flat values; ``diffusion``: as `NaturalFacets.inflow`."""
        nodes, outlines, _, mine = self._flows
        alphas = self._alphas
        for number, name in enumerate(self._names):
            alphas = inputs.on(name + ".alpha", alphas, outlines == number, mine)
        flux = self._given(self._flows, inputs)
        inflow = self.natural.inflow(flux, u[nodes], self._h, diffusion, alphas, torch)
        return (inflow * v[nodes]).sum()


class Lagrangian:
    """The Lagrangian of a process's nodes, and of those that couple them.

    ``own``, ``wide``: these nodes; they and others all around, within the grid: see `reach`.

    Attributes
    ----------
    h
        The spacing of the grid.
    reported
        Which of the wide nodes have values in a field; None if all.
    active
        Which have an unknown.
    """

    def __init__(self, parameters: Parameters, own: Part, wide: Part):
        self._parameters = parameters
        problem, grid = parameters.problem, parameters.grid
        self.h, self._axes, self._wide = grid.spacing, len(wide), wide
        conditions = problem.conditions
        cells = grid_cells(wide, grid.shape)
        cover, volumes, cut = covered(parameters.outline, wide, cells)
        self._volumes = torch.from_numpy(self.h**2 * volumes)
        self._quarters = torch.from_numpy(cover.quarters[0] * len(cover.quarters))
        self._periods = conditions.periods(grid)
        held = np.zeros(volumes.shape, bool)
        held[places_of(parameters.known, wide, self._periods)[1]] = True
        active = (volumes > 0) & ~held
        mine = np.zeros(volumes.shape, bool)
        mine[within(own, wide)] = True
        self._outlines: ActingOutlines | None = None
        self._near: NearOutline | None = None
        self._inside: torch.Tensor | None = None
        self.reported: torch.Tensor | None = None
        counts = active | held
        if cut is not None:
            held, active = held & ~cut.given, active & ~cut.given
            unit = Conductances(cover.edge_faces, np.zeros(volumes.shape))
            on = cut.on_outlines(active, held, unit)
            self._outlines = ActingOutlines(parameters, cut, active, on, mine)
            if cover.inside is None:
                raise ValueError("an outline has nodes inside")
            beyond = np.pad(np.ones(volumes.shape, bool), 1)
            self._near = NearOutline(cover.inside, beyond)
            known_in = cover.known_cells
            if known_in is not None:
                self._inside = torch.from_numpy(known_in[(slice(1, -1),) * self._axes])
            # A node on one of periodic sides has its value on the other, too, though no cell there is inside.
            nodes = np.argwhere(on.reported) + [part.start for part in wide]
            nodes %= [period or n for n, period in zip(grid.nodes, self._periods, strict=True)]
            reported = on.reported.copy()
            reported[places_of(nodes, wide, self._periods)[1]] = True
            self.reported = torch.from_numpy(reported)
            active &= self._outlines.connected
            self._volumes_counting = cut.cover.counts
            counts = active | held
        self.active, self._counts = torch.from_numpy(active), torch.from_numpy(counts)
        faces: Any = [[torch.from_numpy(face) for face in along] for along in cover.faces]
        quarters: Any = tuple(torch.from_numpy(share) for share in cover.quarters)
        self._cover = Apertures(faces, quarters)
        self.held = torch.from_numpy(mine & held)
        self._acting = {
            name: self._entries(name, mine, wide)
            for name, part in parameters.parts.items()
            if not is_outline(part.name)
        }
        self._sides = grid.aspect or (1.0,) * self._axes
        self._constant = dict(problem.parameters)
        if parameters.linear:
            numbers = {name: field.number for name, field in self._medium.fields.items()}
            self._constant |= {n: number for n, number in numbers.items() if number is not None}

    @property
    def _medium(self) -> Medium:
        medium = medium_of(self._parameters.problem.operator)
        aspect = self._parameters.grid.aspect or ()  # that numbers are divided by elsewhere
        return Medium(medium.fields, aspect, bilinear=medium.bilinear)

    @staticmethod
    def reach(parameters: Parameters) -> int:
        """Return the number of nodes around a process's that its equations reach."""
        if not parameters.linear:
            return 2
        # A value inside counts beside the outline, and so in a flux through it.
        return 1 if parameters.problem.domain.shape is None else 3

    def _entries(self, name: str, mine: np.ndarray, wide: Part) -> tuple[torch.Tensor, ...]:
        """Return the indices of a side's values that act here, their flat nodes, and weights."""
        entries = []
        # A given value holds at all copies of a node, what flows in counts once.
        periods = self._periods if self._parameters.held(name) else (None,) * self._axes
        for which, nodes, weights in self._parameters.acting(name):
            within_wide, place = places_of(nodes, wide, periods)
            counts = mine[place]
            flat = np.ravel_multi_index(place, mine.shape)
            entries.append((which[within_wide][counts], flat[counts], weights[within_wide][counts]))
        return tuple(
            torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*entries, strict=True)
        )

    def imposed(self, u: torch.Tensor, named: Tensors) -> torch.Tensor:
        """Return values with those given on sides, outlines and inside, equal on both of periodic sides.

        Of the whole grid.
        """
        u = torch.where(self.held, 0.0, u)
        for name, (which, places, weights) in self._acting.items():
            if self._parameters.held(name):
                prescribed = weights * named[name].reshape(-1)[which]
                u = u.reshape(-1).index_add(0, places, prescribed).reshape(u.shape)
        if self._outlines is not None:
            u = self._outlines.imposed(u, Inputs(named, named))
        for axis, around in enumerate(self._parameters.problem.conditions.periodic):
            if around:
                begin, rest = u.narrow(axis, 0, 1), u.narrow(axis, 0, u.shape[axis] - 1)
                u = torch.cat([rest, begin], dim=axis)
        return u

    def _around(
        self, inputs: Inputs, name: str, fill: float, *, counts: bool = True
    ) -> torch.Tensor:
        """Return a field, beside a shape as it counts there; the problem's number, or `fill`, if it is not named."""
        if name not in inputs.named:
            return torch.tensor(self._constant.get(name, fill), dtype=torch.float64)
        values = inputs.named[name]
        if self._near is None or name in inputs.uniform or not values.ndim:
            return values
        if self._per_cell(values):
            return values if self._inside is None else torch.where(self._inside, values, 1.0)
        replaced = self._volumes_counting if counts else None
        return self._near(_padded(values, torch.nan), fill, replaced, torch)

    def _in_volumes(self, values: torch.Tensor) -> torch.Tensor:
        """Return values at the nodes: of those per cell the means over volumes, right within the wide nodes."""
        return self.at_nodes(values) if values.ndim and self._per_cell(values) else values

    def at_nodes(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the means of values per cell over nodes' volumes, zero without a volume."""
        volumes = self._volumes / self.h**2
        sums = self._cover.of_volumes(_padded(cells, 0.0))
        return torch.where(volumes > 0, sums / torch.where(volumes > 0, volumes, 1.0), 0.0)

    def near_outline(self, values: torch.Tensor) -> torch.Tensor:
        """Return values at the wide nodes as `sample_near` has them: finite beside an outline, zero further out."""
        return (
            values if self._near is None else self._near(_padded(values, torch.nan), 0.0, of=torch)
        )

    def _between(self, inputs: Inputs, reaction: torch.Tensor) -> Conductances:
        """Return the conductances between the wide nodes."""
        if self._medium.couples_corners:
            return self._medium.of_tensors(self._tensors(inputs), reaction)
        named = inputs.named
        values = dict[str, torch.Tensor]()
        for letter in letters(self._axes):
            diffusion, velocity = f"a{2 * letter}", f"b{letter}"
            diffusion = diffusion if diffusion in named else "a"
            if diffusion not in values:
                values[diffusion] = self._around(inputs, diffusion, 1.0)
            if velocity in named or self._constant.get(velocity):
                values[velocity] = self._around(inputs, velocity, 0.0)
        values = {n: _padded(a) if a.ndim and self._per_cell(a) else a for n, a in values.items()}
        grid = self._parameters.grid
        return self._medium.between(values, reaction, grid, self._wide, self._cover, torch)

    def _per_cell(self, values: torch.Tensor) -> bool:
        return values.shape == tuple(n - 1 for n in self._volumes.shape)

    def _tensors(self, inputs: Inputs) -> list[torch.Tensor]:
        """Return the tensors of the cells around the wide nodes, zero beyond these."""
        names = [
            name if name in inputs.named else "a" for name in names_of(self._axes)[: self._axes]
        ]
        tensor = [self._around(inputs, name, 1.0) for name in names]
        tensor += [self._around(inputs, n, 0.0) for n in names_of(self._axes)[self._axes :]]
        cells = tuple(n - 1 for n in self._volumes.shape)
        means = mean_of_corners(at_corners(tensor, cells))
        return [_padded(values.expand(cells), 0.0) for values in means]

    def __call__(
        self, inputs: Inputs, u: torch.Tensor, v: torch.Tensor, w: torch.Tensor
    ) -> torch.Tensor:
        """Return a number whose derivatives by the inputs are those of the functional.

        ``u``, ``v``: the solution and the adjoint; ``w``: the derivatives of the functional by each value.
        """
        if self._outlines is not None:
            u = torch.where(self._counts & u.isfinite(), u, 0.0)
            v = torch.where(self.active & v.isfinite(), v, 0.0)
        named, imposed = inputs.named, torch.zeros((), dtype=torch.float64)
        for name, (which, places, weights) in self._acting.items():
            held = name in named and self._parameters.held(name)
            if held and named[name].requires_grad and len(places):
                change = weights * (named[name] - inputs.before[name]).reshape(-1)[which]
                u = u.reshape(-1).index_add(0, places, change).reshape(u.shape)
                by_held = torch.where(self.held, w, 0.0).reshape(-1)
                imposed = imposed + (by_held[places] * change).sum()
        return imposed + self._tested(inputs, u, v, w)

    def _tested(
        self, inputs: Inputs, u: torch.Tensor, v: torch.Tensor, w: torch.Tensor
    ) -> torch.Tensor:
        """Return the sum of the adjoint times the equations, negative."""
        c = self._in_volumes(self._around(inputs, "c", 0.0))
        f = self._in_volumes(self._around(inputs, "f", 0.0, counts=False))
        acts = bool(c.ndim or c.requires_grad or c)
        between = self._between(inputs, torch.zeros(()))
        inside = between if self._outlines is None else between.among(self._counts, torch)
        weights = self._volumes * v
        total = tested(f, weights) - inside.product(v, u)
        total = total - tested(c * u, weights) if acts else total
        total = total + self._through_sides(inputs.named, u, v)
        if self._outlines is not None:
            total = total + self._outlines(inputs, between, u, v, w)
        return total

    def _through_sides(self, named: Tensors, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return the inflow through natural sides, tested."""
        total = torch.zeros((), dtype=torch.float64)
        for name, (which, places, weights) in self._acting.items():
            if self._parameters.held(name):
                continue
            flat = self.h * weights * v.reshape(-1)[places]
            if name in named:
                total = total + (flat * named[name].reshape(-1)[which]).sum()
            if name + ".alpha" in named:
                alpha = named[name + ".alpha"]
                alpha = alpha.reshape(-1)[which] if alpha.ndim else alpha
                total = total - (alpha * flat * u.reshape(-1)[places]).sum()
        return total


def tested(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the sum of values, or of a number, times weights."""
    if values.ndim:
        return torch.dot(values.reshape(-1), weights.reshape(-1))
    return values * weights.sum()


def _padded(cells: torch.Tensor, value: float = 1.0) -> torch.Tensor:
    """Return values of cells with one more all around."""
    return torch.nn.functional.pad(cells, (1, 1) * cells.ndim, value=value)
