"""What flows in a step, is made, consumed and stored: by its discrete equations, of which nothing is lost.

A step's stage solves ``rate s u + A u = f + s (p_1 u_n + ..)``: what ``s`` multiplies there is stored.
"""

from dataclasses import dataclass

import numpy as np

from mosaicdd.axes import within
from mosaicdd.discretisation.periodic import GridNodes
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.quantities.balance import Balance, balance_of, flows_out
from mosaicdd.quantities.control_volumes import ControlVolumes, why_no_balance
from mosaicdd.quantities.held_field import FieldOnRank, rows_of
from mosaicdd.solution.solver import Solver


class StepBalance:
    """Of all steps of one plan; all ranks make it and call it together.

    `Unsupported` if the equation has no balance, as `ControlVolumes`.

    Parameters
    ----------
    problem
        Of a step.
    stepped
        What that is a step of: with the reaction without ``rate s``.
    """

    def __init__(self, problem: Problem, stepped: Problem, share: GhostNodes):
        self._volumes = ControlVolumes(problem, share.grid, kept=True)
        self._share = share
        nothing = np.empty([p.stop - p.start for p in share.ghosted])
        self._weights = self._weights_of(self._held(problem, nothing))
        self._reaction: np.ndarray | None = None  # what is consumed for values of one
        name = problem.equation.reaction or ""
        reaction = Field(name, stepped.fields.get(name, 0.0), len(share.owned))
        if self._volumes.nonlinear is not None:
            # Of the step's reaction, which is not linear, without what the step adds.
            raised = Field(name, problem.fields[name], len(share.owned))
            near = (self._volumes.near(field, share.owned)[0] for field in (reaction, raised))
            self._reaction = self._weights * np.subtract(*near)
        elif reaction.number != 0.0:
            self._reaction = self._weights * self._volumes.near(reaction, share.owned)[0]

    def _held(self, problem: Problem, wide: np.ndarray) -> FieldOnRank:
        share = self._share
        return FieldOnRank(
            share.grid,
            problem,
            1,
            slice(0, 1),
            share.owned,
            share.ghosted,
            wide[None],
            share.ranks.sum,
            share.ranks.allgather,
        )

    def _weights_of(self, held: FieldOnRank) -> np.ndarray:
        """Return what the domain has of the volumes of the nodes that this rank owns, where something is made."""
        grid, own = self._share.grid, self._share.owned
        weights = np.zeros([p.stop - p.start for p in own])
        for part in rows_of(held):
            if self._volumes.outline is None:
                cells = GridNodes(grid.shape, (None,) * len(part)).cells(part)
                volumes = Apertures.of_cells(cells).volumes
            else:
                wide = held.around(part)
                here = self._volumes.on(wide)
                volumes = here.filled[within(part, wide)]
            weights[within(part, own)] = grid.spacing**2 * volumes
        return weights

    def __call__(
        self, problem: Problem, stage: np.ndarray, gained: np.ndarray, f: np.ndarray | None
    ) -> Balance:
        """Return the balance of a step, per time.

        Parameters
        ----------
        problem
            With the source and the values on sides of the stage.
        stage, gained, f
            The values; what is stored less the source, ``rate s u - s (p_1 u_n + ..) - f``; and the source: at the nodes
            that this rank holds.
        """
        volumes, own = self._volumes.of_data(problem), self._share.without_ghosts
        held = self._held(problem, stage)
        names, sums = flows_out(volumes, held, loads=False)
        made = 0.0 if f is None else np.vdot(self._weights, own(f))
        stored = np.vdot(self._weights, own(gained)) + made
        consumed = 0.0 if self._reaction is None else np.vdot(self._reaction, own(stage))
        if volumes.nonlinear is not None:
            for part in rows_of(held):
                wide = held.around(part)
                taken = volumes.on(wide).consumed(held.at(wide))
                consumed += taken[:, *within(part, wide)].sum()
        sums[0, [-5, -4, -2]] = made, consumed, stored
        return balance_of(names, volumes.scale * held.total(sums)[0])


@dataclass
class Planned:
    """What steps of one length share."""

    solver: Solver
    problem: Problem  # without its data
    stepped: Problem  # of which that is a step
    known: StepBalance | None = None

    def balance(self, share: GhostNodes) -> StepBalance | None:
        """Return what balances its steps, if anything does, made once; all ranks together."""
        if self.known is None and not why_no_balance(self.problem):
            self.known = StepBalance(self.problem, self.stepped, share)
        return self.known
