"""The engine for media: Krylov iterations on the condensed elements, exact whatever the contrast."""

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.local_solvers.exact import CondensedSolver
from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.problems.discretisation.given_conditions import Points, points_on
from mosaicdd.problems.discretisation.node_equations import Equations
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.base_engine import BaseEngine, SolveOptions
from mosaicdd.schwarz.certify import Certificate
from mosaicdd.schwarz.condensed.condensed_fill import FieldResidual, fill_strips
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.condensed.conjugate_gradients import ConjugateGradients
from mosaicdd.schwarz.condensed.conjugate_residuals import ConjugateResiduals
from mosaicdd.schwarz.condensed.embedded import Embedded
from mosaicdd.schwarz.condensed.interface_krylov import InterfaceKrylov
from mosaicdd.schwarz.condensed.vectors import Vectors
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.fill import Strip, in_window
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings, StoppingRule
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.sweep import interface_exchange
from mosaicdd.schwarz.verdict import PLAUSIBLE, Evidence, suspected
from mosaicdd.unsupported import Unsupported

# The residual of a field is that of its values on the lines but for rounding, up to 1e-8 of it where both are near 1e-8.
_SAME = 1 + 1e-6
_METHODS = {"cg": ConjugateGradients, "gcr": ConjugateResiduals}


class CondensedEngine(BaseEngine[CondensedSolver]):
    """Solves in one medium; what depends on that alone is planned once and kept by the local solver.

    Raises
    ------
    ValueError
        If the ranks do not fit the lattice, or the coefficients are not sound.
    Unsupported
        If the settings ask for what this method has not.
    """

    def _prepare(self, lattice: Lattice, local_solver: CondensedSolver) -> None:
        require_method(self.settings)
        operator = local_solver.operator
        self.acceleration = "cg" if operator.self_adjoint else "gcr"
        self._exchange = interface_exchange(self._ranks, self.block, self.settings, self.problems)
        if self.block not in local_solver.planned:
            system = CondensedSystem(
                self._ranks,
                self.block,
                operator,
                local_solver.discretisation,
                self.clock,
                **self._tensors,
            )
            local_solver.planned[self.block] = system
        self._system: CondensedSystem = local_solver.planned[self.block]

    @property
    def unknowns(self) -> int:
        """Interface nodes of the whole domain that have an unknown."""
        return self._system.unknowns

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        equations = self._system.equations
        rule, clock = self._rule(options), [time.perf_counter()]
        v = options.start
        if v is None:
            v = Interface(self.block, problems=self.problems, **self._tensors)
        data: Embedded | None = None
        source: NodeSource | None
        if equations is not None:
            with self.clock.part("sample"):
                data = self._embedded(equations)
            v.flat.view(self.problems, -1).mul_(self._system.active)
            b = torch.from_numpy(data.right_hand_side).to(**self._tensors)
            source = NodeSource(b, nodes=data.driven)
        else:
            v.impose(boundaries)
            source = self._source(options.force)
        v = self._from_owners(v)
        active = None if equations is None else equations.active
        where = self._ranks, v, self._system.conductances
        measure = self._system.measure
        measures, constants = measure(self._ranks, v, source, rule.rtol)
        if options.start is None and constants.any():
            every = v.flat.view(self.problems, -1)
            every.add_(torch.from_numpy(constants).to(every)[:, None])
            if equations is None:
                v.impose(boundaries)
            else:
                every.mul_(self._system.active)
        field_residual = FieldResidual(*where, source, measure.weights, measures, active)
        fields = None
        if self._wanted and options.sink is None:
            fields = self._new_fields()
        room = None if fields is None else fields.view(-1)  # where there is nothing before the fill
        vectors = Vectors(self.block, problems=self.problems, room=room, **self._tensors)
        solve = _METHODS[self.acceleration](
            self._ranks,
            self._system,
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
            x, r = solve(v, b, measures)
        v = self._from_owners(v)
        clock.append(time.perf_counter())
        estimates = self._estimates(solve, vectors, x, r)
        clock.append(time.perf_counter())
        ends, sizes, histories = solve.ends, solve.sizes, solve.histories
        del solve, vectors, room, x, b, r  # for the memory of the fill
        if not self._system.used:  # what the set-up has freed
            give_back_memory()
            self._system.used = True
        reached = [history.residual[-1] for history in histories]
        residuals = reached
        if self._wanted:
            strips = self._strips(v, source, field_residual, data)
            if options.sink is None:
                fields = self._kept(strips, fields)
            else:
                options.sink(strips)
            if self._window is None:
                residuals = field_residual.relative().tolist()
        evidence = self._evidence(
            rule.rtol, ends, estimates, sizes, reached, residuals, field_residual, v, source
        )
        clock.append(time.perf_counter())
        parts = ("iterate", "estimate", "assemble")
        seconds = dict(zip(parts, np.diff(clock).tolist(), strict=True))
        certify = self.settings.certify
        return [
            self._outcome(
                ends[i],
                evidence[i],
                estimates[i],
                number=i,
                update=histories[i].update[-1],
                imbalance=None
                if data is None or data.imbalance is None
                else data.imbalance[i].item(),
                certificate=None
                if certify is None
                else Certificate(certify, len(histories[i].update), 0.0, 0.0),
                history=histories[i],
                interface=v,
                field=None if fields is None else fields[i],
                seconds=dict(seconds),
            )
            for i in range(self.problems)
        ]

    def _evidence(
        self,
        rtol: float,
        ends: Sequence[str],
        estimates: Sequence[ErrorEstimate],
        sizes: np.ndarray,
        reached: Sequence[float],
        residuals: Sequence[float],
        field_residual: FieldResidual,
        v: Interface,
        source: NodeSource | None,
    ) -> list[Evidence]:
        """Return what is known of the fields; where rounding may matter, they are filled again to measure it.

        Parameters
        ----------
        reached, residuals
            Relative residuals: that the iterations ended with, and those of the fields.
        """
        certify = self.settings.certify
        promised = [
            max(rtol, _SAME * left) if end == "converged_atol" and certify is None else rtol
            for end, left in zip(ends, reached, strict=True)
        ]
        rounding = np.zeros(self.problems)
        if certify is None and any(map(suspected, ends, residuals, promised)):
            for strip in fill_strips(self._system, v, source):
                field_residual.add_rounding(strip)
            rounding = field_residual.rounding()
        # Beside a right-hand side that is zero there is no answer to be a share of.
        plausible = np.where(field_residual.measures > 0, max(PLAUSIBLE, 10 * rtol), np.inf)
        return [
            Evidence(
                estimates[i].rms,
                float(sizes[i]),
                residuals[i],
                promised[i],
                float(rounding[i]),
                float(plausible[i]),
            )
            for i in range(self.problems)
        ]

    def inside_shape(self, nodes: Slices) -> int | None:
        """Count the nodes inside a domain that is no rectangle; see `BaseEngine`."""
        equations = self._system.equations
        around = any(self.block.lattice.periodic)  # then the last nodes are copies
        if equations is None or equations.outlines is None or around:
            return None
        place = tuple(
            slice(p.start - first, p.stop - first)
            for p, first in zip(nodes, self.block.origin, strict=True)
        )
        return int(equations.outlines.reported[place].sum())

    def outline_points(self) -> Points | None:
        """Return where conditions on outlines act on this rank's nodes; see `BaseEngine`."""
        equations, discretisation = self._system.equations, self._solver.discretisation
        outline = None if discretisation is None else discretisation.outline
        around = any(self.block.lattice.periodic)  # then some nodes are copies
        if equations is None or equations.outlines is None or outline is None or around:
            return None
        own = self.block.owned_unknowns()[0]
        return points_on(equations.outlines.part(*own), outline.names)

    def _from_owners(self, v: Interface) -> Interface:
        """Let values that stand at several places along periodic axes be the same to the bit."""
        if any(self.block.lattice.periodic):
            v.flat.mul_(v.ownership().flat)
            self._exchange.add(v.lines)
            v.match_copies()
        return v

    def _embedded(self, equations: Equations) -> Embedded:
        """Return the data of the problems that are solved now."""
        solver = self._solver
        problem = solver.source.problem
        where = self._ranks, self.block, solver.discretisation
        return Embedded(*where, problem, equations, beyond=self._beyond)

    def _rule(self, options: SolveOptions) -> StoppingRule:
        """Return the rule, whose tolerance bounds the residual here, as a certificate's does."""
        rule, certify = super()._rule(options), self.settings.certify
        rtol = rule.rtol if certify is None else min(rule.rtol, certify)
        return StoppingRule(rtol, rule.atol, rule.max_iterations)

    def _source(self, force: torch.Tensor | None) -> NodeSource | None:
        """Return the source at the region's nodes, or what is given in its place; None if zero."""
        if force is not None:
            return NodeSource(force)
        if self._solver.source.problem.source is None:
            return None
        with self.clock.part("sample"):
            f = self._ranks.agree(lambda: self._solver.source.on(self.block, **self._tensors))
        return NodeSource(f.expand(self.problems, -1, -1), self.block.lattice.grid.spacing**2)

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

    def _strips(
        self,
        v: Interface,
        source: NodeSource | None,
        residual: FieldResidual,
        data: Embedded | None,
    ) -> Iterator[Strip]:
        """Fill the field strip by strip, and measure it by the way."""
        if data is not None and data.imbalance is not None:
            data.centre(fill_strips(self._system, v, source))
        strips = fill_strips(self._system, v, source)
        checking = self.clock.part("check")
        for strip in strips:
            if self._window is None:
                with checking:
                    residual.add(strip)
            whole = strip if data is None else data.completed(strip, v)
            yield from [whole] if self._window is None else in_window(iter([whole]), self._window)


def require_method(settings: SolveSettings) -> None:
    """Check that nothing is asked for that is of the other method.

    Raises
    ------
    Unsupported
        If something is.
    """
    unlike = {
        "levels=1": settings.levels == 1,
        "sweep='phases'": settings.sweep == "phases",
        f"accelerate={settings.accelerate!r}": settings.accelerate is not None,
        "coarse_points": settings.coarse_points is not None,
        "until_mae": settings.until_mae is not None,
        f"halo_depth={settings.halo_depth}": settings.halo_depth > 1,
        "dtype='float32'": settings.dtype == "float32",
    }
    for name, is_given in unlike.items():
        if is_given:
            raise Unsupported(
                f"{name} is not for coefficients that are fields, natural or periodic sides, shapes, "
                "nonlinear equations and anisotropies above 100, which condensed elements solve on two "
                "levels in float64: leave it out"
            )
