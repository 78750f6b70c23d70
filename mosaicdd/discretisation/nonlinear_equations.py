r"""Nonlinear equations on any domain, as sums of flows through the faces of control volumes.

A residual whose neighbours count one by one, as that of a reaction and of diffusion whose coefficient depends on
the values at both ends of a grid edge, is a reaction and a flow through each of the four faces, in space six,

$$F(u_0; u_1, u_2, \ldots) = R(u_0) + \sum_k W_k(u_0, u_k), \qquad R(u_0) = F(u_0; u_0, \ldots, u_0),$$

where $W_k$ is what $F$ rises by if only the neighbour $k$ is not $u_0$. What a domain has of volumes and faces is that of
linear equations (`Discretisation`, most often of the conductance 1): flows are taken times the part of the face, the
reaction times that of the volume, and a given value at $\theta$ of an edge stands for the neighbour, in a flow
that is divided by $\theta$. So of a linear equation it is the linear discretisation. What multiplies all flows, as a
permittivity does, is put into the conductances of the faces, per cell or node. Of other fields per cell each cell has
flows and a reaction of its own (`in_cells`), or, where a reaction is linear in them, a node has the mean over its volume.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.axes import at, grown, sizes
from mosaicdd.discretisation.crossings import NO_TIES
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.in_cells import InCells
from mosaicdd.discretisation.node_equations import Equations, RowWeights
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.operators.jacobian import NotEllipticError, conductances_of, require_positive
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear_part import NonlinearPart
from mosaicdd.problems.operators.patch import Offset, StencilValues, neighbours_of, offsets
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.sampling import cells_around


@dataclass(frozen=True)
class NonlinearData:
    """The values, sources and fluxes of one problem on a part of the grid."""

    # Values that are given at the ends of ties, first those on the sides of the rectangle
    beside: np.ndarray
    source: np.ndarray  # into the volumes of the active nodes, ``(K,)``
    inflow: np.ndarray  # of fluxes through the sides of the rectangle, ``(K,)``
    fluxes: np.ndarray  # at the pieces of natural outlines, ``(T,)``
    # Where in the ring values are given at nodes, and these; of residuals that couple nodes across cells
    held: tuple[tuple[np.ndarray, ...], np.ndarray]


class NonlinearDiscretisation:
    """The discretisation that nonlinear problems of one operator, domain and kind of sides share.

    `ValueError` if conditions do not fit the domain, or a part of it has no given value and no reaction.
    `Unsupported` if neighbours do not count one by one, unless the domain is of whole cells, of which the residual is a
    sum (`Nonlinear.by_cells`): then each adds what it has of it, and nothing is taken apart into flows.

    Parameters
    ----------
    problem
        Whose source and values on the outline do not count.

    Attributes
    ----------
    periods
        After how many nodes of the grid.
    faces
        The discretisation of an equation with the factor of flows as conductance.
    """

    def __init__(self, problem: Problem, grid: Grid):
        operator = problem.operator
        if operator.linear:
            raise TypeError(f"a nonlinear operator is needed, got {operator}")
        shape = problem.domain.shape
        whole = shape is None or shape.voxels is not None
        operator.require_flows(problem.equation.name, whole_cells=whole)
        self.operator, self.grid, self._problem = operator, grid, problem
        self.periods = problem.conditions.periods(grid)
        self.faces = Discretisation(problem, operator.faces, grid)
        values = self.faces.values(problem)
        self.known = values.known
        free = not (len(values.known) or values.exchange.any())
        if (outline := self.faces.outline) is not None:
            free &= outline.free

        def inside(part: Part) -> np.ndarray | bool:
            return True if outline is None else outline.level(part) < 0

        if self.faces.floating or (free and not operator.reacts(grid, inside)):
            raise ValueError(
                "no value is given on any side, and there is no exchange or reaction: the level of the "
                "solution is not known; give a value, robin, or the field c"
            )

    def factors(self, part: Part) -> tuple[np.ndarray, ...]:
        """Return the factors of the flows along the edges of a part, 1 where there are none."""
        plain = Medium({"a": Field("a", 1.0, len(part))}, self.operator.aspect)
        unit = Discretisation(self._problem, plain, self.grid)
        factor, faces = (on.between(part)[0].along for on in (self.faces, unit))
        axes = zip(factor, faces, strict=True)
        return tuple(np.where(face > 0, k / np.where(face > 0, face, 1.0), 1.0) for k, face in axes)


_STRIP = 2**16  # nodes whose residuals are differentiated at a time: they stay in the cache


class NonlinearEquations:
    """The equations at the active nodes of a part of the grid: ``K`` of them, ``T`` pieces of outlines.

    ``part``: nodes of the grid; where it ends inside, the outermost count as neighbours only. ``active``:
    ``(rows, columns)``.
    """

    def __init__(self, discretisation: NonlinearDiscretisation, part: Part):
        self.grid, self.part = discretisation.grid, part
        self.periods = discretisation.periods
        self.operator = discretisation.operator
        self._discretisation = discretisation
        shape = sizes(part)
        inner = tuple(slice(1, n + 1) for n in shape)
        self._ring = grown(part)
        self._around = around = discretisation.faces.equations(self._ring)
        self._faces = faces = around.part(*inner)
        self.active = faces.active
        self._nodes = np.flatnonzero(self.active)
        self._number = np.full(self.active.size, -1)
        self._number[self._nodes] = np.arange(len(self._nodes))
        self._place_neighbours(around, shape)
        self._place_outlines()
        # The fields at the nodes of the ring, ``(rows, columns)``; a number takes no memory.
        cover, _ = discretisation.faces.cover(self._ring, self.periods)
        self._fields = self.operator.sampled(self.grid, self._ring, cover, self.periods)
        self._in_cells: InCells | None = None
        if self.operator.in_cells:
            where = self._ring, self._centres, cover, self.periods
            self._in_cells = InCells(self.operator, self.grid, *where)
        self._across: NonlinearPart | None = None
        if not self.operator.two_point_flux:
            # Of cells that no outline cuts all corners have the same.
            shares = len(cover.quarters) * cover.quarters[0]
            if self.operator.factor is not None:
                factor = self.operator.fields[self.operator.factor]
                values = cells_around(factor, self.grid, self._ring, cover, periods=self.periods)
                shares = shares * values[0]
            cells = torch.from_numpy(shares[(slice(1, -1),) * len(shape)])
            sampled = self.grid, self._ring, self._fields, cells
            self._across = NonlinearPart(self.operator, *sampled)

    def _place_neighbours(self, around: Equations, shape: tuple[int, ...]) -> None:
        """Find the weights of the flows, ``(2 axes, K)``, and the neighbours' places in the `_pool`."""
        beside = neighbours_of(len(shape))
        self._weights = self._at_nodes(around.conductances.along)
        ring = tuple(n + 2 for n in shape)
        places = np.unravel_index(self._nodes, shape)
        self._centres = np.ravel_multi_index(tuple(n + 1 for n in places), ring)
        steps = np.array([_flat(offset, ring) for offset in beside])
        # A neighbour that does not count is the node itself.
        self._others = np.where(self._weights > 0, self._centres + steps[:, None], self._centres)
        ties, first = self._faces.ties, math.prod(ring)
        held = self._discretisation.known[ties.known] - [p.start for p in self.part]
        self._tie(ties.nodes, held, ties.conductances, first + ties.known)
        first += len(self._discretisation.known)
        if self._faces.outlines is not None:
            crossings = self._faces.outlines.ties
            ends = crossings.points - [p.start for p in self.part]
            self._tie(
                crossings.nodes, ends, crossings.weights, first + np.arange(len(crossings.nodes))
            )
        self._size = math.prod(ring)

    def _at_nodes(self, along: Sequence[np.ndarray]) -> np.ndarray:
        """Return values of the ring's edges at the active nodes towards their neighbours, ``(2 axes, K)``."""
        sides, axes = [], len(along)
        for offset in neighbours_of(axes):
            axis = int(np.flatnonzero(offset)[0])
            faces = slice(1, None) if offset[axis] > 0 else slice(None, -1)
            sides.append(along[axis][at(axis, axes, faces, slice(1, -1))])
        return np.stack([side.ravel()[self._nodes] for side in sides])

    def _tie(
        self, nodes: np.ndarray, ends: np.ndarray, weights: np.ndarray, places: np.ndarray
    ) -> None:
        """Enter flows to given values, at ``ends`` ``(T, axes)`` from the first node of the part."""
        away = ends - np.stack(np.unravel_index(nodes, self.active.shape), axis=1)
        for axis, period in enumerate(self.periods):
            if period is not None:  # the nearest one of all rounds
                away[:, axis] -= period * np.round(away[:, axis] / period).astype(away.dtype)
        axes = away.shape[1]
        # Of each axis, which neighbour is where it falls, and where it rises.
        steps = neighbours_of(axes)
        number = [[steps.index(at(a, axes, s, 0)) for s in (-1, 1)] for a in range(axes)]
        axis = np.argmax(abs(away), axis=1)
        rises = away[np.arange(len(away)), axis] > 0
        place = np.array(number)[axis, rises.astype(int)], self._number[nodes]
        self._weights[place] = weights
        self._others[place] = places

    def _place_outlines(self) -> None:
        """Find the exchange with sides and outlines."""
        h, faces = self.grid.spacing, self._discretisation.faces
        self._exchange = h * faces.on_sides(self.part, faces.exchange[None]).ravel()[self._nodes]
        outlines = self._faces.outlines
        self._pieces = (
            None if outlines is None or not len(outlines.natural.nodes) else outlines.natural
        )
        if self._pieces is not None:
            self._on_outline = self._number[self._pieces.nodes]
            factors: np.ndarray | float = 1.0
            if (
                self.operator.factor is not None
                and (self._pieces.alphas * self._pieces.distances).any()
            ):
                factors = self._at_nodes(self._discretisation.factors(self._ring))
                factors = factors[:, self._on_outline]
            sides = self.grid.aspect or (1.0,) * self.active.ndim
            squares = [sides[step.index(sum(step))] ** 2 for step in neighbours_of(len(sides))]
            weights = self._weights[:, self._on_outline] * np.array(squares)[:, None] / factors
            self._factors = torch.as_tensor(factors)
            self._faces_beside = torch.from_numpy(weights).clamp(max=1.0)

    def data(self, problem: Problem, number: int) -> NonlinearData:
        """Evaluate the data of one of several problems; raise `ValueError` if values are not sound."""
        faces, outlines, h = self._discretisation.faces, self._faces.outlines, self.grid.spacing
        values = faces.values(problem)
        inflow = h * faces.on_sides(self.part, values.fluxes)
        inflow = inflow[number % len(inflow)].ravel()[self._nodes]
        source = np.zeros(len(self._nodes))
        if problem.source is not None:
            f = faces.loads(problem.source, self.part, self._faces.volumes)
            source = h**2 * f[number % len(f)].ravel()[self._nodes]
        beside, fluxes = [values.values[number % len(values.values)]], np.zeros((1, 0))
        if outlines is not None and faces.outline is not None:
            where = problem.conditions, faces.outline.names, self.grid
            tied = outlines.ties.values(*where)
            beside.append(tied[number % len(tied)])
            fluxes = outlines.natural.values(*where)
        held: tuple[tuple[np.ndarray, ...], np.ndarray] = (), np.empty(0)
        if self._across is not None:
            place, at_nodes = faces.given(problem, values, self._ring, self._around.outlines)
            held = place, at_nodes[number % len(at_nodes)]
        fluxes = fluxes[number % len(fluxes)]
        return NonlinearData(np.concatenate(beside), source, inflow, fluxes, held)

    def residual(self, u: np.ndarray, data: NonlinearData) -> np.ndarray:
        """Return the residual with the source, times the squared spacing, ``(rows, columns)``.

        It is zero where there is no unknown.
        """
        pool, residual = self._pool(u, data), np.empty(len(self._nodes))
        if self._across is not None:
            residual = self._across.residual(self._with_held(u, data)).ravel()[self._nodes]
        else:
            with torch.no_grad():
                for strip in self._strips():
                    values = self._values(pool, strip)
                    residual[strip] = self._outflow(values, strip).numpy()
        residual += self._exchange * pool[self._centres].numpy() - data.inflow - data.source
        if self._pieces is not None:
            held = pool[self._centres[self._on_outline]].requires_grad_()
            np.add.at(residual, self._on_outline, -self._inflow(held, data).detach().numpy())
        return self.scattered(residual)

    def derivative(self, u: np.ndarray, data: NonlinearData) -> Equations:
        """Return the Jacobian at the nodes of the part, as linear equations of a change.

        `NotEllipticError` if it is that of no elliptic equation, so that there are no conductances.
        """
        return self.weighed_derivative(u, data)[0]

    def weighed_derivative(
        self, u: np.ndarray, data: NonlinearData
    ) -> tuple[Equations, RowWeights]:
        """Return the `derivative`, and weights of its rows by ties to given values, not reactions.

        A reaction is what makes an equation nonlinear, and it may be far larger at first values.
        """
        pool, tied = self._pool(u, data), self._exchange.copy()
        if self._pieces is not None:
            held = pool[self._centres[self._on_outline]].requires_grad_()
            (slope,) = torch.autograd.grad(self._inflow(held, data).sum(), held)
            np.add.at(tied, self._on_outline, -slope.numpy())
        if self._across is not None:
            partial, fixed = self._partials_across(self._across, u, data)
        else:
            partial, fixed = self._partials(pool), self._others >= self._size
        partial[0] += tied
        self._require_elliptic(partial)
        tied -= np.where(fixed, partial[1:], 0.0).sum(0)
        partial[1:][fixed] = 0.0
        steps = offsets(self.active.ndim)[: len(partial)]
        along = dict(zip(steps, map(self.scattered, partial), strict=True))
        whole = conductances_of(along, symmetric=self.operator.self_adjoint)
        conductances = whole.part(*tuple(slice(1, n + 1) for n in self.active.shape))
        conductances.reaction[~self.active] = 1.0
        equations = Equations(conductances, self.active, self._faces.volumes, NO_TIES)
        return equations, RowWeights.by(self._nodes, tied, conductances)

    def _partials(self, pool: torch.Tensor) -> np.ndarray:
        """Return the derivatives at the active nodes by their own values and those beside, ``(1 + 2 axes, K)``."""
        partial = np.zeros((1 + len(self._others), len(self._nodes)))
        for strip in self._strips():
            leaves = [values.clone().requires_grad_() for values in self._values(pool, strip)]
            gradients = torch.autograd.grad(self._outflow(leaves, strip).sum(), leaves)
            partial[:, strip] = torch.stack(gradients).numpy()
        return partial

    def _partials_across(
        self, across: NonlinearPart, u: np.ndarray, data: NonlinearData
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives by nodes across cells, too, and which of these have no unknown."""
        partials = across.partials(self._with_held(u, data), self._ring)
        steps = offsets(u.ndim)
        partial = np.zeros((len(steps), len(self._nodes)))
        for values, step in zip(partial, steps, strict=True):
            if step in partials:
                values[:] = partials[step].ravel()[self._nodes]
        ring = sizes(self._ring)
        beside = self._centres + np.array([_flat(step, ring) for step in steps[1:]])[:, None]
        return partial, ~self._around.active.ravel()[beside]

    def _with_held(self, u: np.ndarray, data: NonlinearData) -> np.ndarray:
        """Return values at the nodes of the ring, with those that are given; what is beyond the part like what is next to it."""
        values = np.pad(u, 1, mode="edge")
        place, at_nodes = data.held
        values[place] = at_nodes
        return values

    def completed(
        self, u: np.ndarray, problem: Problem, number: int, *, beyond: bool = False
    ) -> np.ndarray:
        """Return values with those given at nodes; outside they are NaN.

        ``beyond``: whether the unknowns beyond natural outlines keep theirs.
        """
        faces, outlines = self._discretisation.faces, self._faces.outlines
        u = np.where(self.active, u, 0.0)
        if outlines is not None:
            u[~(outlines.reported | (beyond & self.active))] = np.nan
        place, values = faces.given(problem, faces.values(problem), self.part, outlines)
        u[place] = values[number % len(values)]
        return u

    def _require_elliptic(self, partial: np.ndarray) -> None:
        """Check the derivatives by the neighbours, and the nodes' own values; NaN passes, as an iteration's end."""
        wrong = (partial[1:] >= 0) & (self._weights > 0) if self._across is None else partial[:0]
        if wrong.any():
            raise NotEllipticError(
                f"the equation's derivative by a neighbour is not negative at {int(wrong.sum())} of "
                f"{wrong.size} places: the grid is too coarse for it, or a coefficient that depends on "
                "the solution is not positive there"
            )
        require_positive(partial[0])

    def _pool(self, u: np.ndarray, data: NonlinearData) -> torch.Tensor:
        """Return all values that may stand beside a node; beyond the part those next to it."""
        return torch.from_numpy(np.concatenate([np.pad(u, 1, mode="edge").ravel(), data.beside]))

    def _strips(self) -> Iterator[slice]:
        count = len(self._nodes)
        return (slice(a, min(a + _STRIP, count)) for a in range(0, count, _STRIP))

    def _values(self, pool: torch.Tensor, strip: slice) -> list[torch.Tensor]:
        """Return the values at some nodes, and beside them, as `neighbours_of`."""
        return [pool[places[strip]] for places in (self._centres, *self._others)]

    def scattered(self, values: np.ndarray) -> np.ndarray:
        """Return values of the active nodes at all nodes of the part, zero elsewhere."""
        whole = np.zeros(self.active.shape)
        whole.reshape(-1)[self._nodes] = values
        return whole

    def _patches(self, places: np.ndarray) -> dict[str, StencilValues]:
        """Return the fields around nodes, by their places in the ring."""
        ring = sizes(self._ring)
        steps = [_flat(offset, ring) for offset in offsets(len(ring), corners=False)]

        def moved(values: torch.Tensor, step: int) -> torch.Tensor:
            number = not any(values.stride())
            return (
                values[(0,) * (values.ndim - 1)][:1]
                if number
                else values.reshape(-1)[places + step]
            )

        return {
            name: StencilValues(*(moved(values, step) for step in steps))
            for name, values in self._fields.items()
        }

    def _outflow(self, values: list[torch.Tensor], strip: slice) -> torch.Tensor:
        """Return the flows out of some nodes, and their reaction."""
        volumes = torch.from_numpy(self._faces.volumes.ravel()[self._nodes[strip]])
        return self._flows(values, volumes, torch.from_numpy(self._weights[:, strip]), strip)

    def _flows(
        self,
        values: list[torch.Tensor],
        volumes: torch.Tensor,
        weights: torch.Tensor,
        which: slice | np.ndarray,
    ) -> torch.Tensor:
        """Return the flows out of some nodes, and their reactions, by volumes and faces."""
        fields, h = self._patches(self._centres[which]), self.grid.spacing
        if self._in_cells is not None:
            return h**2 * self._in_cells.outflow(values, fields, volumes, weights, which)
        reaction, flows = self.operator.flows(values, fields, h)
        total = volumes * reaction
        for flow, weight in zip(flows, weights, strict=True):
            total = total + weight * flow
        return h**2 * total

    def _inflow(self, u: torch.Tensor, data: NonlinearData) -> torch.Tensor:
        r"""Return the inflow through the facets of outlines, of values at their nodes, ``(T,)``.

        The node's value is taken to the outline with the coefficient of the flow that it has there.
        """
        pieces, h = self._pieces, self.grid.spacing
        if pieces is None:
            raise RuntimeError("there are pieces of outlines")
        fluxes = torch.from_numpy(data.fluxes)
        return pieces.inflow(fluxes, u, h, lambda: self._diffusion(u), of=torch)

    def _diffusion(self, u: torch.Tensor) -> torch.Tensor:
        """Return the coefficient of the flows at the nodes of the outline's pieces, of ``u``."""
        rises = [torch.zeros_like(u, requires_grad=True) for _ in self._weights]
        faces, values = self._faces_beside, [u, *(u + rise for rise in rises)]
        weights = torch.as_tensor(faces * self._factors)
        flows = self._flows(values, torch.ones_like(u), weights, self._on_outline)
        along = torch.stack(torch.autograd.grad(flows.sum(), rises, create_graph=True))
        return -along.sum(0) / faces.sum(0)


def _flat(offset: Offset, shape: tuple[int, ...]) -> int:
    """Return the distance of two nodes in a flat array."""
    total = 0
    for step, n in zip(offset, shape, strict=True):
        total = total * n + step
    return total
