"""The march through time: `march` for programs, `March` for what wants to look after it."""

import logging
import math
import time as clock
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, Self

from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.parallel.machine import peak_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.rounds import Progress
from mosaicdd.schwarz.settings import CONVERGED, Output, SolveSettings
from mosaicdd.settings import argument, require_type
from mosaicdd.storage.atomic import naming_checkpoint
from mosaicdd.storage.inputs import inputs_of
from mosaicdd.time.checkpoint import TimeCheckpoint
from mosaicdd.time.frames import FileFrames, Frames, MemoryFrames
from mosaicdd.time.levels import Levels
from mosaicdd.time.record import Record
from mosaicdd.time.series import Series, write_series
from mosaicdd.time.settings import RTOL, TimeSettings
from mosaicdd.time.step_control import StepControl
from mosaicdd.time.stepper import DataError, Stepper, Taken
from mosaicdd.unsupported import Unsupported

_AFTER = 2.0**-20  # of a step, after which what jumps at its begin has jumped
# By which the error of a smooth solution at least falls with half the step, that at a jump not: between the 2 of a
# jump and the 4 of a first-order method.
_SMOOTH = 2.0**1.5


logger = logging.getLogger(__name__)


class March:
    """A solve in time, step after step; all ranks make it, run it and close it together.

    Parameters
    ----------
    problem, initial, time, local_solver, ranks, settings, output
        As `march`.

    Attributes
    ----------
    first
        The initial values at the nodes that this rank holds.
    levels, control, record, frames
        What the next step depends on, and what is said and kept of those before; a checkpoint holds them.
    share
        How fields lie over the ranks.
    solved
        The name of what solves the subdomains.
    """

    def __init__(
        self,
        problem: Problem,
        initial: Any,
        time: TimeSettings,
        local_solver: str | PathLike | LocalSolver | None = None,
        *,
        ranks: Any = None,
        settings: SolveSettings | None = None,
        output: str | PathLike | Output | None = None,
    ):
        self._begun = clock.perf_counter()
        require_type("problem", problem, Problem)
        self.problem, self.time = problem, time
        self._given_ranks, self._ranks = ranks, Ranks.of(ranks)
        self._settings = settings or SolveSettings(rtol=RTOL)
        self._opened = ExitStack()
        self._opened.callback(self._ranks.close)
        try:
            self._plan(initial, local_solver, output)
        except Exception:  # of all ranks alike
            self.close()
            raise
        self._interrupted = False
        self._failure: str | None = None
        self._setup = clock.perf_counter() - self._begun

    def _plan(
        self,
        initial: Any,
        local_solver: str | PathLike | LocalSolver | None,
        output: str | PathLike | Output | None,
    ) -> None:
        """Check all, and make what steps and what keeps the fields."""
        self._output = self._checked_output(output, inputs_of(self.problem, local_solver, initial))
        self._stepper = Stepper(self.problem, self.time, local_solver, self._ranks, self._settings)
        self._opened.callback(self._stepper.close)
        self.share = self._stepper.share
        self.first = self._stepper.initial(initial)
        self.control, self.record = StepControl(self.time), Record()
        self.levels = Levels(self.first, self.time.scheme.levels)
        self.frames: Frames = MemoryFrames(self.share.own)
        self.solved = self._stepper.solver.local_solver
        self._checkpoint: TimeCheckpoint | None = None
        if self._output is None:
            return
        with argument("output"):
            self.frames = FileFrames(self._output.path, self.share)
        self._checkpoint = TimeCheckpoint(self._output, self)
        self._opened.callback(self._end_frames)
        if self._output.resume:
            with argument("resume"):
                self._checkpoint.load()

    def _end_frames(self) -> None:
        """Close the file of the fields; with a checkpoint it is what another run goes on from."""
        self.frames.end(keep=self.checkpoint is not None and self.checkpoint.is_file())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        # After an error on one rank the others may be elsewhere: then the end of the job frees it.
        if failure[0] is None:
            self.close()

    def close(self) -> None:
        """Free what was planned; the series stays."""
        self._opened.close()

    def interrupt(self) -> None:
        """Ask it to stop after the step at work; a signal handler may call it."""
        self._interrupted = True

    @property
    def checkpoint(self) -> Path | None:
        """Where checkpoints go, if any are written."""
        return None if self._checkpoint is None else self._checkpoint.path

    def _checked_output(
        self, output: str | PathLike | Output | None, inputs: list[str | PathLike]
    ) -> Output | None:
        if output is None:
            return None
        output = output if isinstance(output, Output) else Output(output)
        with argument("output"):
            self._ranks.on_root(lambda: output.require_path(inputs))
        if output.shards:
            raise Unsupported("shards=True is not for equations in time: leave it out")
        return output

    def __call__(self, progress: Progress | None = None) -> Series:
        """March to the last time, or as far as it goes.

        Parameters
        ----------
        progress
            ``progress(fraction, note)``, called after every step.

        Raises
        ------
        OSError
            On all ranks, if a file cannot be written; what was there before stays.
        """
        try:
            with naming_checkpoint(self.checkpoint):
                return self._marched(progress)
        finally:
            self._end_frames()

    def _marched(self, progress: Progress | None) -> Series:
        begun = clock.perf_counter()
        if not self.frames.times:
            self.frames.add(0.0, self._stepper.shown(self.first))
        status = self._run(progress)
        marched = clock.perf_counter()
        report = self._report(status)
        seconds = {"setup": self._setup, "march": marched - begun}
        if self._output is not None:
            report["seconds"] = seconds | {"total": marched - self._begun}
            write_series(
                self._output.path,
                self._ranks,
                self.problem,
                self.share.grid,
                self.frames,
                report,
                self.record,
            )
            seconds["write"] = clock.perf_counter() - marched
        report["seconds"] = seconds | {"total": clock.perf_counter() - self._begun}
        if self._ranks.is_root:
            logger.info("%s after %d steps, at time %g", status, report["steps"], report["time"])
        if self._checkpoint is not None and status != "interrupted":
            self._checkpoint.remove()
        path = None if self._output is None else self._output.path
        return Series(
            self.problem,
            self._given_ranks,
            self.share.grid,
            self.share.own,
            self.frames,
            report,
            self.record,
            path,
        )

    def _report(self, status: str) -> dict:
        """Return what is said of all steps, but the seconds."""
        problem, time, settings = self.problem, self.time, self._settings
        return (
            {"status": status}
            | self.record.summed()
            | {
                "failure": self._failure,
                "frames": len(self.frames.times),
                "method": time.method,
                "dt": time.dt,
                "tolerance": time.tolerance,
                "pde": problem.equation.name,
                "parameters": problem.described,
                "source": str(problem.source),
                "grid": list(self.share.grid.shape[::-1]),
                "ranks": self._ranks.size,
                "dims": list(self.share.ranks.dims[::-1]),
                "local_solver": self.solved,
                "rtol": settings.rtol,
                "device": settings.device.partition(":")[0],
                "dtype": settings.dtype,
                "peak_memory_bytes": peak_memory(self._ranks),
            }
        )

    def _run(self, progress: Progress | None) -> str:
        """Take steps; return how it ended."""
        if self.control.chooses and not self.record.time:
            self.control.see(math.sqrt(self.share.mean_square(self.share.owned(self.first))))
            self._begin()
        while not self.control.ended:
            try:
                status = self._step()
            except DataError as error:
                self._failure = str(error)
                return "diverged_nan"
            if status is not None:
                return status
            if progress is not None:
                progress(float(self.control.position / self.time.steps), self._note())
            if self._called() and not self.control.ended:
                return "interrupted"
        return "converged_rtol"

    def _step(self) -> str | None:
        """Try steps from the last values until one is good enough; return how the march ends, if here.

        Raises
        ------
        DataError
            If the problem's data are not sound then.
        """
        control = self.control
        before: float | None = None  # of the same values: the error that would be smooth now
        while True:
            known = len(self.levels.values)
            taken = self._tried()
            if not math.isfinite(taken.size):
                return "diverged_nan"
            if taken.report["status"] not in CONVERGED:
                return taken.report["status"]
            control.see(taken.size)
            error = control.error(taken, known)
            if control.accepts(error) or error is None:
                self._advance(taken, error)
                return None
            if control.shortest and not self.record.unjudged:  # a jump, which is behind it then
                self._advance(taken, error)
                self._begin()
                return None
            if control.shortest:
                self._failure = (
                    f"at the time {self._now:g} steps of {float(control.length) * self.time.dt:.1e}, the shortest, have "
                    f"an estimated error of {error / control.scale:.1e}, relative to the solution: more than the "
                    "tolerance, which may be less than what the rtol of their solves leaves"
                )
                return "diverged_tolerance"
            if self.record.unjudged:
                self._go_back()
                control.shorten(error, known, sharp=False)
                continue
            sharp = before is not None and error > before
            times = control.shorten(error, known, sharp=sharp)
            before = error * _SMOOTH**-times
            if sharp:
                self._begin()
                before = None
            else:
                for _ in range(times):
                    self.levels.halve()

    def _tried(self) -> Taken:
        """Take a step from the last values."""
        length = float(self.control.length) * self.time.dt
        begun = self.control.chooses and len(self.levels.values) == 1
        return self._stepper(
            self.levels,
            self._now,
            length,
            self.time.solver_share * self.record.last_error,
            after=_AFTER * length if begun else 0.0,
        )

    @property
    def _now(self) -> float:
        """The time that was reached."""
        return float(self.control.position) * self.time.dt

    def _begin(self) -> None:
        """Forget all but the last values, with those on the sides just after them: there may be a jump."""
        self.control.begin()
        after = self._now + _AFTER * float(self.control.length) * self.time.dt
        newest = self._stepper.begun(self.levels.newest, after)
        self.levels = Levels(newest, self.time.scheme.levels)

    def _go_back(self) -> None:
        """Take back the steps since it began, at first or at a jump, none of which has been judged."""
        count = self.record.unjudged
        self.control.position -= count * self.control.length
        self.record.drop(count)
        self.levels.values = self.levels.values[-1:]
        times = self.frames.times
        kept = max(1, sum(time <= self._now for time in times))
        if kept < len(times):
            self.frames.keep(kept)

    def _advance(self, taken: Taken, error: float | None) -> None:
        """Take the values after a step over."""
        control, known = self.control, len(self.levels.values)
        control.advance(taken.size)
        length = float(control.length) * self.time.dt
        self.levels.add(taken.values)
        if control.chooses and error is not None:
            self.record.judge(error)
        self.record.add(self._now, length, taken.report["iterations"], error, taken.solver_error)
        if control.kept:
            self.frames.add(self._now, self._stepper.shown(taken.values))
        if control.may_double(error, known):
            control.length *= 2
            self.levels.double()

    def _called(self) -> bool:
        """Keep a checkpoint if it is due; say whether any rank was asked to stop."""
        due = self._checkpoint is not None and self._checkpoint.due
        interrupted, due = (
            any(flags)
            for flags in zip(*self._ranks.allgather((self._interrupted, due)), strict=True)
        )
        if self._checkpoint is not None and (interrupted or due):
            self._checkpoint.save()
        return interrupted

    def _note(self) -> str:
        error = self.record.time_error[-1]
        known = "" if math.isnan(error) else f", error of the step {error:.1e}"
        return f"{self.record.iterations[-1]} iterations{known}"


def march(
    problem: Problem,
    initial: Any,
    *,
    dt: float,
    steps: int,
    method: str = TimeSettings.method,
    every: int = TimeSettings.every,
    tolerance: float | None = TimeSettings.tolerance,
    solver_share: float = TimeSettings.solver_share,
    local_solver: str | PathLike | LocalSolver | None = None,
    ranks: Any = None,
    settings: SolveSettings | None = None,
    rtol: float | None = None,
    output: str | PathLike | Output | None = None,
    progress: Progress | None = None,
) -> Series:
    """Solve ``du/dt + A u = f`` in implicit steps, from time 0 on.

    Parameters
    ----------
    problem
        Of an equation with a reaction, as ``heat``; ``A`` is its left-hand side. The source ``f`` and the values on the
        sides may depend on the time: expressions in ``x``, ``y`` and ``t``, functions ``f(x, y, t)``; and
        node values ``(steps + 1, ny + 1, nx + 1)`` of ``f``, one for every time.
    initial
        Values at time 0, anything that a field may be. Where values are given on the sides, these hold.
    dt, steps
        Length of a step, in units of time, and how many.
    method
        ``"bdf2"``, ``"euler"`` or ``"crank-nicolson"``.
    every
        The fields after every so many steps are kept, and the last one.
    tolerance
        Choose the steps: ``dt`` is halved and doubled so that the estimated error of each step, relative to
        the solution, stays below this.
    solver_share
        A step is solved for until the last change is this share of the last step's estimated error, or as
        small as the settings ask for; with 0 for the latter only.
    local_solver, ranks, settings, rtol, output, progress
        As those of `solve`; the default ``rtol`` is 1e-9 here.

    Returns
    -------
    Series
        The fields, and what is known of the steps.

    Raises
    ------
    ValueError, TypeError, OSError
        If these do not fit each other: the same on all ranks, with the argument's name.

    Examples
    --------
    >>> hot = m.Problem((256, 256), "heat", {"f": "exp(-20*((x - 2 - cos(t))**2 + (y - 2 - sin(t))**2))"})
    >>> series = m.march(hot, 0.0, dt=0.05, steps=100, every=10)
    """
    time = TimeSettings(steps, dt, method, every, tolerance, solver_share)
    if rtol is not None:
        settings = (settings or SolveSettings()).with_changes(rtol=rtol)
    with March(
        problem, initial, time, local_solver, ranks=ranks, settings=settings, output=output
    ) as marching:
        return marching(progress)
