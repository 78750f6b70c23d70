"""The march through time: `march` for programs, `March` for what wants to look after it.

`TimeIntegrator` takes one implicit step, by a `Solver` that is planned once for each length. `StepSequence` takes the steps of
a problem, and chooses their length. `FrameStore` keeps the fields, `Record` the numbers of each step, `TimeCheckpoint` the last
values. `Series` is the result, from memory or from its file.
"""

import logging
import time as clock
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, Self, Unpack

from mosaicdd.grid.window import Extent, Window
from mosaicdd.parallel.machine import peak_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.evaluated import checksum
from mosaicdd.problems.problem import Problem
from mosaicdd.report.progress import Progress, followed
from mosaicdd.settings import argument, require_type
from mosaicdd.solution.output import require_output
from mosaicdd.solution.setup import Wanted
from mosaicdd.solution.solver import AnyLocalSolver
from mosaicdd.solvers.settings import Output, SolveSettings
from mosaicdd.storage.atomic import naming_checkpoint
from mosaicdd.storage.inputs import inputs_of
from mosaicdd.storage.solution_writer import RankPart
from mosaicdd.time.checkpoint import TimeCheckpoint, in_order
from mosaicdd.time.frames import FrameStore, Record, merged
from mosaicdd.time.series import Series
from mosaicdd.time.settings import RTOL, TimeSettings
from mosaicdd.time.stepper import TimeIntegrator
from mosaicdd.time.steps import StepSequence
from mosaicdd.torch_defaults import on_processor

logger = logging.getLogger(__name__)


class March:
    """A solve in time, step after step; all ranks make it, run it and close it together.

    Several problems are marched one after another, by the same plans.

    ``problem``, ``initial``, ``time``, ``local_solver``, ``ranks``, ``settings``, and of what is wanted ``window`` and
    ``output``: as `march`.
    """

    def __init__(
        self,
        problem: Problem,
        initial: Any,
        time: TimeSettings,
        local_solver: AnyLocalSolver = None,
        *,
        ranks: Any = None,
        settings: SolveSettings | None = None,
        **wanted: Unpack[Wanted],
    ):
        for name in sorted(wanted.keys() - {"window", "output"}):
            raise TypeError(f"March takes no {name}; known: window, output")
        self._begun = clock.perf_counter()
        require_type("problem", problem, Problem)
        self._problem, self._time = problem, time
        self._given_ranks, self._ranks = ranks, Ranks.of(ranks)
        require_type("settings", settings, SolveSettings | None, "a SolveSettings")
        self._settings = settings or SolveSettings(rtol=RTOL)
        output = wanted.get("output")
        self._output = None if output is None else Output.of(output)
        self._checkpoint: TimeCheckpoint | None = None
        self._interrupted = self._stopped = False
        self._ended: list[Record] = []
        self._opened = ExitStack()
        self._opened.callback(self._ranks.close)
        try:
            self._plan(initial, local_solver, wanted.get("window"))
        except Exception:  # of all ranks alike
            self.close()
            raise
        self._setup = clock.perf_counter() - self._begun

    def _plan(self, initial: Any, local_solver: AnyLocalSolver, window: Extent | None) -> None:
        """Check all, and make what steps and what keeps the fields."""
        problem, output = self._problem, self._output
        if output is not None:
            require_output(self._ranks, output, inputs_of(problem, local_solver, initial))
        how = local_solver, self._ranks, self._settings
        self._stepper = stepper = TimeIntegrator(problem, initial, self._time, *how)
        self._opened.callback(stepper.close)
        share = stepper.share
        with argument("window"):
            whole = Window.whole(share.grid)
            wanted = whole if window is None else Window.of_extent(share.grid, window)
        self._part = part = RankPart(grid=share.grid, window=wanted, own=share.owned)
        # All of them are looked at before the first step is taken.
        initial_values = in_order(
            checksum(share.without_ghosts(stepper.begin(number))[None], share.owned)
            for number in range(stepper.problems)
        )
        with argument("output"):
            self._store = FrameStore(part, share.ranks, output)
        if output is not None:
            lies = {
                "window": [[p.start, p.stop] for p in part.window.place],
                "dims, which with shards must be the same,": list(share.ranks.dims[::-1])
                if output.shards
                else None,
            }
            plan = output, problem, self._time, stepper, initial_values, lies
            self._checkpoint = TimeCheckpoint(*plan)
            self._opened.callback(self._end_frames)
        if self._checkpoint is None or output is None or not output.resume:
            self._steps = self._begin(0)
            return
        with argument("resume"):
            self._ended, self._steps = self._checkpoint.load(self._begin)

    def _begin(self, number: int) -> StepSequence:
        """Return the steps of a problem, of which none is taken."""
        return StepSequence(self._stepper, self._time, number, self._store)

    def _end_frames(self) -> None:
        """Close the files of the fields; with a checkpoint they are what another run goes on from."""
        self._store.end(keep=self.checkpoint is not None and self.checkpoint.is_file())

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

    def __call__(self, progress: Progress | bool | None = None) -> Series:
        """March to the last time, or as far as it goes.

        `OSError` on all ranks, if a file cannot be written; what was there before stays.

        ``progress``: ``progress(fraction, note)``, called after every step; True draws a bar on stderr, or lines
        where this is no terminal.
        """
        title = f"marching {self._problem.equation.name}"
        try:
            with (
                followed(progress, title, quiet=not self._ranks.is_root) as show,
                naming_checkpoint(self.checkpoint),
            ):
                return self._marched(show)
        finally:
            self._end_frames()

    def _marched(self, progress: Progress | None) -> Series:
        begun = clock.perf_counter()
        self._march(progress)
        done = clock.perf_counter()
        report, path = self._report(), None if self._output is None else self._output.path
        kept = self._store, self._time.frames, report, self._ended
        series = Series(self._problem, *kept, self._given_ranks, path)
        seconds = {"setup": self._setup, "march": done - begun}
        if self._output is not None:
            report["seconds"] = seconds | {"total": done - self._begun}
            series.write(self._output.path, self._ranks, shards=self._output.shards)
            seconds["write"] = clock.perf_counter() - done
        report["seconds"] = seconds | {"total": clock.perf_counter() - self._begun}
        if self._ranks.is_root:
            told = report["status"], report["steps"], report["time"]
            logger.info("%s after %d steps, at time %g", *told)
        if self._checkpoint is not None and report["status"] != "interrupted":
            self._checkpoint.remove()
        return series

    def _march(self, progress: Progress | None) -> None:
        """Take the steps of one problem after another, until an interruption, and keep their records."""
        count = self._stepper.problems

        def show(fraction: float, note: str) -> None:
            if progress is not None:
                which = "" if count == 1 else f"problem {len(self._ended)} of {count}, "
                progress((len(self._ended) + fraction) / count, which + note)

        while True:
            status = self._steps.run(show, self._called)
            self._ended.append(self._steps.record)
            if len(self._ended) == count:
                return
            if self._stopped or status == "interrupted":
                self._ended += [Record()] * (count - len(self._ended))
                return
            self._steps = self._begin(len(self._ended))

    def _report(self) -> dict:
        """Return the report of all steps, without the seconds."""
        problem, time, settings = self._problem, self._time, self._settings
        stepper, share, window = self._stepper, self._stepper.share, self._part.window
        ends, whole = window.extent(share.grid)[::-1], Window.whole(share.grid)
        return {
            **merged(self._ended),
            "window": None if window == whole else [list(pair) for pair in ends],
            "method": time.method,
            "dt": time.dt,
            "tolerance": time.tolerance,
            "pde": problem.equation.name,
            "parameters": problem.described,
            "source": str(problem.source),
            "grid": list(share.grid.shape[::-1]),
            "ranks": self._ranks.size,
            "dims": list(share.ranks.dims[::-1]),
            "local_solver": stepper.solver.local_solver,
            "rtol": settings.rtol,
            "device": settings.device.partition(":")[0],
            "dtype": settings.dtype,
            "peak_memory_bytes": peak_memory(self._ranks),
        }

    def _called(self) -> bool:
        """Keep a checkpoint if it is due; say whether any rank was asked to stop."""
        due = self._checkpoint is not None and self._checkpoint.due
        interrupted, due = (
            any(flags)
            for flags in zip(*self._ranks.allgather((self._interrupted, due)), strict=True)
        )
        if self._checkpoint is not None and (interrupted or due):
            self._checkpoint.save(self._ended, self._steps)
        self._stopped = interrupted
        return interrupted


@on_processor()
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
    local_solver: AnyLocalSolver = None,
    ranks: Any = None,
    settings: SolveSettings | None = None,
    rtol: float | None = None,
    window: Extent | None = None,
    output: str | PathLike | Output | None = None,
    progress: Progress | bool | None = None,
) -> Series:
    """Solve ``du/dt + A u = f`` in implicit steps, from time 0 on.

    Parameters
    ----------
    problem
        Of an equation with a reaction, as ``heat``; ``A`` is its left-hand side. The source ``f`` and the values on the
        sides may depend on the time: expressions in ``x``, ``y`` and ``t``, functions ``f(x, y, t)``; and
        node values ``(steps + 1, ny + 1, nx + 1)`` of ``f``, one for every time. Where they jump at the end of a step, the
        step has the values before. Of several problems
        values on the sides are as those of `solve`, and ``f`` may be ``(n, steps + 1, ny + 1, nx + 1)``, or ``(n, 1, ny + 1,
        nx + 1)`` where it stays as it is.
    initial
        Values at time 0, anything that a field may be, of several problems ``(n, ny + 1, nx + 1)``. Where values are given
        on the sides, these hold.
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
    local_solver, ranks, settings, rtol, window, output, progress
        As those of `solve`; a step is solved for in all of the domain. The default ``rtol`` is 1e-9 here.

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
        require_type("settings", settings, SolveSettings | None, "a SolveSettings")
        settings = (settings or SolveSettings()).with_changes(rtol=rtol)
    how: dict[str, Any] = {"ranks": ranks, "settings": settings, "window": window}
    with March(problem, initial, time, local_solver, output=output, **how) as marching:
        return marching(progress)
