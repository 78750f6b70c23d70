"""What the engines for media have in common: the data, how far the answer is from what was asked, and the field.

The right-hand side, and what residuals are relative to, are made from the problem; a subclass iterates and hands
out the field in strips, whose residual is taken in the equations that the user's coefficients make.
"""

import abc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.exact import MediumSolver
from mosaicdd.problems.discretisation.given_conditions import Points, points_on
from mosaicdd.problems.discretisation.node_equations import Equations
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Resampled
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.base_engine import BaseEngine, SolveOptions
from mosaicdd.schwarz.certify import Certificate
from mosaicdd.schwarz.embedded import Embedded
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.field_residual import FieldResidual
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.measure import Measure, NodeSource
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings, StoppingRule
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.verdict import PLAUSIBLE, Evidence, suspected
from mosaicdd.unsupported import Unsupported

# The residual of a field is that of its values on the lines but for rounding, up to 1e-8 of it where both are near 1e-8.
_SAME = 1 + 1e-6


@dataclass
class RightHandSide:
    """The data of a solve.

    Parameters
    ----------
    boundaries
        Of each problem.
    v
        An interface with the values on the edge of the lattice; what a solve begins with.
    source
        At the nodes of the region; None for zero.
    measures
        What residuals are relative to, ``(n,)``.
    constants
        To begin with, ``(n,)``.
    """

    boundaries: Sequence[Boundary]
    v: Interface
    source: NodeSource | None
    measures: np.ndarray
    constants: np.ndarray


@dataclass
class Iterated:
    """What an iteration ended with.

    Parameters
    ----------
    v
        The values on the lattice lines.
    ends, sizes, histories, estimates
        Of each problem: its status, the root mean square of its values, and so on.
    strips
        Returns the field from below; it may be called again.
    seconds
        Of parts of the work.
    """

    v: Interface
    ends: Sequence[str]
    sizes: np.ndarray
    histories: Sequence[History]
    estimates: Sequence[ErrorEstimate]
    strips: Callable[[], Iterator[Strip]]
    seconds: dict[str, float]


class MediumEngine(BaseEngine[MediumSolver]):
    """Solves in one medium; what depends on that alone is planned once and kept by the local solver.

    Attributes
    ----------
    equations
        At the nodes of the region, where the edge of the grid is not that of the lattice; else None.
    conductances
        Between the nodes of the region.
    measure
        Of right-hand sides.
    """

    equations: Equations | None
    conductances: Conductances | Resampled
    measure: Measure

    @abc.abstractmethod
    def _iterate(
        self,
        data: RightHandSide,
        rule: StoppingRule,
        options: SolveOptions,
    ) -> Iterated:
        """Solve."""

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        rule = self._rule(options)
        v = options.start
        if v is None:
            v = Interface(self.block, problems=self.problems, **self._tensors)
        embedded: Embedded | None = None
        source: NodeSource | None
        if self.equations is None:
            v.impose(boundaries)
            source = self._source(options.force)
        else:
            with self.clock.part("sample"):
                embedded = self._embedded(self.equations)
            b = torch.from_numpy(embedded.right_hand_side).to(**self._tensors)
            source = NodeSource(b, nodes=embedded.driven)
        measures, constants = self.measure(self._ranks, v, source, rule.rtol)
        if options.start is not None:
            constants = np.zeros(self.problems)
        residual = FieldResidual(
            self._ranks,
            v,
            self.conductances,
            source,
            self.measure.weights,
            measures,
            None if self.equations is None else self.equations.active,
        )
        data = RightHandSide(boundaries, v, source, measures, constants)
        solved = self._iterate(data, rule, options)
        begun = time.perf_counter()
        reached = residuals = [history.residual[-1] for history in solved.histories]
        fields = self._delivered(self._strips(solved, residual, embedded), options.sink)
        if self._wanted and self._window is None:
            residuals = residual.relative().tolist()
        evidence = self._evidence(rule.rtol, solved, reached, residuals, residual)
        solved.seconds["assemble"] = time.perf_counter() - begun
        certify, histories = self.settings.certify, solved.histories
        imbalance = None if embedded is None else embedded.imbalance
        return [
            self._outcome(
                solved.ends[i],
                evidence[i],
                solved.estimates[i],
                number=i,
                update=histories[i].update[-1],
                imbalance=None if imbalance is None else imbalance[i].item(),
                certificate=None
                if certify is None
                else Certificate(certify, len(histories[i].update), 0.0, 0.0),
                history=histories[i],
                interface=solved.v,
                field=None if fields is None else fields[i],
                seconds=dict(solved.seconds),
            )
            for i in range(self.problems)
        ]

    def _evidence(
        self,
        rtol: float,
        solved: Iterated,
        reached: Sequence[float],
        residuals: Sequence[float],
        field_residual: FieldResidual,
    ) -> list[Evidence]:
        """Return what is known of the fields; where rounding may matter, they are gone over again to measure it.

        Parameters
        ----------
        reached, residuals
            Relative residuals: that the iterations ended with, and those of the fields.
        """
        certify = self.settings.certify
        promised = [
            max(rtol, _SAME * left) if end == "converged_atol" and certify is None else rtol
            for end, left in zip(solved.ends, reached, strict=True)
        ]
        rounding = np.zeros(self.problems)
        if certify is None and any(map(suspected, solved.ends, residuals, promised)):
            for strip in solved.strips():
                field_residual.add_rounding(strip)
            rounding = field_residual.rounding()
        # Beside a right-hand side that is zero there is no answer to be a share of.
        plausible = np.where(field_residual.measures > 0, max(PLAUSIBLE, 10 * rtol), np.inf)
        return [
            Evidence(
                solved.estimates[i].rms,
                float(solved.sizes[i]),
                residuals[i],
                promised[i],
                float(rounding[i]),
                float(plausible[i]),
                visible=math.inf,  # the estimate is made from a residual in differences
            )
            for i in range(self.problems)
        ]

    def inside_shape(self, nodes: Slices) -> int | None:
        """Count the nodes inside a domain that is no rectangle; see `BaseEngine`."""
        equations = self.equations
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
        equations, discretisation = self.equations, self._solver.discretisation
        outline = None if discretisation is None else discretisation.outline
        around = any(self.block.lattice.periodic)  # then some nodes are copies
        if equations is None or equations.outlines is None or outline is None or around:
            return None
        own = self.block.owned_unknowns()[0]
        return points_on(equations.outlines.part(*own), outline.names)

    def _embedded(self, equations: Equations) -> Embedded:
        """Return the data of the problems that are solved now."""
        solver = self._solver
        where = self._ranks, self.block, solver.discretisation
        return Embedded(*where, solver.source.problem, equations, beyond=self._beyond)

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
        return NodeSource(f.expand(self.problems, *f.shape[1:]), self.block.lattice.grid.spacing**2)

    def _strips(
        self, solved: Iterated, residual: FieldResidual, embedded: Embedded | None
    ) -> Iterator[Strip]:
        """Hand out the field strip by strip, and measure it by the way."""
        if embedded is not None and embedded.imbalance is not None:
            embedded.centre(solved.strips())
        checking = self.clock.part("check")
        for strip in solved.strips():
            if self._window is None:
                with checking:
                    residual.add(strip)
            yield strip if embedded is None else embedded.completed(strip, solved.v)


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
                "nonlinear equations and anisotropies above 100, which are solved in float64 by multigrid: "
                "leave it out"
            )
