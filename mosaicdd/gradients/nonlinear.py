"""The Lagrangian of nonlinear equations: on whole patches, or by flows as `NonlinearEquations`.

Between periodic sides fields of the residual have the values of the first side on both, which has all of the derivatives.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import at, ends
from mosaicdd.discretisation.cut_cells import CutEdges
from mosaicdd.gradients.lagrangian import ActingOutlines, Inputs, Lagrangian, OutlineFlows, tested
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import StencilValues, neighbours_of


def _axes_of(parameters: Parameters, name: str, shape: tuple[int, ...]) -> list[int]:
    """Return the periodic axes along which the last values of a field do not count."""
    operator, grid = parameters.problem.operator, parameters.grid
    if operator.linear or shape != grid.nodes:
        return []
    if name not in operator.residual_fields or name == operator.factor:
        return []
    periods = parameters.problem.conditions.periods(grid)
    return [axis for axis, period in enumerate(periods) if period is not None]


def with_first(
    parameters: Parameters, named: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return fields of the whole grid with the first values also last along periodic axes."""
    fields = dict(named)
    for name, values in named.items():
        for axis in _axes_of(parameters, name, tuple(values.shape)):
            most = fields[name].narrow(axis, 0, values.shape[axis] - 1)
            fields[name] = torch.cat([most, fields[name].narrow(axis, 0, 1)], axis)
    return fields


def to_first(
    parameters: Parameters,
    gradient: Mapping[str, torch.Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    own: Part,
    add: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Move derivatives by last values to the first, in place; all processes together.

    ``gradient``: by fields, at the own nodes; ``shapes``: of what they were given; ``add``: adds up over processes.
    """
    nodes = parameters.grid.nodes
    for name, shape in shapes.items():
        for axis in _axes_of(parameters, name, shape):
            others = tuple(p for number, p in enumerate(own) if number != axis)
            line = np.zeros([n for number, n in enumerate(nodes) if number != axis])
            slope, part = gradient.get(name), own[axis]
            if slope is not None and part.stop == nodes[axis]:
                last = slope.select(axis, nodes[axis] - 1 - part.start)
                line[others] = last.numpy()
                last.zero_()
            line = add(line)
            if slope is not None and part.start == 0:
                slope.select(axis, 0).add_(torch.from_numpy(line[others]))


class NonlinearLagrangian(Lagrangian):
    """As `Lagrangian`; outermost of the wide nodes within the grid count as neighbours only."""

    @property
    def operator(self) -> Nonlinear:
        """The nonlinear operator of the problem."""
        operator = self._parameters.problem.operator
        if operator.linear:
            raise TypeError(f"a nonlinear operator is needed, got {operator}")
        return operator

    @property
    def _medium(self) -> Medium:
        return self.operator.faces

    def _tested(
        self, inputs: Inputs, u: torch.Tensor, v: torch.Tensor, w: torch.Tensor
    ) -> torch.Tensor:
        axes, named, v = self._axes, inputs.named, torch.where(self.active, v, 0.0)
        operator = self.operator.with_numbers({n: named[n] for n in self._parameters.numbers})
        taken = {name: self._of_residual(name, inputs) for name in operator.residual_fields}
        fields = {name: StencilValues.of(_ringed(values), axes) for name, values in taken.items()}
        if operator.two_point_flux and (operator.by_flows or not self._parameters.problem.plain):
            unit = torch.ones((), dtype=torch.float64)
            factor = {"a": named.get(operator.factor or "", unit)}
            between = self._between(replace(inputs, named=factor), torch.zeros(()))
            inside = between if self._outlines is None else between.among(self._counts, torch)
            patch = StencilValues.of(_ringed(u), axes)
            reaction, through = operator.through_faces(patch, inside.along, fields, self.h)
            total = -(self._volumes * reaction * v).sum()
            for axis, (forth, back) in enumerate(through):
                low, high = ends(axis, axes)
                total = total - (forth * v[low]).sum() - (back * v[high]).sum()
            if self._outlines is not None:
                flows = self._through_outlines(self._outlines, operator, fields, u, between)
                total = total + self._outlines(inputs, between, u, v, w, flows)
        else:
            if self._outlines is not None:
                u = self._outlines.imposed(u, inputs)
            cells = self._quarters
            if operator.factor is not None:  # which each cell's energy is multiplied by
                factors = self._within(named[operator.factor])
                cells = cells * torch.nn.functional.pad(factors, (1, 1) * axes, value=1.0)
            patch = StencilValues.of(_ringed(u), axes, cells=cells)
            total = -(self.h**2 * operator.at(patch, fields, self.h) * v).sum()
            if self._outlines is not None:
                total = total + self._outlines.imposed_by(w, inputs)
                values, tests = u.reshape(-1), v.reshape(-1)
                total = total + self._outlines.inflow(inputs, values, tests, _unit_diffusion)
        f = self._in_volumes(self._around(inputs, "f", 0.0, counts=False))
        total = total + tested(f, self._volumes * v)
        return total + self._through_sides(named, u, v)

    def _of_residual(self, name: str, inputs: Inputs) -> torch.Tensor:
        """Return a field of the residual, at periodic sides that of the first."""
        operator = self.operator
        if name == operator.factor:
            return torch.ones((), dtype=torch.float64)
        values = self._around(inputs, name, float(name in operator.signs))
        if values.ndim and self._per_cell(values):  # of which each side has its own
            return self._in_volumes(values)
        whole = values.shape == self._parameters.grid.nodes
        return with_first(self._parameters, {name: values})[name] if whole else values

    def _within(self, factor: torch.Tensor) -> torch.Tensor:
        """Return a factor per cell, 1 where a mask has nothing of a cell."""
        values = self._around(Inputs({"a": factor}, {}), "a", 1.0)
        return values.expand([n - 1 for n in self._volumes.shape]) if not values.ndim else values

    def _through_outlines(
        self,
        outlines: ActingOutlines,
        operator: Nonlinear,
        fields: dict[str, StencilValues],
        u: torch.Tensor,
        between: Conductances,
    ) -> OutlineFlows:
        """Return the flows out of nodes beside an outline; see `ActingOutlines`."""
        axes, u = self._axes, u.reshape(-1)
        steps = [at(axis, axes, way, 0) for axis in range(axes) for way in (1, -1)]
        order = [steps.index(step) for step in neighbours_of(axes)]

        def out(nodes: np.ndarray, rises: torch.Tensor) -> torch.Tensor:
            """Return the flows out of flat nodes to values that rise from theirs, ``(axes, 2, T)``, where faces are 1."""
            at_nodes = {
                name: StencilValues(*(v.reshape(-1)[nodes] if v.ndim else v for v in patch.values))
                for name, patch in fields.items()
            }
            beside = [u[nodes] + rises.flatten(0, 1)[number] for number in order]
            _, flows = operator.flows([u[nodes], *beside], at_nodes, self.h)
            ordered = [flows[order.index(number)] for number in range(len(steps))]
            return self.h**2 * torch.stack(ordered).reshape(axes, 2, -1)

        def falls(values: torch.Tensor) -> torch.Tensor:
            parts, first = [torch.zeros(0, dtype=torch.float64)], 0
            for edges in outlines.ties:
                nodes = edges.crossings.nodes
                rises = values[first : first + len(nodes)] - u[nodes]
                flows = out(nodes, rises.expand(axes, 2, -1))
                parts.append(flows[edges.axis, int(edges.against)])
                first += len(nodes)
            return torch.cat(parts)

        def diffusion() -> torch.Tensor:
            """Return the coefficient of the flows, as `NonlinearEquations` has it."""
            nodes = outlines.natural.nodes
            faces = torch.from_numpy(self._faces_beside(nodes, outlines.ties))
            rises = torch.zeros(faces.shape, dtype=torch.float64, requires_grad=True)
            (along,) = torch.autograd.grad(out(nodes, rises).sum(), rises, create_graph=True)
            factors = self._factors_beside(between, nodes)
            return -(faces * factors * along).sum((0, 1)) / faces.sum((0, 1))

        return falls, diffusion

    def _faces_beside(self, nodes: np.ndarray, ties: Sequence[CutEdges]) -> np.ndarray:
        """Return the apertures of faces around flat nodes, at most 1, ``(axes, 2, T)``; as of `NonlinearEquations`."""
        nodes, index = np.unique(nodes, return_inverse=True)
        faces = tuple(face.numpy() for face in self._cover.edge_faces)
        counting = Conductances(faces, np.zeros(self._counts.shape)).among(self._counts.numpy())
        beside = counting.beside(nodes)
        for edges in ties:
            at_nodes = edges.crossings.nodes
            which = np.flatnonzero(np.isin(at_nodes, nodes))
            grown = faces[edges.axis][edges.place] * edges.crossings.weights
            place = np.searchsorted(nodes, at_nodes[which])
            beside[edges.axis, int(edges.against), place] = grown[which]
        return beside.clip(max=1.0)[..., index]

    def _factors_beside(self, between: Conductances, nodes: np.ndarray) -> torch.Tensor:
        """Return the factors of flows through faces around flat nodes, 1 without a face, ``(axes, 2, T)``."""
        none: Any = torch.zeros(())
        faces = Conductances(self._cover.edge_faces, none).beside(nodes, torch)
        squares = torch.tensor([side**2 for side in self._sides], dtype=torch.float64)
        conducts = between.beside(nodes, torch) * squares[:, None, None]
        return torch.where(faces > 0, conducts / torch.where(faces > 0, faces, 1.0), 1.0)


def _unit_diffusion() -> torch.Tensor:
    """Return 1: the diffusion of an equation whose flows are not taken apart."""
    return torch.ones((), dtype=torch.float64)


def _ringed(values: torch.Tensor) -> torch.Tensor:
    """Return values with one more all around, like those next to them; a number is one."""
    if not values.ndim:
        return values
    ring = (1, 1) * values.ndim
    return torch.nn.functional.pad(values[None, None], ring, mode="replicate")[0, 0]


def lagrangian_of(parameters: Parameters) -> type[Lagrangian]:
    """Return the kind that a problem has."""
    return Lagrangian if parameters.linear else NonlinearLagrangian
