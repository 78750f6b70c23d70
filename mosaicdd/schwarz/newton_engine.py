r"""The engine for nonlinear equations: Newton's method, whose steps are solves in a medium.

Each step solves $J(u) \delta = -F(u)$ by `CondensedEngine`, only as well as it pays (Eisenstat and Walker,
1996: the bound of a step's residual falls with that of the nonlinear one), and goes on by
$u + t \delta$ with the largest $t$ of 1, 1/2, 1/4, ... that lowers the residual. A rank holds its part of
the field, with the nodes around its region; one movement of these per evaluation is all that ranks
exchange besides.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, pair
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.source import Source
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields import LocalPart
from mosaicdd.problems.nonlinear import Linearised, Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.base_engine import BaseEngine, Sink
from mosaicdd.schwarz.certify import Certificate
from mosaicdd.schwarz.condensed_engine import CondensedEngine, require_method
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.fill import Strip, in_window
from mosaicdd.schwarz.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.stopwatch import Stopwatch

_LOOSEST, _FORCING = (
    1e-2,
    0.1,
)  # bounds of a step's linear residual: this, and times the nonlinear one
_SHORTEST = 2.0**-12  # of a step
_SLOWEST = 0.75  # part of its last update that a step may leave, for an error estimate
_SAFETY = 1.5  # of error estimates, which are linear
_ESTIMATE = 0.1  # linear residual that is enough for an error estimate


class NewtonEngine(BaseEngine):
    """Solves nonlinear boundary value problems.

    An iteration is a step of Newton's method. The ``rtol`` of the settings bounds the residual, relative
    to that of the boundary data with zeros inside.

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
        self._lattice, self._grid = lattice, lattice.grid
        self._begin: torch.Tensor | None = None
        self._own = self.block.owned_nodes()[1]
        halo = lattice.spacing + 2  # a region, and what its conductances and their diagonal need
        shards = [one for one in self.layout.placements if isinstance(one, Shard)]
        placements = tuple(Halo(one.axis, halo, one.sizes) for one in shards)
        wide = Layout(self.layout.shape, self.layout.mesh, placements)
        self._widen = Redistribution(self.layout, wide, ranks, np.float64)
        self._wide = pair(
            slice(max(p.start - halo, 0), min(p.stop + halo, nodes))
            for p, nodes in zip(self._own, self._grid.nodes, strict=True)
        )
        with self.clock.part("sample"):
            self._operator = ranks.agree(lambda: operator.on(self._grid, self._wide))

    def check(self, boundaries: Sequence[Boundary]) -> None:
        """Check that Newton's method can begin from the surface that the boundary data span.

        Raises
        ------
        ValueError
            If the residual is not finite there, or the derivative that of no elliptic equation.
        """
        for boundary in boundaries:
            u = boundary.spanned(*self._wide)
            if not np.isfinite(self._operator.residual(u)).all():
                raise ValueError(
                    "the equation's residual is not finite for values between those on the sides"
                )
            self._operator.derivative(u, self._wide)

    def imposed(self, boundary: Boundary, u: np.ndarray | None = None) -> np.ndarray:
        """Write boundary data to the edge of values at the wide part's nodes, by default zeros."""
        if u is None:
            u = np.zeros([p.stop - p.start for p in self._wide])
        for name, there in _edges(self._wide, self._grid.nodes):
            u[there] = getattr(boundary, name)[self._wide[1 if name in ("bottom", "top") else 0]]
        return u

    def begin_with(self, fields: Callable[[], torch.Tensor | None]) -> None:
        """Let the next solve begin with fields; without them, with what the lines span between them."""
        self._begin = fields()

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
        begun = time.perf_counter()
        f = self._source()
        watch = watch or Watch()
        solves = []
        for i, boundary in enumerate(boundaries):
            source = None if f is None else f[i % len(f)]
            solve = _Newton(self, boundary, source, progress, watch)
            if history is not None:
                solve.history = history.followed_by(History())
            field = None if self._begin is None else self._begin[i]
            solve.run(None if start is None else _of_problem(start, i), field)
            solves.append(solve)
        self._begin = None
        v = self._interface([solve.u for solve in solves])
        iterated = time.perf_counter()
        estimates = [solve.estimate() for solve in solves]
        estimated = time.perf_counter()
        owned = np.stack([self._owned(solve.u) for solve in solves])
        fields = torch.from_numpy(owned).to(**self.settings.tensors)
        if self._wanted and sink is not None:
            sink(self._strips(fields))
        seconds = {
            "iterate": iterated - begun,
            "estimate": estimated - iterated,
            "assemble": time.perf_counter() - estimated,
        }
        kept = self._wanted and sink is None
        inside = next(iter(self._strips(fields))).owned if self._window else fields
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
                field=inside[i] if kept else None,
                place=self.place,
                layout=self.layout,
                seconds=dict(seconds),
            )
            for i, (solve, estimate) in enumerate(zip(solves, estimates, strict=True))
        ]

    def _source(self) -> np.ndarray | None:
        """Return the sources at the nodes of the wide part, ``(n or 1, rows, columns)``."""
        problem = self._solver.source.problem
        with self.clock.part("sample"):
            return self._ranks.agree(lambda: problem.source_at(self._grid, self._wide))

    def _owned(self, wide: np.ndarray) -> np.ndarray:
        """Return the nodes of a wide part that this rank owns."""
        return wide[_within(self._own, self._wide)]

    def _interface(self, fields: Sequence[np.ndarray]) -> Interface:
        """Return the values on the lattice lines of the region."""
        v = Interface(self.block, problems=len(fields), **self.settings.tensors)
        s = self._lattice.spacing
        region = pair(
            slice(first, first + cells + 1)
            for first, cells in zip(self.block.origin, self.block.cells, strict=True)
        )
        nodes = torch.from_numpy(np.stack([u[_within(region, self._wide)] for u in fields]))
        v.lines[0].copy_(nodes[:, ::s])
        v.lines[1].copy_(nodes[:, :, ::s].mT)
        return v

    def _strips(self, fields: torch.Tensor) -> Iterator[Strip]:
        """Yield this rank's part of the fields, or of the window, as one strip."""
        whole = pair(slice(0, p.stop - p.start) for p in self._own)
        strips = iter([Strip(fields, whole, self._own)])
        yield from strips if self._window is None else in_window(strips, self._window)


class _Newton:
    """Newton's method for one problem.

    Attributes
    ----------
    u
        Values at the nodes of the wide part.
    status, relative, size, history
        How it went: ``relative`` is the residual by that of the first values.
    """

    def __init__(
        self,
        engine: NewtonEngine,
        boundary: Boundary,
        f: np.ndarray | None,
        progress: Callable[[int, float, float, float], None] | None,
        watch: Watch,
    ):
        self._engine, self._f, self._progress, self._watch = engine, f, progress, watch
        self._boundary = boundary
        self._zero = Boundary(*(0.0 * getattr(boundary, edge) for edge in Boundary.EDGES))
        self.history = History()
        self.status: str | None = None
        self.size = 0.0
        self.u = engine.imposed(boundary)  # the measure of residuals
        self._begun = time.perf_counter()
        self._linear: CondensedSolver | None = None
        settings = engine.settings
        self._rtol = min(settings.rtol, settings.certify or settings.rtol)

    def run(self, start: Interface | None, field: torch.Tensor | None) -> None:
        """Iterate until the residual is small, or nothing makes it smaller."""
        self._evaluate()
        self._first = self._norm or 1.0
        self.u = self._boundary.spanned(*self._engine._wide)
        self._evaluate()
        if start is not None:
            self._begin(start, field)
        while self.status is None:
            self._step()

    @property
    def relative(self) -> float:
        """The residual, relative to that of zeros inside."""
        return self._norm / self._first

    @property
    def certificate(self) -> Certificate | None:
        """What `certify` asks for: here the tolerance bounds the residual itself."""
        certify = self._engine.settings.certify
        if certify is None:
            return None
        return Certificate(certify, len(self.history.update), 0.0, 0.0)

    def estimate(self) -> ErrorEstimate:
        """Estimate the error by what one more step would change, with the last derivative.

        What the steps after that would change is the geometric series of what these two leave.
        """
        try:
            outcome = self._solved(_ESTIMATE)
        except ValueError:
            return self._unknown()
        estimate, change = outcome.error_estimate, outcome.interface.nodes().abs()[0]
        last = self.history.update[-1]
        share = min(outcome.size / last, _SLOWEST) if last > 0 else 0.0
        scale = (
            _SAFETY * (1.0 + estimate.rms / outcome.size) / (1.0 - share) if outcome.size else 1.0
        )
        return dataclasses.replace(
            estimate,
            rms=scale * outcome.size,
            interface=scale * outcome.size,
            nodes=scale * change,
            energy=None,
        )

    def _unknown(self) -> ErrorEstimate:
        """Return the estimate where there is no derivative to go by: infinite."""
        block = self._engine.block
        place = pair(map(slice, block.start, block.stop))
        nodes = torch.full(block.subdomains, math.inf, **self._engine.settings.tensors)
        return ErrorEstimate(math.inf, math.inf, nodes, place)

    def _begin(self, start: Interface, field: torch.Tensor | None) -> None:
        """Take a field over; or the values on the lattice lines, and what these span between them."""
        engine, block, s = self._engine, self._engine.block, self._engine._lattice.spacing
        if field is not None:
            self.u = engine.imposed(self._boundary, self._widened(field.double().cpu().numpy()))
            self._evaluate()
            return
        region = pair(slice(a, a + n + 1) for a, n in zip(block.origin, block.cells, strict=True))
        rows, columns = (lines[0].cpu().numpy() for lines in start.lines)
        self.u[_within(region, engine._wide)] = _spanned(rows, columns, s)
        engine.imposed(self._boundary, self.u)
        self.u = self._widened(engine._owned(self.u))
        self._evaluate()

    def _step(self) -> None:
        """Take a step, and judge it."""
        engine, before = self._engine, self._norm
        self._linear = None
        aim = 0.5 * self._rtol / max(self.relative, 1e-300)
        try:
            outcome = self._solved(max(min(_LOOSEST, _FORCING * self.relative), min(aim, _LOOSEST)))
        except ValueError:  # of all ranks: no elliptic equation at these values
            self._enter(0.0)
            self.status = "stagnated"
            return
        u, length = self.u, 1.0
        while True:
            self.u = self._moved(outcome.field, length, u)
            self._evaluate()
            if self._norm < before or length < _SHORTEST:
                break
            length /= 2
        improved = self._norm < before
        if not improved and math.isfinite(before):
            self.u = u
            self._evaluate()
        self._enter(length * outcome.size)
        nodes = engine._owned(self.u)
        total, count, *calls = engine._ranks.sum(
            np.array([np.square(nodes).sum(), nodes.size, *self._watch.calls()])
        )
        self.size = math.sqrt(total / count)
        if self._progress is not None:
            updates = self.history.update
            self._progress(len(updates), updates[-1], self.size, math.nan)
        self._judge(outcome, improved=improved)
        self._answer(*(call > 0 for call in calls))

    def _enter(self, update: float) -> None:
        """Enter a step into the history."""
        self.history.update.append(update)
        self.history.residual.append(self.relative)
        self.history.mae.append(math.nan)
        self.history.seconds.append(time.perf_counter() - self._begun)

    def _judge(self, outcome: Outcome, *, improved: bool) -> None:
        """Decide how it ended, if it did."""
        settings = self._engine.settings
        if not math.isfinite(self.relative):
            self.status = "diverged_nan"
        elif self.relative <= self._rtol:
            self.status = "converged_rtol"
        elif self.history.update[-1] <= settings.atol:
            self.status = "converged_atol"
        elif not improved or outcome.status == "stagnated":
            self.status = "stagnated"
        elif outcome.status in ("diverged_nan", "diverged_tolerance"):
            self.status = outcome.status
        elif len(self.history.update) >= settings.max_iterations:
            self.status = "diverged_max_iterations"

    def _answer(self, interrupted: bool, due: bool) -> None:
        """Keep a checkpoint, and stop, if any rank was called to."""
        if self._watch.save is not None and (interrupted or due):
            self._watch.save(self._engine._interface([self.u]), self.history)
            self._watch.saved()
        if interrupted:
            self.status = self.status or "interrupted"

    def _evaluate(self) -> None:
        """Evaluate the residual, and its 2-norm over the nodes of all ranks."""
        engine = self._engine
        with engine.clock.part("residual"):
            inner = engine._operator.residual(self.u)
            self._residual = np.zeros_like(self.u)
            self._residual[1:-1, 1:-1] = inner
            if self._f is not None:
                self._residual -= engine._grid.spacing**2 * self._f
            for _, there in _edges(engine._wide, engine._grid.nodes):
                self._residual[there] = 0.0
            mine = np.square(engine._owned(self._residual)).sum()
        self._norm = math.sqrt(float(engine._ranks.sum(np.array([mine]))[0]))

    def _solved(self, rtol: float) -> Outcome:
        """Solve for the change that the derivative asks for; the last derivative is kept."""
        engine = self._engine
        grid, subdomain = engine._grid, engine._solver.subdomain
        force = LocalPart(grid, -self._residual / grid.spacing**2, engine._wide)
        problem = Problem(Domain(grid.shape, grid.spacing), "poisson", {"f": force})
        if self._linear is None:
            operator = Linearised(engine._operator, self.u)
            self._linear = CondensedSolver(operator, subdomain, Source(problem, grid, subdomain))
        else:
            self._linear.source.update(problem)
        settings = engine.settings.with_changes(rtol=rtol, certify=None, max_iterations=200)
        step = CondensedEngine(
            engine._ranks, engine._lattice, self._linear, settings, clock=engine.clock
        )
        return step.solve_many([self._zero])[0]

    def _moved(
        self, change: torch.Tensor | None, length: float, u: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``u`` and some of a change, of this rank's part, around all of the wide part."""
        u = self.u if u is None else u
        owned = self._engine._owned(u)
        if change is not None:
            owned = owned + length * change.cpu().numpy()
        return self._widened(owned)

    def _widened(self, owned: np.ndarray) -> np.ndarray:
        return self._engine._widen(np.ascontiguousarray(owned))


def _within(part: Slices, whole: Slices) -> Slices:
    """Return where a part of the grid lies in an array of another that holds it."""
    return pair(
        slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, whole, strict=True)
    )


def _spanned(rows: np.ndarray, columns: np.ndarray, s: int) -> np.ndarray:
    """Return smooth surfaces between lattice lines with their values on these (Coons, 1967).

    Parameters
    ----------
    rows, columns
        Values on the lines of a region constant in y, ``(lines, nodes)``, and in x.
    """
    t = np.arange(s) / s
    along = _between(rows.T, t).T  # everywhere, from the lines constant in y
    across = _between(columns.T, t)
    corners = _between(_between(rows[:, ::s], t).T, t).T
    return along + across - corners


def _between(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Interpolate linearly between values along the last axis; ``t`` holds places between two."""
    inside = values[..., :-1, None] * (1 - t) + values[..., 1:, None] * t
    return np.concatenate([inside.reshape(*values.shape[:-1], -1), values[..., -1:]], axis=-1)


def _edges(place: Slices, nodes: tuple[int, int]) -> list[tuple[str, Any]]:
    """Return the edges of the domain that a part of the grid touches, and where in the part."""
    rows, columns = place
    ends = {
        "bottom": (rows.start == 0, (0, slice(None))),
        "top": (rows.stop == nodes[0], (-1, slice(None))),
        "left": (columns.start == 0, (slice(None), 0)),
        "right": (columns.stop == nodes[1], (slice(None), -1)),
    }
    return [(name, there) for name, (touches, there) in ends.items() if touches]


def _of_problem(v: Interface, number: int) -> Interface:
    """Return the interface of one of several problems."""
    flat = v.flat.view(v.problems, -1)[number]
    return Interface(v.block, flat=flat.contiguous(), **v.tensors)
