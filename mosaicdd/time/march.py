"""The march through time: `march` for programs, `March` for what wants to look after it."""

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
from mosaicdd.storage.atomic import naming_checkpoint, require_writable
from mosaicdd.time.checkpoint import TimeCheckpoint
from mosaicdd.time.frames import FileFrames, Frames, MemoryFrames
from mosaicdd.time.levels import Levels
from mosaicdd.time.record import Record
from mosaicdd.time.series import Series, write_series
from mosaicdd.time.settings import RTOL, TimeSettings
from mosaicdd.time.step_control import StepControl
from mosaicdd.time.stepper import DataError, Stepper, Taken
from mosaicdd.unsupported import Unsupported


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
        self._output = self._checked_output(output)
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

    def _checked_output(self, output: str | PathLike | Output | None) -> Output | None:
        if output is None:
            return None
        output = output if isinstance(output, Output) else Output(output)
        with argument("output"):
            self._ranks.on_root(lambda: require_writable(output.path))
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
        dt = self.time.dt
        while not self.control.ended:
            at, length = float(self.control.position) * dt, float(self.control.length) * dt
            error = self.record.time_error[-1] if self.record.judged else 0.0
            atol = self.time.solver_share * error
            try:
                taken = self._stepper(self.levels, at, length, atol)
            except DataError as error:
                self._failure = str(error)
                return "diverged_nan"
            if not math.isfinite(taken.size):
                return "diverged_nan"
            if taken.report["status"] not in CONVERGED:
                return taken.report["status"]
            if self.control.accepts(taken):
                self._advance(taken)
            elif self.control.shortest:
                return "diverged_tolerance"
            else:
                self._shorten()
            if progress is not None:
                progress(float(self.control.position / self.time.steps), self._note(taken))
            if self._called() and not self.control.ended:
                return "interrupted"
        return "converged_rtol"

    def _advance(self, taken: Taken) -> None:
        """Take the values after a step over."""
        control, dt = self.control, self.time.dt
        control.position += control.length
        time, length = float(control.position) * dt, float(control.length) * dt
        self.levels.add(taken.values)
        self.record.add(time, length, taken.report["iterations"], taken.error, taken.solver_error)
        if control.kept:
            self.frames.add(time, self._stepper.shown(taken.values))
        if control.may_double(taken):
            control.length *= 2
            self.levels.double()

    def _shorten(self) -> None:
        """Go on with half the step; where no step has been judged yet, from the begin."""
        self.control.length /= 2
        if self.record.judged:
            self.levels.halve()
            return
        self.control.position *= 0
        self.record = Record()
        self.levels = Levels(self.first, self.time.scheme.levels)
        self.frames.keep(1)

    def _called(self) -> bool:
        """Keep a checkpoint if it is due; say whether any rank was asked to stop."""
        due = self._checkpoint is not None and self._checkpoint.due
        interrupted, due = (
            any(one) for one in zip(*self._ranks.allgather((self._interrupted, due)), strict=True)
        )
        if self._checkpoint is not None and (interrupted or due):
            self._checkpoint.save()
        return interrupted

    def _note(self, taken: Taken) -> str:
        known = "" if taken.error is None else f", error of the step {taken.error:.1e}"
        return f"{taken.report['iterations']} iterations{known}"


def march(
    problem: Problem,
    initial: Any,
    *,
    dt: float,
    steps: int,
    method: str = "bdf2",
    every: int = 1,
    tolerance: float | None = None,
    solver_share: float = 0.05,
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
