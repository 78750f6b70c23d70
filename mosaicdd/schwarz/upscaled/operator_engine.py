"""The engine for media whose subdomains have operators by a network: the Schwarz iteration, then as averages.

The iteration is that of constant coefficients (`fixed_point`, or the paper's, `phases`), on the nodes of a grid four
times coarser, and every subdomain has a matrix of its own. So has every lattice node a row of the coarse
problem, which is factorised by every rank. What the operators agree on is filled, corrected once and estimated
as in `upscaled_engine`, by the equation of averaged conductances.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.subdomain_operators import OperatorSolver, SubdomainOperators
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.base_engine import SolveOptions
from mosaicdd.schwarz.coarse.coarse_space import CoarseSpace, OwnCoarseSpace
from mosaicdd.schwarz.drivers import anderson, gmres, stationary
from mosaicdd.schwarz.fill import FILL_HALO
from mosaicdd.schwarz.method import Method
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sweep import Task
from mosaicdd.schwarz.upscaled.upscaled_engine import Approximation, UpscaledEngine
from mosaicdd.unsupported import Unsupported

_DRIVERS = {"none": stationary, "gmres": gmres, "anderson": anderson}


class OperatorEngine(UpscaledEngine[OperatorSolver]):
    """Solves boundary value problems by the operators that a network makes of a medium.

    `ValueError` if the ranks do not fit the lattice, the coefficients are not sound, the network does not know the
    medium, or the coarse problem is too large. `Unsupported` if the settings ask for what this method has not.
    """

    def _prepare(self, lattice: Lattice, local_solver: OperatorSolver) -> None:
        settings, ranks, problems = self.settings, self._ranks, self.problems
        self.acceleration = settings.accelerate or ("gmres" if settings.levels == 2 else "none")
        if self.acceleration not in _DRIVERS:
            raise Unsupported(
                f"accelerate={self.acceleration!r} is not for coefficients that are fields; known: "
                f"{', '.join(_DRIVERS)}"
            )
        super()._prepare(lattice, local_solver)
        block, lattice = self._coarse.block, self._lattice
        wide = dataclasses.replace(block, halo=FILL_HALO)
        with self.clock.part("operators"):
            self._operators = SubdomainOperators(local_solver, wide, **self._tensors)
        mine = self._operators.outside[*wide.ring(0)]
        local_solver.require_range(*ranks.sum(np.array([mine.numel(), float(mine.sum())])))
        task = Task(ranks, block, settings, problems, self.clock)

        def coarse_space(responses: torch.Tensor) -> CoarseSpace:
            made = OwnCoarseSpace(task)
            made.take(responses, responses[..., lattice.spacing - 1].movedim(2, 0))
            return made

        method = Method(task, self._operators.plan, coarse_space)
        self._iterate, self._inside = method.iterate, method.plan_fill()

    @property
    def _settings_of_averages(self) -> SolveSettings:
        """How the equation of averages is solved: the settings of the iteration by operators are not its own."""
        return self.settings.with_changes(levels=2, sweep="additive", accelerate=None)

    def _approximate(
        self, boundaries: Sequence[Boundary], options: SolveOptions
    ) -> Sequence[Approximation]:
        """Iterate until the operators agree, and take what they say between the lines."""
        with self.clock.part("sample"):
            self._ranks.agree(self._operators.load)
        v = options.start or Interface(self._coarse.block, problems=self.problems, **self._tensors)
        v.impose(boundaries)
        monitor = self._monitor(v, options)
        v, statuses = _DRIVERS[self.acceleration](self._iterate, v, monitor)
        region = torch.empty(
            self.problems, *(n + 1 for n in self._inside.block.cells), **self._tensors
        )
        for _ in self._inside.strips(self.movement.widen(v, FILL_HALO), region):
            pass
        fields = region[:, *self._inside.block.owned_nodes()[0]]
        return [
            Approximation(
                status,
                monitor.histories[i].update[-1],
                float(monitor.sizes[i]),
                monitor.histories[i],
                v,
                fields[i],
            )
            for i, status in enumerate(statuses)
        ]
