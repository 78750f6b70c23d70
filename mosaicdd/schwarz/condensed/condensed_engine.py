"""The engine for media by condensed elements: Krylov iterations on the lattice lines, exact whatever the contrast."""

import time

import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.exact import MediumSolver
from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.schwarz.base_engine import SolveOptions
from mosaicdd.schwarz.condensed.condensed_fill import fill_strips
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.condensed.conjugate_gradients import ConjugateGradients
from mosaicdd.schwarz.condensed.conjugate_residuals import ConjugateResiduals
from mosaicdd.schwarz.condensed.interface_krylov import InterfaceKrylov
from mosaicdd.schwarz.condensed.vectors import Vectors
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.medium_engine import Iterated, MediumEngine, RightHandSide, require_method
from mosaicdd.schwarz.settings import StoppingRule
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.sweep import interface_exchange

_METHODS = {"cg": ConjugateGradients, "gcr": ConjugateResiduals}


class CondensedEngine(MediumEngine):
    """Solves in one medium on the lattice lines alone.

    Raises
    ------
    ValueError
        If the ranks do not fit the lattice, or the coefficients are not sound.
    Unsupported
        If the settings ask for what this method has not.
    """

    def _prepare(self, lattice: Lattice, local_solver: MediumSolver) -> None:
        require_method(self.settings)
        operator = local_solver.operator
        self.acceleration = "cg" if operator.self_adjoint else "gcr"
        self._exchange = interface_exchange(self._ranks, self.block, self.settings, self.problems)
        if (CondensedSystem, self.block) not in local_solver.planned:
            system = CondensedSystem(
                self._ranks,
                self.block,
                operator,
                local_solver.discretisation,
                self.clock,
                **self._tensors,
            )
            local_solver.planned[CondensedSystem, self.block] = system
        self.system: CondensedSystem = local_solver.planned[CondensedSystem, self.block]
        system = self.system
        self.equations, self.conductances = system.equations, system.conductances
        self.measure = system.measure

    @property
    def unknowns(self) -> int:
        """Interface nodes of the whole domain that have an unknown."""
        return self.system.unknowns

    def _iterate(
        self,
        data: RightHandSide,
        rule: StoppingRule,
        options: SolveOptions,
        room: torch.Tensor | None,
    ) -> Iterated:
        clock = [time.perf_counter()]
        v, source = self._begun(data), data.source
        vectors = Vectors(self.block, problems=self.problems, room=room, **self._tensors)
        solve = _METHODS[self.acceleration](
            self._ranks,
            self.system,
            vectors,
            self._exchange,
            rule,
            progress=options.progress,
            watch=options.watch,
        )
        if options.history is not None:
            solve.histories[0] = options.history.followed_by(History())
        with self.clock.part(self.acceleration):
            with self.clock.part("loads"):
                b = solve.right_hand_side(source)
            x, r = solve(v, b, data.measures)
        v = self._from_owners(v)
        clock.append(time.perf_counter())
        estimates = self._estimates(solve, vectors, x, r)
        clock.append(time.perf_counter())
        if not self.system.used:  # what the set-up has freed
            del vectors, x, b, r
            give_back_memory()
            self.system.used = True
        return Iterated(
            v,
            solve.ends,
            solve.sizes,
            solve.histories,
            estimates,
            lambda: fill_strips(self.system, v, source),
            {"iterate": clock[1] - clock[0], "estimate": clock[2] - clock[1]},
        )

    def _begun(self, data: RightHandSide) -> Interface:
        """Return the interface that the iteration begins with."""
        v, system = data.v, self.system
        every = v.flat.view(self.problems, -1)
        if data.constants.any():
            every.add_(torch.from_numpy(data.constants).to(every)[:, None])
            if self.equations is None:
                v.impose(data.boundaries)
        if self.equations is not None:
            every.mul_(system.active)
        return self._from_owners(v)

    def _from_owners(self, v: Interface) -> Interface:
        """Let values that stand at several places along periodic axes be the same to the bit."""
        if any(self.block.lattice.periodic):
            v.flat.mul_(v.ownership().flat)
            self._exchange.add(v.lines)
            v.match_copies()
        return v

    def _estimates(
        self, solve: InterfaceKrylov, vectors: Vectors, x: torch.Tensor, r: torch.Tensor
    ) -> list[ErrorEstimate]:
        """Estimate the errors of results with residuals."""
        sizes, energies = solve.errors(x, r)
        rms = solve.rms(sizes)
        nodes = vectors.at_nodes(sizes)
        place = tuple(map(slice, self.block.start, self.block.stop))
        return [
            ErrorEstimate(
                rms=float(rms[i]),
                interface=float(rms[i]),
                nodes=nodes[i],
                place=place,
                energy=None if energies is None else float(energies[i]),
            )
            for i in range(self.problems)
        ]
