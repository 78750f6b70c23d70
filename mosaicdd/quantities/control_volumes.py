"""The control volumes of a domain as if nothing were given on its sides, and their flows.

The equation of every node adds up what flows to its neighbours, what a reaction consumes, and what flows out
through outlines; what is left over of its source flows out through the sides, where the node lies on one. Nodes with
given values have volumes there, too: so what flows through a side is as good as the solution, of second order
(a *consistent* flux), and all volumes together lose nothing.

Along a periodic axis the volumes of the first and the last node are two halves, each with what is given on its own
side, so nothing of the grid is beyond it here.

Of an equation that is not linear flows are those of its residual, with nothing given on sides.
"""

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from mosaicdd.axes import grown
from mosaicdd.discretisation.crossings import BoundaryIntersections
from mosaicdd.discretisation.cut_cells import CutCells
from mosaicdd.discretisation.embedded_boundary import EmbeddedBoundary, covered, embedded_boundary
from mosaicdd.discretisation.periodic import grid_cells
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.operators.jacobian import is_conserving
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.nonlinear_part import NonlinearPart
from mosaicdd.problems.operators.patch import StencilValues, offsets
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.outline import OutlinePiece
from mosaicdd.problems.shapes.sampling import cells_around, sample_near
from mosaicdd.quantities.sums import VolumesPart
from mosaicdd.unsupported import Unsupported

T = TypeVar("T")


@dataclass(frozen=True)
class ControlVolumes:
    """The control volumes of the domain of a problem.

    `Unsupported` if nothing says what flows between them, see `why_no_balance`.

    Parameters
    ----------
    cache
        What does not depend on values and data, by part; None where it is not kept for further ones.
    """

    problem: Problem
    grid: Grid
    cache: dict[Hashable, Any] | None = None

    def __post_init__(self) -> None:
        if not self.cache:
            _require_flows(self.problem)

    @cached_property
    def nonlinear(self) -> Nonlinear | None:
        """The operator of an equation that is not linear."""
        operator = self.problem.operator
        return self.kept("nonlinear", lambda: None if operator.linear else operator)

    @cached_property
    def medium(self) -> Medium:
        """The coefficients of the flows."""
        operator = self.problem.operator
        return self.kept(
            "medium", lambda: medium_of(operator) if operator.linear else operator.faces
        )

    @cached_property
    def outline(self) -> EmbeddedBoundary | None:
        """The outline of a shape."""
        return self.kept("outline", lambda: embedded_boundary(self.problem, self.grid, each=True))

    @property
    def scale(self) -> float:
        """The factor from sums over volumes to flows."""
        return self.grid.spacing ** (len(self.grid.shape) - 2)

    @cached_property
    def conserving(self) -> bool:
        """Whether a neighbour gains what a volume loses: nothing is carried."""
        medium, nonlinear = self.medium, self.nonlinear
        return self.kept(
            "conserving",
            lambda: medium.self_adjoint if nonlinear is None else is_conserving(nonlinear),
        )

    @cached_property
    def pieces(self) -> Mapping[str, OutlinePiece]:
        """The pieces of the sides, and of what is held inside, by name."""
        return self.kept("pieces", lambda: self.problem.pieces(self.grid))

    @property
    def outlines(self) -> tuple[str, ...]:
        """The names of the outlines of a shape."""
        return () if self.outline is None else self.outline.names

    def on(self, part: Part) -> VolumesPart:
        """Return the control volumes of a part of the grid."""
        key = tuple((p.start, p.stop) for p in part)
        return self.kept(key, lambda: self._made_on(part))

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what a function makes of neither values nor data, from the cache if there is one."""
        if self.cache is None:
            return make()
        if key not in self.cache:
            self.cache[key] = make()
        made: T = self.cache[key]
        return made

    def _covered(self, part: Part) -> tuple[Apertures, np.ndarray, CutCells | None]:
        return covered(self.outline, part, grid_cells(part, self.grid.shape))

    def _made_on(self, part: Part) -> VolumesPart:
        outlines, (cover, volumes, cut) = None, self._covered(part)
        whole = self.medium.conductances(self.grid, part, cover)
        present = volumes > 0
        if cut is not None:
            present &= ~cut.given

        between = dataclasses.replace(whole, reaction=whole.reaction * volumes).among(present)
        if cut is not None:
            nowhere = np.zeros(present.shape, bool)
            outlines = cut.on_outlines(present, nowhere, whole)
            diagonal = between.diagonal()
            outlines.add_to_diagonal(diagonal, self.grid.spacing)
            present = present & (diagonal > 0)
        plain = between, volumes, present, outlines
        if self.nonlinear is None:
            return VolumesPart(*plain)
        ring = grown(part)
        around, periods = self._covered(ring)[0], self.problem.conditions.periods(self.grid)
        fields = self.nonlinear.sampled(self.grid, ring, around, periods)
        shares = grid_cells(part, self.grid.shape).astype(float)
        if self.nonlinear.factor is not None and not self.nonlinear.two_point_flux:
            factor = self.nonlinear.fields[self.nonlinear.factor]
            shares = shares * cells_around(factor, self.grid, part, cover, periods=periods)[0]
        return NonlinearVolumesPart(*plain, self.nonlinear, self.grid, ring, fields, shares)

    def loads(self, here: VolumesPart, part: Part) -> np.ndarray | float:
        """Return the source times the volumes of a part, ``(n or 1, rows, columns)``."""
        source = self.problem.source
        if source is None:
            return 0.0
        values = self.near(source, part) * here.filled
        values *= self.grid.spacing**2
        return values

    def near(self, field: Field, part: Part) -> np.ndarray:
        """Return a source, or a reaction, at the nodes of a part, ``(n, rows, columns)``; zero far outside of a shape."""
        cover = None
        if field.per_cell(self.grid):
            cover = self._covered(part)[0]
        elif self.outline is not None:
            cover = Apertures(inside=self.outline.known(grown(part)))
        return sample_near(field, self.grid, part, cover, fill=0.0)

    def through_outlines(
        self, here: VolumesPart, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return nodes, outlines, ``(T,)``, and outflows, ``(n, T)``, through outlines.

        Last of all how much more with the value there, ``(T,)``.
        """
        if here.outlines is None or self.outline is None:
            return np.empty(0, int), np.empty(0, int), np.zeros((len(u), 0)), np.empty(0)
        flat, h = u.reshape(len(u), -1), self.grid.spacing
        ties, flows = here.outlines.ties, here.outlines.natural
        alphas, (held, flowing) = flows.alphas, self._given(ties, flows)
        out = [
            ties.weights * (flat[:, ties.nodes] - held),
            h * flows.weights * (alphas * flat[:, flows.nodes] - flowing),
        ]
        both, more = (
            BoundaryIntersections.joined([ties, flows]),
            (ties.weights, h * flows.weights * alphas),
        )
        return both.nodes, both.outlines, np.concatenate(out, axis=1), np.concatenate(more)

    def _given(self, *acting: BoundaryIntersections) -> list[np.ndarray]:
        """Return the values of conditions where outlines act, ``(n or 1, T)``."""
        names = () if self.outline is None else self.outline.names
        return [terms.values(self.problem.conditions, names, self.grid) for terms in acting]

    def in_ties(self, here: VolumesPart, u: np.ndarray, inner: tuple[slice, ...]) -> np.ndarray:
        """Return ``k (u - g)^2`` over the ties of some nodes to values on outlines, summed, ``(n,)``."""
        if here.outlines is None or self.outline is None:
            return np.zeros(len(u))
        ties, owned = here.outlines.ties, np.zeros(here.present.shape, bool)
        owned[inner] = True
        which = np.flatnonzero(owned.reshape(-1)[ties.nodes])
        ties = ties.chosen(which, ties.nodes[which])
        fall = u.reshape(len(u), -1)[:, ties.nodes] - self._given(ties)[0]
        return (ties.weights * np.square(fall)).sum(axis=1)


def why_no_balance(problem: Problem) -> str:
    """Say why no flows between neighbours are defined; nothing if they are."""
    operator = problem.operator
    if problem.equation.steady is not None:
        return "is an equation in time"
    if not operator.linear:
        if problem.domain.shape is not None:
            return "is not linear, and its domain is no rectangle or box"
        if not (operator.two_point_flux or operator.by_cells):
            return "is not linear, and couples the differences along the axes"
        if operator.in_cells:
            return f"is not linear, and by the field {operator.in_cells[0]} each cell has flows of its own"
    if operator.constant and operator.c < 0:
        return f"describes waves, c is {operator.c:g}"
    return ""


def _require_flows(problem: Problem) -> None:
    if why := why_no_balance(problem):
        raise Unsupported(
            f"{problem.equation.name} {why}: fluxes, flows, balances and energies are of steady equations, of those that are "
            "not linear on rectangles and boxes; integrals, means, largest values and gradients are of all"
        )


@dataclass(frozen=True)
class NonlinearVolumesPart(VolumesPart):
    """The control volumes of a nonlinear equation with flows of two points, or by cells.

    ``between`` are the faces, times the factor of flows where there is one; ``ring``: the nodes, and one more all around,
    where ``fields`` are known; ``cells``: what the domain has of the cells between these.
    """

    operator: Nonlinear
    grid: Grid
    ring: Part
    fields: dict[str, torch.Tensor]
    cells: np.ndarray

    def edge_flows(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the flow to the next node along each axis; `Unsupported` without flows of two points."""
        if not self.operator.two_point_flux:
            raise Unsupported(
                "what flows depends on the slope across, too, so there is no flux of each grid edge: ask for flow() "
                "and balance()"
            )
        return tuple(forth for forth, _ in self._through_faces(u))

    def to_neighbours(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the terms of neighbours along each axis in the nodes' equations, of corners evenly."""
        if self.operator.two_point_flux:
            totals = [np.zeros(u.shape) for _ in self._ends]
            ways = zip(totals, self._through_faces(u), self._ends, strict=True)
            for total, (forth, back), (low, high) in ways:
                total[low] += forth
                total[high] += back
            return tuple(totals)
        part = NonlinearPart(
            self.operator, self.grid, self.ring, self.fields, torch.from_numpy(self.cells)
        )
        around = [(0, 0), *[(1, 1)] * self.present.ndim]
        total = np.stack([part.residual(values) for values in np.pad(u, around, mode="edge")])
        total -= self.consumed(u)
        return (total / self.present.ndim,) * self.present.ndim

    def consumed(self, u: np.ndarray) -> np.ndarray:
        """Return the consumption of the reaction in each volume."""
        values = torch.from_numpy(u)
        alone = StencilValues.uniform(values, self.present.ndim)
        with torch.no_grad():
            reaction = self.operator.in_squares(alone, self._patches, self.grid.spacing)
        return self.grid.spacing**2 * self.volumes * np.broadcast_to(reaction.numpy(), u.shape)

    def falling(self, u: np.ndarray) -> np.ndarray:
        """Return the flow from each node if its value fell to zero over the domain, times the cells along it."""
        most = max(self.grid.shape)
        values = torch.from_numpy(u)
        less = [values * (1 - 1 / most)] * (2 * self.present.ndim)
        with torch.no_grad():
            if self.operator.two_point_flux:
                _, flows = self.operator.flows([values, *less], self._patches, self.grid.spacing)
            else:
                patch = StencilValues(values, *less[:1] * (len(offsets(self.present.ndim)) - 1))
                flows = [self.operator.at(patch, self._patches, self.grid.spacing)]
        total = sum(abs(flow.numpy()) for flow in flows)
        return self.grid.spacing**2 * most * np.broadcast_to(total, u.shape)

    @cached_property
    def _patches(self) -> dict[str, StencilValues]:
        return {
            name: StencilValues.of(values, self.present.ndim)
            for name, values in self.fields.items()
        }

    def _through_faces(self, u: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the flows out of the low and the high nodes of the edges along each axis."""
        axes = self.present.ndim
        ring = torch.from_numpy(np.pad(u, [(0, 0), *[(1, 1)] * axes], mode="edge"))
        faces = [torch.from_numpy(k) for k in self.between.along]
        values, h = StencilValues.of(ring, axes), self.grid.spacing
        with torch.no_grad():
            _, through = self.operator.through_faces(values, faces, self._patches, h)
        return [(forth.numpy(), back.numpy()) for forth, back in through]
