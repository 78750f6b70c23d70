"""A problem as a differentiable function of tensors: a solve forwards, its adjoint backwards."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from mosaicdd.gradients.in_strips import InStrips, require_converged, require_solved
from mosaicdd.gradients.lagrangian import Inputs, Tensors
from mosaicdd.gradients.parameters import Parameters, require_names, untraced
from mosaicdd.parallel.safe_norms import largest_of, safe_power
from mosaicdd.problems.problem import Problem
from mosaicdd.solution.solver import Solver
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported


class Differentiable:
    """The solution of a problem as a function of some of what it was given; `differentiable` makes it.

    A plan is made at the first call, and another one when coefficients change; the adjoint solve uses it, too.
    """

    def __init__(
        self, parameters: Parameters, wrt: Sequence[str], adjoint_rtol: float | None, **how: Any
    ):
        self._parameters, self._how, self._adjoint_rtol = parameters, how, adjoint_rtol
        self.wrt = tuple(wrt)
        self._values = parameters.values()
        self._planned: dict[str, np.ndarray] = {}
        self._solver: Solver | None = None
        self._own = InStrips(parameters)
        self._moved: InStrips | None = None
        self._by_cells: dict[tuple[str, ...], Differentiable] = {}
        self._fits: dict[str, set[tuple[int, ...]]] = {}

    @untraced
    def __call__(self, *unnamed: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return the solution at the nodes, ``(ny + 1, nx + 1)``, float64; NaN outside of a shape; all ranks together.

        Of a batch, whose tensors, or some of them, have a leading axis, each member's: they are solved one after another,
        with one plan where coefficients stay.

        Parameters
        ----------
        named
            Tensors on the CPU by their names, of the shapes that the problem's fields and sides may have; numbers
            for numbers. What is not given is the problem's.

        Raises
        ------
        RuntimeError
            If the solution has not converged; in the backward pass, if the adjoint has not.
        ValueError
            If a name is none of ``wrt``, or a tensor is of another shape or on another device, or batches have different
            lengths.
        """
        require_names(unnamed, self.wrt)
        self.require(named)
        count = self._members(named)
        if count is None:
            return self._alone(named)
        members = [
            {n: value[k] if self._is_batch(n, value) else value for n, value in named.items()}
            for k in range(count)
        ]
        return torch.stack([self._alone(member) for member in members])

    def _alone(self, named: Tensors) -> torch.Tensor:
        cells = tuple(self._parameters.grid.shape)
        per_cell = [n for n, v in named.items() if v.shape == cells and cells not in self._known(n)]
        if per_cell:
            return self._of_cells(*sorted(per_cell))._alone(named)
        u = self.unknowns(**named)
        reported = self._on_domain(named).lagrangian.reported
        return u if reported is None else torch.where(reported, u, torch.nan)

    def unknowns(self, **named: torch.Tensor) -> torch.Tensor:
        """Return the solution with what lies beyond natural outlines, too; all ranks together."""
        solution: torch.Tensor = _Solved.apply(
            self, tuple(named), *(v.double() for v in named.values())
        )
        return solution

    def imposed(self, u: torch.Tensor, named: Tensors) -> torch.Tensor:
        """Return values with those given on sides and inside, some of which are named."""
        return self._on_domain(named).lagrangian.imposed(u, self._complete(named))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the problem's data, by name."""
        return {name: values.shape for name, values in self._values.items()}

    def shape_of(self, named: Tensors) -> tuple[int, ...]:
        """Return the shape of the solution of some tensors."""
        count = self._members(named)
        return (*(() if count is None else (count,)), *self._parameters.grid.nodes)

    def _members(self, named: Tensors) -> int | None:
        """Return the number of members of a batch, the least if tensors disagree; None of no batch."""
        return min((len(v) for n, v in named.items() if self._is_batch(n, v)), default=None)

    def _is_batch(self, name: str, value: torch.Tensor) -> bool:
        """Say whether a tensor has one axis more than the problem's data, and a member."""
        shape = tuple(value.shape)
        return bool(shape and shape[0] and shape[1:] in self._fitting(name)) and (
            shape not in self._fitting(name)
        )

    @property
    def reported(self) -> torch.Tensor | None:
        """Which nodes of the problem's own domain have values in a field; None if all."""
        return self._on_domain({}).lagrangian.reported

    def _on_domain(self, named: Tensors) -> InStrips:
        """Return the equations in the domain that some parameters make."""
        domain = self._parameters.domain_of({n: v.detach() for n, v in named.items()})
        if domain is self._parameters.problem.domain:
            return self._own
        if self._moved is None or self._moved.parameters.problem.domain != domain:
            moved = self._parameters.problem.with_domain(domain)
            self._moved = InStrips(Parameters(moved))
        return self._moved

    def close(self) -> None:
        """Free what was planned."""
        if self._solver is not None:
            self._solver.close()
        self._solver, self._planned = None, {}
        for others in self._by_cells.values():
            others.close()

    def require(self, named: Tensors) -> None:
        """Raise `ValueError` or `TypeError` unless a call may have these."""
        for name, value in named.items():
            if name not in self.wrt:
                raise ValueError(f"{name} is not one of wrt: {', '.join(self.wrt)}")
            several = isinstance(value, torch.Tensor) and self._is_batch(name, value)
            self.require_fits(name, value[0] if several else value)
        count = self._members(named)
        for name, value in named.items():
            if self._is_batch(name, value) and len(value) != count:
                raise ValueError(
                    f"{name} is a batch of {len(value)}, another tensor one of {count}"
                )

    def _of_cells(self, *names: str) -> "Differentiable":
        """Return the same function of fields per cell, of which the problem has another kind.

        `ValueError` if the problem can have none.
        """
        if names not in self._by_cells:
            ones = dict.fromkeys(names, np.ones(self._parameters.grid.shape))
            parameters = Parameters(self._parameters.problem.with_fields(**ones))
            arguments = parameters, self.wrt, self._adjoint_rtol
            self._by_cells[names] = Differentiable(*arguments, **self._how)
        return self._by_cells[names]

    def _fitting(self, name: str) -> set[tuple[int, ...]]:
        """Return the shapes that a tensor may have."""
        if name not in self._fits:
            fits, cells = self._known(name), tuple(self._parameters.grid.shape)
            may_be = not self._parameters.linear and name in self._parameters.fields
            if may_be and cells not in fits:
                with contextlib.suppress(ValueError):
                    self._of_cells(name)
                    fits = fits | {cells}
            self._fits[name] = fits
        return self._fits[name]

    def _known(self, name: str) -> set[tuple[int, ...]]:
        """Return the shapes that the problem's own equations take."""
        fits: set[tuple[int, ...]] = {self._values.get(name, np.zeros(())).shape}
        if name in self._parameters.fields:
            fits |= {(), *self._parameters.shapes_of(name)}
        return fits

    def require_fits(self, name: str, value: torch.Tensor) -> None:
        """Raise `ValueError` or `TypeError` unless a tensor may stand for what the problem was given."""
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
        if value.device.type != "cpu":
            raise ValueError(
                f"{name} is on {value.device}, solves that are differentiated on the CPU"
            )
        if value.layout != torch.strided:
            raise TypeError(f"{name} is a sparse tensor: give {name}.to_dense()")
        if value.is_complex():
            raise ValueError(f"{name} is of {value.dtype}, the problem takes real numbers")
        shape, fits = tuple(value.shape), self._fitting(name)
        if (
            shape not in fits
            and shape == self._parameters.grid.shape
            and name in self._parameters.fields
        ):
            self._of_cells(name)  # says why
        if shape not in fits:
            raise ValueError(
                f"{name} has the shape {shape}, the problem takes {' or '.join(map(str, sorted(fits)))}"
            )

    def solved(self, named: Tensors) -> torch.Tensor:
        """Return the solution for some values, of no graph."""
        solver, problem = self._planned_for(named)
        solution = solver(problem)
        require_converged(solution, "solution")
        return torch.from_numpy(np.array(solution.gather(), float))

    def _planned_for(self, named: Tensors) -> tuple[Solver, Problem]:
        """Return the problem of some values, and what is planned for its coefficients."""
        arrays = {n: t.detach().numpy() for n, t in named.items()}
        problem = self._parameters.with_values(self._values | arrays)
        coefficients = {n: v for n, v in arrays.items() if self._is_coefficient(n)}
        same = self._solver is not None and coefficients.keys() == self._planned.keys()
        if not (same and all(np.array_equal(v, self._planned[n]) for n, v in coefficients.items())):
            self.close()
            self._solver = Solver(problem, "exact", keep="unknowns", **self._how)
            self._planned = {n: v.copy() for n, v in coefficients.items()}
        if self._solver is None:
            raise RuntimeError("nothing is planned")
        return self._solver, problem

    def _is_coefficient(self, name: str) -> bool:
        parameters = self._parameters
        coefficient = name in parameters.fields and name != "f"
        numbers = name in parameters.numbers or name in parameters.of_shape
        return coefficient or numbers or name.endswith(".alpha")

    def slopes(
        self, named: Tensors, u: torch.Tensor, w: torch.Tensor, by: Sequence[str]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the adjoint, and the derivatives by named data; of no graph."""
        v = self._changed(named, u, w, transposed=True)
        u, w = u.detach(), w.detach().contiguous()
        data = self._complete({n: t.detach() for n, t in named.items()})
        with torch.enable_grad():
            slopes, left = self._on_domain(named)(data, by, u, v, w)
        require_solved(left)
        return v, slopes

    def change(
        self, named: Tensors, u: torch.Tensor, w: torch.Tensor, *, transposed: bool
    ) -> torch.Tensor:
        """Solve the equations linearised at a solution, or transposed, for a right-hand side; of no graph."""
        if transposed:
            return self.slopes(named, u, w, ())[0]
        change, u, w = self._changed(named, u, w), u.detach(), w.detach()
        data = self._complete({n: t.detach() for n, t in named.items()})
        on = self._on_domain(named)
        with torch.enable_grad():
            at, v = (torch.zeros_like(u).requires_grad_() for _ in range(2))
            total = on.lagrangian(Inputs(data, data), u + at, v, torch.zeros_like(u))
            (slope,) = torch.autograd.grad(total, at, create_graph=True)
            (product,) = torch.autograd.grad((slope * change).sum(), v)
        counts = on.counting(self._parameters.whole, on.lagrangian.active)
        power = safe_power(largest_of(w.numpy()))
        left = [(power * torch.where(counts, r, 0.0)).square().sum() for r in (product + w, w)]
        require_solved(torch.stack(left).numpy())
        return change

    def _changed(
        self, named: Tensors, u: torch.Tensor, w: torch.Tensor, *, transposed: bool = False
    ) -> torch.Tensor:
        solver, _ = self._planned_for(named)
        values, force = u.detach().numpy(), w.detach().contiguous().numpy()
        how: dict[str, Any] = {"rtol": self._adjoint_rtol, "transposed": transposed}
        return torch.from_numpy(solver.change(values, force, **how))

    def gradient(
        self, named: Tensors, u: torch.Tensor, w: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the derivatives by each of the values, differentiable themselves where a graph is made."""
        if not torch.is_grad_enabled():
            _, slopes = self.slopes(named, u, w, tuple(named))
            return tuple(slopes[name] for name in named)
        if moving := [name for name in named if name in self._parameters.of_shape]:
            raise Unsupported(
                f"{', '.join(moving)} are parameters of the domain, which have first derivatives only: leave out "
                "create_graph and hessian"
            )
        v = _Changed.apply(self, tuple(named), True, u, w, *named.values())
        leaves = _renamed(named.values())
        data = self._complete(dict(zip(named, leaves, strict=True)))
        total = self._own.lagrangian(Inputs(data, self._complete(named)), u, v, w)
        return torch.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)

    def hessian_action(
        self, named: Tensors, u: torch.Tensor, v: torch.Tensor, change: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the derivatives of the Hessian's action on a change, by the solution and by data."""
        deeper = torch.is_grad_enabled()
        with torch.enable_grad():
            at, *leaves = _renamed([u, *named.values()])
            data = self._complete(dict(zip(named, leaves, strict=True)))
            total = self._own.lagrangian(Inputs(data, data), at, v, torch.zeros_like(u))
            (slope,) = torch.autograd.grad(total, at, create_graph=True)
            return torch.autograd.grad(
                (slope * change).sum(), [at, *leaves], create_graph=deeper, materialize_grads=True
            )

    def _complete(self, named: Tensors) -> dict[str, torch.Tensor]:
        """Return all data of the equations, without parameters of the domain."""
        data = {n: torch.from_numpy(v) for n, v in self._values.items()} | dict(named)
        return {n: v for n, v in data.items() if n not in self._parameters.of_shape}


def _renamed(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return other names of the same values: derivatives are by these, the solutions' own are not among them."""
    return [t.view_as(t) if t.requires_grad else t.clone().requires_grad_() for t in tensors]


class _Solved(torch.autograd.Function):
    """A solve, and its derivative, which is made of that of the adjoint."""

    @staticmethod
    def forward(
        ctx: Any, solve: Differentiable, names: tuple[str, ...], *tensors: torch.Tensor
    ) -> torch.Tensor:
        u = solve.solved(dict(zip(names, tensors, strict=True)))
        ctx.solve, ctx.names = solve, names
        ctx.save_for_backward(u, *tensors)
        return u

    @staticmethod
    @on_processor()
    def backward(ctx: Any, w: torch.Tensor) -> tuple[Any, ...]:
        u, *tensors = ctx.saved_tensors
        named = dict(zip(ctx.names, tensors, strict=True))
        return None, None, *ctx.solve.gradient(named, u, w)


class _Changed(torch.autograd.Function):
    """A solve of the equations linearised at a solution, or transposed, and its derivative."""

    @staticmethod
    def forward(
        ctx: Any,
        solve: Differentiable,
        names: tuple[str, ...],
        transposed: bool,
        u: torch.Tensor,
        w: torch.Tensor,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        named = dict(zip(names, tensors, strict=True))
        change = solve.change(named, u, w, transposed=transposed)
        ctx.solve, ctx.names, ctx.transposed = solve, names, transposed
        ctx.save_for_backward(u, change, *tensors)
        return change

    @staticmethod
    @on_processor()
    def backward(ctx: Any, w: torch.Tensor) -> tuple[Any, ...]:
        u, change, *tensors = ctx.saved_tensors
        back = _Changed.apply(ctx.solve, ctx.names, not ctx.transposed, u, w, *tensors)
        v, along = (change, back) if ctx.transposed else (back, change)
        named = dict(zip(ctx.names, tensors, strict=True))
        by_solution, *slopes = ctx.solve.hessian_action(named, u, v, along)
        return None, None, None, by_solution, back, *slopes
