"""The Lagrangian of equations that are not linear: on whole patches, or taken apart into flows as `NonlinearEquations` does.

Fields of the residual have the values of the first of two periodic sides on both, as when they are solved with.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mosaicdd.gradients.around import with_first
from mosaicdd.gradients.between_nodes import tested
from mosaicdd.gradients.lagrangian import Lagrangian, Tensors
from mosaicdd.gradients.on_outlines import Tied
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.lattice.axes import at, ends, steps_along
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import Patch, neighbours_of


class NonlinearLagrangian(Lagrangian):
    """As `Lagrangian`; outermost of the wide nodes within the grid count as neighbours only."""

    @property
    def _operator(self) -> Nonlinear:
        operator = self._parameters.problem.operator
        if not isinstance(operator, Nonlinear):
            raise TypeError(f"a nonlinear operator is needed, got {operator}")
        return operator

    @property
    def _medium(self) -> Medium:
        return self._operator.faces

    def _tested(
        self,
        named: Tensors,
        before: Tensors,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Tensors,
    ) -> torch.Tensor:
        operator, axes = self._operator, self._axes
        v = torch.where(self.active, v, 0.0)
        taken = {name: self._of_residual(name, named) for name in operator.taken}
        fields = {name: Patch.of(_ringed(values), axes) for name, values in taken.items()}
        numbers = {name: named[name] for name in self._parameters.numbers}
        if operator.one_by_one and (operator.by_flows or not self._parameters.problem.plain):
            unit = torch.ones((), dtype=torch.float64)
            between = self._conductances({"a": named.get(operator.factor or "", unit)})
            edges = [
                self._counting(k, step) for k, step in zip(between, steps_along(axes), strict=True)
            ]
            total = -self._by_flows(edges, Patch.of(_ringed(u), axes), fields, numbers, v)
            if self._outlines is not None:
                squares = [side**2 for side in self._sides]
                faces = [square * face for square, face in zip(squares, self._faces, strict=True)]
                conducting = [square * k for square, k in zip(squares, between, strict=True)]
                kept = [self._counting(f, s) for f, s in zip(faces, steps_along(axes), strict=True)]
                flat = u.reshape(-1)
                flows = _Flows(operator, fields, numbers, flat, self._h, conducting, faces, kept)
                unfitted = [(k, None) for k in between]
                total = total + self._outlines(named, before, unfitted, u, v, w, rises, flows)
        else:
            which = named, before, rises
            if self._outlines is not None:
                u = self._outlines.imposed(u, *which)
            cells = self._quarters
            if operator.factor is not None:  # which each cell's energy is multiplied by
                cells = cells * torch.nn.functional.pad(
                    self._within(named[operator.factor]), (1, 1) * axes, value=1.0
                )
            patch = Patch.of(_ringed(u), axes, cells=cells)
            total = -(self._h**2 * operator.at(patch, fields, self._h, numbers) * v).sum()
            if self._outlines is not None:
                values, tests = u.reshape(-1), v.reshape(-1)
                total = total + self._outlines.given_to(w.reshape(-1), *which)
                total = total + self._outlines.inflow(*which, values, tests, torch.ones_like)
        f = self._in_volumes(self._around(named, "f", 0.0, counts=False))
        total = total + tested(f, self._volumes * v)
        return total + self._through_sides(named, u, v)

    def _of_residual(self, name: str, named: Tensors) -> torch.Tensor:
        """Return a field of the residual, at periodic sides that of the first."""
        operator = self._operator
        if name == operator.factor:
            return torch.ones((), dtype=torch.float64)
        values = self._around(named, name, float(name in operator.signs))
        if values.ndim and self._per_cell(values):  # of which each side has its own
            return self._in_volumes(values)
        whole = values.shape == self._parameters.grid.nodes
        return with_first(self._parameters, {name: values})[name] if whole else values

    def _within(self, factor: torch.Tensor) -> torch.Tensor:
        """Return a factor per cell, 1 where a mask has nothing of a cell."""
        values = self._around({"a": factor}, "a", 1.0)
        return values.expand([n - 1 for n in self._volumes.shape]) if not values.ndim else values

    def _by_flows(
        self,
        edges: list[torch.Tensor],
        u: Patch,
        fields: dict[str, Patch],
        numbers: dict[str, torch.Tensor],
        v: torch.Tensor,
    ) -> torch.Tensor:
        """Return the reaction and what flows to each neighbour, times conductances, tested."""
        operator, axes = self._operator, self._axes
        reaction, flows = operator.flows([u.centre, *u.neighbours], fields, self._h, numbers)
        total = (self._volumes * reaction * v).sum()
        for offset, flow in zip(neighbours_of(axes), flows, strict=True):
            axis = next(axis for axis, step in enumerate(offset) if step)
            here = ends(axis, axes)[int(offset[axis] < 0)]
            total = total + self._h**2 * (edges[axis] * (flow * v)[here]).sum()
        return total


@dataclass(frozen=True)
class _Flows:
    """What flows out of nodes to values on an outline, see `Flow`."""

    operator: Nonlinear
    fields: dict[str, Patch]
    numbers: dict[str, torch.Tensor]
    u: torch.Tensor  # flat
    h: float
    between: Sequence[torch.Tensor]  # what the edges along each axis conduct, times their length
    faces: Sequence[torch.Tensor]  # of these
    kept: Sequence[torch.Tensor]  # of those between nodes that count

    def _out(self, values: Sequence[torch.Tensor], nodes: torch.Tensor) -> list[torch.Tensor]:
        """Return what flows from values at flat nodes to those beside, times the squared spacing."""
        fields = {
            name: Patch(*(v.reshape(-1)[nodes] if v.ndim else v for v in patch.values))
            for name, patch in self.fields.items()
        }
        _, flows = self.operator.flows(values, fields, self.h, self.numbers)
        return [self.h**2 * flow for flow in flows]

    def to_values(
        self, nodes: torch.Tensor, axis: int, ups: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Return what flows to values, ``(T,)``."""
        axes, centre = len(self.faces), self.u[nodes]
        flows = self._out([centre, *[values] * (2 * axes)], nodes)
        up, down = (flows[neighbours_of(axes).index(at(axis, axes, way, 0))] for way in (1, -1))
        return torch.where(ups, up, down)

    def diffusion(self, nodes: torch.Tensor, ties: Sequence[Tied]) -> torch.Tensor:
        """Return it at flat nodes, as `NonlinearEquations` has it, ``(T,)``."""
        axes, centre = len(self.faces), self.u[nodes]
        rises = [torch.zeros_like(centre, requires_grad=True) for _ in range(2 * axes)]
        flows = torch.stack(self._out([centre, *(centre + rise for rise in rises)], nodes)).sum()
        along = torch.autograd.grad(flows, rises, create_graph=True)
        total, size = torch.zeros_like(centre), torch.zeros_like(centre)
        for offset, slope in zip(neighbours_of(axes), along, strict=True):
            axis = next(axis for axis, step in enumerate(offset) if step)
            face, conducts = self.faces[axis], self.between[axis]
            open_ = self.kept[axis].reshape(-1).clone()
            for tied, edges, ups, (_, growth, *_) in ties:
                if tied == axis:
                    there = ups == (offset[axis] > 0)
                    grown = (growth * face.reshape(-1)[edges]).clamp(max=1.0)
                    open_[edges[there]] = grown[there]
            factor = torch.where(face > 0, conducts / torch.where(face > 0, face, 1.0), 1.0)
            pad = [
                count for other in reversed(range(axes)) for count in _beside(other, axis, offset)
            ]
            faces, factors = (
                torch.nn.functional.pad(values, pad).reshape(-1)[nodes]
                for values in (open_.reshape(face.shape), factor)
            )
            total, size = total - faces * factors * slope, size + faces
        return total / size


def _beside(other: int, axis: int, offset: Sequence[int]) -> tuple[int, int]:
    """Return by how much edges along an axis are padded along another one, to stand at the nodes that an offset leads from."""
    if other != axis:
        return 0, 0
    return (0, 1) if offset[axis] > 0 else (1, 0)


def _ringed(values: torch.Tensor) -> torch.Tensor:
    """Return values with one more all around, like those next to them; a number is one."""
    if not values.ndim:
        return values
    ring = (1, 1) * values.ndim
    return torch.nn.functional.pad(values[None, None], ring, mode="replicate")[0, 0]


def lagrangian_of(parameters: Parameters) -> type[Lagrangian]:
    """Return the kind that a problem has."""
    return Lagrangian if parameters.linear else NonlinearLagrangian
