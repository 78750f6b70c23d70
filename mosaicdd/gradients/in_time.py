"""A march through time as a function that torch differentiates through: steps one after another, each a solve.

The backward pass goes through the steps from the last to the first, each by the adjoint of its solve, with the plan that
all of them share. What it needs of the steps is kept, or, where memory would not do, taken anew in some stretches.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from mosaicdd.gradients.in_strips import InStrips
from mosaicdd.gradients.parameters import Parameters, require_names, untraced
from mosaicdd.gradients.solve_function import Differentiable
from mosaicdd.parallel.machine import beside, device_memory, require_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.limits import just_after, just_before, stage_time
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.parts import is_outline
from mosaicdd.problems.sides.side_values import evaluated
from mosaicdd.settings import unknown
from mosaicdd.time.data import (
    CoefficientsInTime,
    SidesInTime,
    SourceInTime,
    initial_values,
    problems_in_time,
    varies,
)
from mosaicdd.time.jumps import data_that_may_jump, jump_at
from mosaicdd.time.settings import ImplicitStep, TimeSettings
from mosaicdd.time.stepper import Storage, step_problem
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

_FIELDS_OF_STEP = 6  # that the backward pass needs of a step: the solution, its source, and what these are made of
_SHARE = 0.5  # of the memory that they may take

Named = dict[str, torch.Tensor]


class DifferentiableMarch:
    """The fields of a march as a function of some of what it was given; `differentiable` makes it."""

    def __init__(
        self, problem: Problem, initial: Any, time: TimeSettings, wrt: Sequence[str], **how: Any
    ):
        self._problem, self._time, self.wrt = problem, time, tuple(wrt)
        self._rate = time.scheme.weight / time.dt
        _require_fixed(problem, initial)
        self._stretch = _stretch_of(problem, time, how.get("ranks"))
        self._parameters = parameters = Parameters(step_problem(problem, self._rate))
        self._solve = Differentiable(parameters, parameters.names, **how)
        self._on_domain = InStrips(parameters)
        grid, axes = parameters.grid, len(parameters.grid.shape)
        self._source = SourceInTime(problem, grid, time.dt)
        self._source.require_until(time.end)
        self._sides = SidesInTime(problem.conditions)
        self._known_jumps: dict[tuple[int, tuple[str, ...]], bool] = {}
        storage = Storage(problem)
        whole, shape = parameters.whole, problem.domain.shape
        reaction = Field("c", problem.fields.get(_reaction_of(problem), 0.0), axes)
        values = {"initial": initial_values(Field("initial", initial, axes), problem, whole)}
        values["s"] = np.array(storage.at(whole))
        values["c"] = (
            np.array(reaction.number)
            if reaction.number is not None
            else reaction.sample_as_given(grid, whole, checked=shape is None)[0]
        )
        self._values = {name: torch.from_numpy(v.astype(float)) for name, v in values.items()}
        fixed = [name for name in parameters.names if name not in parameters.of_shape]
        self.names = (*fixed, "initial", *([storage.name] if storage.name else []))
        for name in self.wrt:
            if name not in self.names:
                raise ValueError(unknown("derivative by", name, self.names))

    @untraced
    def __call__(self, *unnamed: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return the fields that are kept, ``(frames, ny + 1, nx + 1)``, as `march` has them; all ranks together.

        Parameters
        ----------
        named
            Tensors on the CPU by their names: ``initial`` at the nodes, ``s`` there or per cell, or numbers, all else as of
            `Differentiable`. The source and values on sides of the rectangle may have a leading axis, one for each time
            from 0 on.

        Raises
        ------
        RuntimeError
            If a step has not converged; in the backward pass, if its adjoint has not.
        ValueError
            If a name is none of ``wrt``, or a tensor is of another shape or on another device.
        """
        require_names(unnamed, self.wrt)
        self.require(named)
        wanted = tuple(named)
        tensors = {name: value.double() for name, value in named.items()}
        u = torch.broadcast_to(
            tensors.get("initial", self._values["initial"]), self._parameters.grid.nodes
        )
        u = self._solve.imposed(self._begun(u), self._sides_at(0, 0.0, tensors))
        levels, frames = [u], [u]
        for first in range(0, self._time.steps, self._stretch):
            steps = range(first, min(first + self._stretch, self._time.steps))
            if self._stretch == self._time.steps:
                taken = self.taken(steps, wanted, *tensors.values(), *levels)
            else:
                taken = _TakenAnew.apply(self, steps, wanted, *tensors.values(), *levels)
            frames += [f for step, f in zip(steps, taken, strict=True) if self._is_kept(step + 1)]
            levels = [*taken[:-3:-1], *levels][:2]
        fields = torch.stack(frames)
        shown = self._solve.reported
        return fields if shown is None else torch.where(shown, fields, torch.nan)

    def shape_of(self, _: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
        """Return the shape of the fields that are kept."""
        frames = 1 + sum(map(self._is_kept, range(1, self._time.steps + 1)))
        return frames, *self._parameters.grid.nodes

    def _is_kept(self, step: int) -> bool:
        return step % self._time.every == 0 or step == self._time.steps

    def close(self) -> None:
        """Free what was planned."""
        self._solve.close()

    def require(self, named: Mapping[str, torch.Tensor]) -> None:
        """Raise `ValueError` or `TypeError` unless a call may have these."""
        for name, value in named.items():
            if name not in self.wrt:
                raise ValueError(f"{name} is not one of wrt: {', '.join(self.wrt)}")
            self._require_fits(name, value)

    def _require_fits(self, name: str, value: torch.Tensor) -> None:
        nodes, times = self._parameters.grid.nodes, self._time.steps + 1
        cells = tuple(self._parameters.grid.shape)
        if name in ("initial", "s"):
            takes: tuple[tuple[int, ...], ...] = ((), nodes, cells) if name == "s" else ((), nodes)
            if tuple(value.shape) not in takes:
                *first, last = map(str, takes)
                raise ValueError(
                    f"{name} has the shape {tuple(value.shape)}, the problem takes {', '.join(first)} or {last}"
                )
            return
        in_time = name == "f" or (name in self._parameters.parts and name in self._solve.shapes)
        fits = (nodes, cells) if name == "f" else (self._solve.shapes.get(name, ()),)
        if in_time and tuple(value.shape) in [(times, *shape) for shape in fits]:
            value = value[0]
        self._solve.require_fits(name, value)

    def taken(
        self, steps: range, names: Sequence[str], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the fields after some steps; the last tensors are the fields before, the newest first."""
        named = dict(zip(names, tensors, strict=False))
        levels, dt, taken = list(tensors[len(names) :]), self._time.dt, []
        s = self._at_nodes(named.get("s", self._values["s"]))
        constant = {
            name: value
            for name, value in named.items()
            if name not in ("initial", "s", "f", "c", *self._parameters.parts)
        }
        if "c" in named or "s" in named:
            c = named.get("c", self._values["c"])
            constant["c"] = (self._at_nodes(c) if s.ndim else c) + self._rate * s
        for number in steps:
            step = self._step(number, names)
            past = zip(step.past, levels, strict=False)
            force = s * sum((weight / dt * u for weight, u in past), torch.zeros(()))
            force = force + self._source_at(number, step.share, named.get("f"))
            sides = self._sides_at(number, step.share, named)
            if step.weight != self._time.scheme.weight:
                c = self._at_nodes(named.get("c", self._values["c"]))
                u = self._solve.unknowns(
                    **constant | {"c": c + step.weight / dt * s}, **sides, f=force
                )
            else:
                u = self._solve.unknowns(**constant, **sides, f=force)
            if self._solve.reported is not None:
                u = torch.where(u.isfinite(), u, 0.0)
            if step.share != 1.0:
                before = levels[0]
                if self._sides.vary:  # with values that have jumped, as a step of a march
                    before = self._solve.imposed(before, self._sides_at(number, 0.0, named))
                u = (u - (1.0 - step.share) * before) / step.share
            levels = [u, levels[0]]
            taken.append(u)
        return tuple(taken)

    def _step(self, number: int, names: Sequence[str]) -> ImplicitStep:
        """Return the method's step, which may be the first one after a jump of what is not named."""
        scheme = self._time.scheme
        if len(scheme.steps) > 1 and self._jumps_at(number, names):
            return scheme.anew
        return scheme.step(number + 1)

    def _jumps_at(self, number: int, names: Sequence[str]) -> bool:
        """Say whether data that are not named jump at the begin of a step, but the first."""
        if number <= 0:
            return False
        without, dt = tuple(sorted(names)), self._time.dt
        if (number, without) not in self._known_jumps:
            grid, whole = self._parameters.grid, self._parameters.whole
            what = self._problem, grid, whole, self._source
            data, times = (
                data_that_may_jump(*what, without=without),
                (number * dt, (number + 1) * dt),
            )
            self._known_jumps[number, without] = jump_at(data, *times, lambda look: [look()])
        return self._known_jumps[number, without]

    def _source_at(self, number: int, share: float, f: torch.Tensor | None) -> torch.Tensor:
        """Return the source of a step's stage."""
        if f is None:
            times = number * self._time.dt, (number + 1) * self._time.dt
            values = self._source(stage_time(*times, share), self._parameters.whole)
            return torch.zeros(()) if values is None else torch.from_numpy(np.array(values))
        return self._at_nodes(self._between(f, len(self._parameters.grid.nodes), number, share))

    def _at_nodes(self, values: torch.Tensor) -> torch.Tensor:
        """Return values at the nodes, finite beside outlines; of those per cell the means over their volumes."""
        if not values.ndim:
            return values
        lagrangian, shape = self._on_domain.lagrangian, tuple(values.shape)
        per_cell = shape == tuple(self._parameters.grid.shape)
        return lagrangian.at_nodes(values) if per_cell else lagrangian.near_outline(values)

    def _begun(self, values: torch.Tensor) -> torch.Tensor:
        """Return initial values as `initial_values` has them."""
        for axis, around in enumerate(self._problem.conditions.periodic):
            if around:
                first, rest = values.split([1, values.shape[axis] - 1], dim=axis)
                last = rest.narrow(axis, rest.shape[axis] - 1, 1)
                values = torch.cat([torch.where(first.isfinite(), first, last), rest], dim=axis)
        return self._at_nodes(values)

    def _between(self, values: torch.Tensor, axes: int, number: int, share: float) -> torch.Tensor:
        """Return values between those at the begin and at the end of a step; without a leading axis as they are."""
        if values.ndim <= axes:
            return values
        return (1.0 - share) * values[number] + share * values[number + 1]

    def _sides_at(self, number: int, share: float, named: Mapping[str, torch.Tensor]) -> Named:
        """Return the data on sides in a step, of all that were named or change."""
        sides: Named = {}
        for name in self._parameters.parts:
            if name in named:
                axes = len(self._solve.shapes.get(name, ()))
                sides[name] = self._between(named[name], axes, number, share)
        if not self._sides.vary:
            return sides
        pieces, grid, dt = self._parameters.pieces, self._parameters.grid, self._time.dt
        times = just_after(number * dt, dt), just_before((number + 1) * dt, dt)
        for before, after in zip(*(self._sides(t).parts for t in times), strict=True):
            name = after.as_given
            if name in sides or name not in self._parameters.parts or is_outline(after.name):
                continue
            piece = pieces[after.name]
            values = [
                piece.as_side(evaluated(part, piece, grid)[0], grid) for part in (before, after)
            ]
            sides[name] = torch.from_numpy((1.0 - share) * values[0] + share * values[1])
        return sides


class _TakenAnew(torch.autograd.Function):
    """Steps of which nothing is kept but what they begin with; in the backward pass they are taken once more."""

    @staticmethod
    def forward(
        ctx: Any,
        march: DifferentiableMarch,
        steps: range,
        names: Sequence[str],
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.march, ctx.steps, ctx.names = march, steps, names
        ctx.save_for_backward(*tensors)
        return march.taken(steps, names, *tensors)

    @staticmethod
    @once_differentiable
    @on_processor()
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[Any, ...]:
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            taken = ctx.march.taken(ctx.steps, ctx.names, *leaves)
        return None, None, None, *torch.autograd.grad(taken, leaves, slopes, materialize_grads=True)


def _stretch_of(problem: Problem, time: TimeSettings, given_ranks: Any) -> int:
    """Return the number of steps kept at a time; the backward pass takes them anew from their first values.

    `ValueError` on all ranks if not even these fit the memory.
    """
    steps, field = time.steps, 8 * math.prod(problem.domain.grid().nodes)
    few = math.isqrt(steps - 1) + 1
    with Ranks.of(given_ranks) as ranks:
        usable = _SHARE * device_memory(torch.device("cpu"), len(beside(ranks)))
        if _FIELDS_OF_STEP * steps * field <= usable:
            return steps
        needed = (_FIELDS_OF_STEP * few + 2 * -(-steps // few)) * field
        require_memory(ranks, int(needed / _SHARE), "fewer steps")
    return few


def _reaction_of(problem: Problem) -> str:
    """Return the name of the coefficient that multiplies the solution."""
    equation = problem.equation.steady or problem.equation
    return equation.reaction or "c"


def _require_fixed(problem: Problem, initial: Any) -> None:
    """Raise `Unsupported` where what changes in time is not known to gradients."""
    why = ""
    if CoefficientsInTime(problem).vary:
        why = "a coefficient depends on the time"
    elif not problem.operator.linear:
        why = f"{problem.equation.name} is not linear"
    elif _reaction_of(problem) != "c":
        why = f"{problem.equation.name} has another reaction than c"
    elif problem.conditions.data is not None and SidesInTime(problem.conditions).vary:
        why = "values on all edges depend on the time: name the sides"
    for part in problem.conditions.parts:
        changes = varies(part.values, len(problem.domain.cells))
        if is_outline(part.name) and changes and problem.domain.shape is not None:
            why = f"values on {part} depend on the time"
    count = problems_in_time(problem, Field("initial", initial, len(problem.domain.cells)))
    if count > 1:
        raise Unsupported(
            f"gradients in time are of one problem, there are {count}: take one by one"
        )
    if why:
        raise Unsupported(
            f"{why}: gradients in time are of linear equations whose sources and sides alone change"
        )
