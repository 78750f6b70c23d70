"""The engine for nonlinear equations: Newton's method on the whole grid.

It begins with the harmonic surface over the boundary data, which lies between their values.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.nonlinear import Nonlinear
from mosaicdd.schwarz.base_engine import BaseEngine, Sink
from mosaicdd.schwarz.condensed_engine import require_method
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.fill import Strip, in_window
from mosaicdd.schwarz.newton import Newton, Steps
from mosaicdd.schwarz.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.schwarz.wide_field import WideField

_HARMONIC = 1e-3  # relative update at which a harmonic surface is good enough to begin with


class NewtonEngine(BaseEngine):
    """Solves nonlinear boundary value problems.

    An iteration is a step of Newton's method. The ``rtol`` of the settings bounds the residual, relative
    to the right-hand side of the equation that is linearised at the harmonic surface: for a linear
    equation, to its own.

    Raises
    ------
    ValueError
        If the ranks do not fit the lattice, or fields are not sound.
    TypeError
        If the settings ask for what this method has not.
    """

    acceleration = "newton"

    def __init__(
        self,
        ranks: Ranks,
        lattice: Lattice,
        local_solver: CondensedSolver,
        settings: SolveSettings,
        *,
        problems: int = 1,
        fill: bool = True,
        window: Window | None = None,
        clock: Stopwatch | None = None,
    ):
        require_method(settings)
        operator = local_solver.operator
        if not isinstance(operator, Nonlinear):
            raise TypeError(f"Newton's method is for nonlinear operators, got {operator}")
        super().__init__(
            ranks, lattice, settings, problems=problems, fill=fill, window=window, clock=clock
        )
        self.filling = self._solver = local_solver
        self._place = WideField(ranks, self.block, self.layout)
        self._fields: torch.Tensor | None = None
        self._known: _Beginning | None = None
        with self.clock.part("sample"):
            self._operator = ranks.agree(lambda: operator.on(lattice.grid, self._place.wide))
        self._steps = Steps(
            ranks,
            lattice,
            local_solver.subdomain,
            self._operator,
            self._place,
            settings,
            self.clock,
        )

    def check(self, boundaries: Sequence[Boundary]) -> None:
        """Check that Newton's method can begin with harmonic surfaces over boundary data.

        Raises
        ------
        ValueError
            If a residual is not finite there, or a derivative that of no elliptic equation.
        """
        for boundary in boundaries:
            self._beginning(boundary)

    @cached_property
    def _harmonic(self) -> Engine:
        """What finds harmonic surfaces."""
        lattice, solver = (
            self.block.lattice,
            ExactSolver(EllipticOperator(), self._solver.subdomain),
        )
        loose = self.settings.with_changes(rtol=_HARMONIC, certify=None)
        return Engine(self._ranks, lattice, solver, loose, clock=self.clock)

    def _beginning(self, boundary: Boundary) -> "_Beginning":
        """Return where a solve for boundary data begins, where the equation must be sound."""
        if self._known is None or not _same(self._known.boundary, boundary):
            owned = self._harmonic.solve(boundary).field
            if owned is None:
                raise RuntimeError("the field of a harmonic surface is kept")
            u = self._place.imposed(boundary, self._place.widened(owned))
            right = self._ranks.agree(lambda: self._linearised(u, boundary))
            self._known = _Beginning(boundary, u, right)
        return self._known

    def _linearised(self, u: np.ndarray, boundary: Boundary) -> np.ndarray:
        """Return what the equation linearised at values has on its right-hand side, but for sources."""
        residual = self._operator.residual(u)
        if not np.isfinite(residual).all():
            raise ValueError(
                "the equation's residual is not finite for values between those on the sides"
            )
        derivative, right = self._operator.derivative(u, self._place.wide), self._place.zeros()
        right[1:-1, 1:-1] = derivative.apply(u - self._place.zeros(boundary)) - residual
        return right

    def _measure(self, right: np.ndarray, f: np.ndarray | None) -> float:
        """Return the 2-norm of a right-hand side and a source over the nodes of all ranks, or 1."""
        total = right if f is None else right + self._operator.grid.spacing**2 * f
        total = total.copy()
        self._place.clear_edges(total)
        square = np.square(self._place.owned(total)).sum()
        return math.sqrt(float(self._ranks.sum(np.array([square]))[0])) or 1.0

    def begin_with(self, fields: Callable[[], torch.Tensor | None]) -> None:
        """Let the next solve begin with fields; without them, with what the lines span between them."""
        self._fields = fields()

    def solve_many(
        self,
        boundaries: Sequence[Boundary],
        *,
        start: Interface | None = None,
        history: History | None = None,
        reference: Interface | None = None,
        progress: Callable[[int, float, float, float], None] | None = None,
        watch: Watch | None = None,
        sink: Sink | None = None,
    ) -> list[Outcome]:
        """Solve for the boundary data of each problem; see `BaseEngine`."""
        self._require_number(boundaries)
        f = self._source()
        seconds = {"iterate": 0.0, "estimate": 0.0}
        solves: list[tuple[Newton, ErrorEstimate]] = []
        for i, boundary in enumerate(boundaries):
            begun = time.perf_counter()
            source = None if f is None else f[i % len(f)]
            beginning = self._beginning(boundary)
            solve = Newton(
                self._steps,
                source,
                self._measure(beginning.right, source),
                history=(history or History()).followed_by(History()),
                progress=progress,
                watch=watch or Watch(),
            )
            solve.run(beginning.u if start is None else self._begun(i, boundary, start))
            iterated = time.perf_counter()
            solves.append((solve, solve.estimate()))
            seconds["iterate"] += iterated - begun
            seconds["estimate"] += time.perf_counter() - iterated
        self._fields = None
        begun = time.perf_counter()
        values = [solve.u for solve, _ in solves]
        v = self._place.lines(values, self._tensors)
        fields = None
        if self._wanted and sink is None:
            fields = self._kept(self._strips(values))
        elif sink is not None:
            sink(self._strips(values))
        seconds["assemble"] = time.perf_counter() - begun
        return [
            Outcome(
                status=solve.status or "stagnated",
                update=solve.history.update[-1],
                size=solve.size,
                residual=None,
                discrete_residual=solve.relative,
                error_estimate=estimate,
                certificate=solve.certificate,
                outside=None,
                history=solve.history,
                interface=v,
                field=None if fields is None else fields[i],
                place=self.place,
                layout=self.layout,
                seconds=dict(seconds),
            )
            for i, (solve, estimate) in enumerate(solves)
        ]

    def _begun(self, i: int, boundary: Boundary, start: Interface) -> np.ndarray:
        """Return the values from which a problem's solve begins that has a start."""
        if self._fields is not None:
            u = self._place.widened(self._fields[i])
        else:
            u = self._place.between_lines(_of_problem(start, i))
        return self._place.imposed(boundary, u)

    def _source(self) -> np.ndarray | None:
        """Return the sources at the nodes that are held here, ``(n or 1, rows, columns)``."""
        problem = self._solver.source.problem
        with self.clock.part("sample"):
            return self._ranks.agree(
                lambda: problem.source_at(self._operator.grid, self._place.wide)
            )

    def _strips(self, fields: Sequence[np.ndarray]) -> Iterator[Strip]:
        """Yield this rank's part of the fields, or of the window, as one strip."""
        strips = self._place.strips(fields, self._tensors)
        return strips if self._window is None else in_window(strips, self._window)


@dataclass(frozen=True)
class _Beginning:
    """Where a solve for boundary data begins.

    Parameters
    ----------
    u
        The harmonic surface, at the nodes that are held here.
    right
        The right-hand side of the equation linearised there, without sources.
    """

    boundary: Boundary
    u: np.ndarray
    right: np.ndarray


def _same(one: Boundary, other: Boundary) -> bool:
    return one is other or all(
        np.array_equal(getattr(one, edge), getattr(other, edge)) for edge in Boundary.EDGES
    )


def _of_problem(v: Interface, number: int) -> Interface:
    """Return the interface of one of several problems."""
    flat = v.flat.view(v.problems, -1)[number]
    return Interface(v.block, flat=flat.contiguous(), **v.tensors)
