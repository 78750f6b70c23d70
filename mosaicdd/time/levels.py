"""The last values of a march, from which the next ones are extrapolated, and those between them interpolated.

What flows in a step, is made, consumed and stored: by its discrete equations, of which nothing is lost.

A step's stage solves ``rate s u + A u = f + s (p_1 u_n + ..)``: what ``s`` multiplies there is stored.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import within
from mosaicdd.discretisation.periodic import grid_cells
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.quantities.balance import Balance, balance_of, flows_out
from mosaicdd.quantities.control_volumes import ControlVolumes, why_no_balance
from mosaicdd.quantities.sums import FieldOnRank, rows_of
from mosaicdd.solution.solver import Solver
from mosaicdd.time.settings import ImplicitStep

# Weights of up to three values, the newest first, at another time on their polynomial.
_Weights = dict[int, tuple[float, ...]]
_NEXT: _Weights = {1: (1.0,), 2: (2.0, -1.0), 3: (3.0, -3.0, 1.0)}
_HALF_BACK: _Weights = {2: (0.5, 0.5), 3: (0.375, 0.75, -0.125)}
_TWO_BACK: _Weights = {2: (-1.0, 2.0), 3: (0.0, 0.0, 1.0)}
_FOUR_BACK: _Weights = {3: (3.0, -8.0, 6.0)}


class PreviousSteps:
    """Values at the last times, equally long steps apart, the newest first, and what flowed until then.

    Parameters
    ----------
    first
        The initial values.
    depth
        How many are kept.

    Attributes
    ----------
    amounts
        What flowed, was made, consumed and stored until each of these times, less that until the newest; a vector each.
    """

    def __init__(self, first: np.ndarray, depth: int):
        self._depth = depth
        self.values = [first]
        self.amounts = [np.zeros(1)]

    @property
    def newest(self) -> np.ndarray:
        """The last values."""
        return self.values[0]

    def add(self, values: np.ndarray, amounts: np.ndarray) -> None:
        """Enter the values after a step, and the amounts that flowed in it."""
        self.values = [values, *self.values][: self._depth]
        before = [known - amounts for known in self.amounts]
        self.amounts = [np.zeros(amounts.shape), *before][: self._depth]

    def amounts_in(self, step: ImplicitStep, length: float, rates: np.ndarray) -> np.ndarray:
        """Return the amounts that flow in a step, from the rates at its stage: by the method, as its values.

        So what is stored is what the values have more, and all that flows is of the order of the method.
        """
        past = zip(step.past, self.amounts, strict=False)
        stage = sum((weight * known for weight, known in past), length * rates) / step.weight
        return stage / step.share

    def begin(self) -> None:
        """Forget all but the newest."""
        self.values, self.amounts = self.values[:1], self.amounts[:1]

    def go_back(self) -> None:
        """Forget all but the oldest."""
        self.values, self.amounts = self.values[-1:], [np.zeros(1)]

    def next(self, out: np.ndarray | None = None) -> np.ndarray:
        """Return the next values, extrapolated."""
        return self.weighted(_NEXT[len(self.values)], out)

    def halve(self) -> None:
        """Interpolate the values to half of their distance in time."""
        if (known := len(self.values)) > 1:
            weights = _HALF_BACK[known]
            between = self.weighted(weights), _sum(weights, self.amounts)
            self.values = [self.newest, between[0], self.values[1]][:known]
            self.amounts = [self.amounts[0], between[1], self.amounts[1]][:known]

    def double(self) -> None:
        """Extrapolate the values to twice their distance in time."""
        known = len(self.values)
        further = [at[known] for at in (_TWO_BACK, _FOUR_BACK) if known in at]
        values = [self.weighted(weights) for weights in further]
        amounts = [_sum(weights, self.amounts) for weights in further]
        self.values, self.amounts = [self.newest, *values], [self.amounts[0], *amounts]

    def weighted(self, weights: tuple[float, ...], out: np.ndarray | None = None) -> np.ndarray:
        """Return a sum of the last values, each times its weight; of as many as there are weights."""
        total = np.multiply(self.values[0], weights[0], out=out)
        accumulated = torch.from_numpy(total)
        for weight, values in zip(weights[1:], self.values[1:], strict=False):
            accumulated.add_(torch.from_numpy(values), alpha=weight)  # one pass, numpy needs two
        return total


def _sum(weights: tuple[float, ...], vectors: list[np.ndarray]) -> np.ndarray:
    parts = zip(weights, vectors, strict=False)
    return sum((weight * vector for weight, vector in parts), np.zeros(1))


class StepPlan:
    """The plan of steps of one length: a solver and their balance; all ranks make it and call it together.

    Parameters
    ----------
    solver, problem
        What solves a step; its problem, without the data.
    stepped
        What that is a step of: with the reaction without ``rate s``.
    """

    def __init__(self, solver: Solver, problem: Problem, stepped: Problem):
        self.solver, self.problem, self._stepped = solver, problem, stepped
        self._balances = not why_no_balance(problem)
        self._volumes: ControlVolumes | None = None

    def _prepare(self, share: GhostNodes) -> ControlVolumes:
        """Measure the control volumes, and what is consumed for values of one."""
        problem, axes = self.problem, len(share.owned)
        self._share, volumes = share, ControlVolumes(problem, share.grid, {})
        nothing = np.empty([p.stop - p.start for p in share.ghosted])
        self._weights = self._weights_of(volumes, self._held(problem, nothing))
        self._reaction: np.ndarray | None = None
        name = problem.equation.reaction or ""
        reaction = Field(name, self._stepped.fields.get(name, 0.0), axes)
        if volumes.nonlinear is not None:
            # Of the step's reaction, which is not linear, without what the step adds.
            raised = Field(name, problem.fields[name], axes)
            near = (volumes.near(field, share.owned)[0] for field in (reaction, raised))
            self._reaction = self._weights * np.subtract(*near)
        elif reaction.number != 0.0:
            self._reaction = self._weights * volumes.near(reaction, share.owned)[0]
        return volumes

    def _held(self, problem: Problem, wide: np.ndarray) -> FieldOnRank:
        share, ranks = self._share, self._share.ranks
        nodes = share.owned, share.ghosted, wide[None]
        return FieldOnRank(share.grid, problem, 1, slice(0, 1), *nodes, ranks.sum, ranks.allgather)

    def _weights_of(self, volumes: ControlVolumes, held: FieldOnRank) -> np.ndarray:
        """Return the control volumes of the nodes that this rank owns, within the domain."""
        grid, own = self._share.grid, self._share.owned
        weights = np.zeros([p.stop - p.start for p in own])
        for part in rows_of(held):
            if volumes.outline is None:
                filled = Apertures.of_cells(grid_cells(part, grid.shape)).volumes
            else:
                wide = held.around(part)
                filled = volumes.on(wide).filled[within(part, wide)]
            weights[within(part, own)] = grid.spacing**2 * filled
        return weights

    def balance(
        self,
        share: GhostNodes,
        problem: Problem,
        stage: np.ndarray,
        stored: tuple[Any, np.ndarray],
        f: np.ndarray | None,
    ) -> Balance | None:
        """Return the balance of a step, per time; None where its equation has none.

        Parameters
        ----------
        problem
            With the source and the values on sides of the stage.
        stage, stored, f
            The values; ``rate s`` and ``s (p_1 u_n + ..) + f``, by which ``rate s u - s (p_1 u_n + ..)`` is stored; and the
            source: at the nodes that this rank holds.
        """
        if not self._balances:
            return None
        if self._volumes is None:
            self._volumes = self._prepare(share)
        volumes, own = replace(self._volumes, problem=problem), share.without_ghosts
        held, (rate, force) = self._held(problem, stage), stored
        names, sums = flows_out(volumes, held, loads=False)
        made = 0.0 if f is None else np.vdot(self._weights, own(f))
        gained = rate * stage
        gained -= force
        kept = np.vdot(self._weights, own(gained)) + made
        consumed = 0.0 if self._reaction is None else np.vdot(self._reaction, own(stage))
        if volumes.nonlinear is not None:
            for part in rows_of(held):
                wide = held.around(part)
                taken = volumes.on(wide).consumed(held.at(wide))
                consumed += taken[:, *within(part, wide)].sum()
        sums[0, [-5, -4, -2]] = made, consumed, kept
        return balance_of(names, volumes.scale * held.total(sums)[0])
