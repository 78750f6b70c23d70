"""The solver that programs use: planned once for a problem, called again for new data.

A solve is, from top to bottom:

1. `SolverPlan`: the method that the problem asks for, bound to it; the partition of the grid over the ranks; memory.
2. `SolveJob`: the data of one or several problems, checked; the engine of their first batch.
3. `SolveFiles`, where an output is asked for: the solution file, values at points, checkpoints.
4. `SolveJob.solve`: batch after batch by the engine, whose outcomes have earned their status (`verdict`).
5. `Solution`: the part of each rank, the results of the problems, and the report of all.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self, Unpack

import numpy as np
import torch

from mosaicdd.grid.ghosts import FieldStart
from mosaicdd.grid.partition import Partition
from mosaicdd.grid.window import Extent
from mosaicdd.parallel.launcher import Watch, abort_uncaught
from mosaicdd.parallel.machine import prepare_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.report.progress import Progress, followed
from mosaicdd.schwarz.local_solvers.bound import LocalSolver
from mosaicdd.settings import require_type
from mosaicdd.solution.output import SolveFiles, require_output, require_possible
from mosaicdd.solution.report import parts_of_ranks, seconds_spent
from mosaicdd.solution.setup import SolverPlan, Wanted
from mosaicdd.solution.solution import Solution
from mosaicdd.solution.work import SolveJob
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.settings import CONVERGED, Output, SolveSettings
from mosaicdd.storage.inputs import inputs_of
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

logger = logging.getLogger(__name__)
AnyLocalSolver = str | PathLike | LocalSolver | None
"""A local solver, the name of a shipped model, a model file or ``exact``; None for the default."""


class Solver:
    """Solves one or several problems, and others that differ in their data.

    All ranks make it, call it and close it together, with the same arguments; everything that could
    go wrong with the first problem is checked when it is made. While one on several ranks is open, an
    exception that nothing catches on one of them ends them all, which would wait for it.

    Parameters
    ----------
    problem
        What is solved; `__call__` takes others of the same domain, equation and parameters.
    local_solver
        A shipped model's name, a model file, ``"exact"``, or a `LocalSolver`; by default what is
        shipped for the equation, else ``"exact"``.
    ranks
        A communicator of mpi4py, Cartesian or not, or `Ranks`; by default this process alone, which
        needs no MPI library.
    settings
        How it is solved.
    rtol
        Instead of that of the settings: the relative update that is small enough.
    clock
        Measures where the time goes; the set-up begins with it.
    window
        Ends of the part of the domain whose field is wanted, ``{"x": (x0, x1), "y": (y0, y1)}``, or in the order
        of arrays ``((y0, y1), (x0, x1))``, snapped outwards to grid nodes; by default all of it.
    keep
        ``"field"``; ``"unknowns"``, the same and what lies beyond the natural outlines of a shape,
        where control volumes reach; or ``"interface"``: the values on the lattice lines only, no fill.
    points
        Points ``(q, 2)``, (x, y), in space (x, y, z), whose values an output file of one problem is to hold, too, as
        `Solution.at` has them.
    output
        A file to write instead of keeping the fields in memory.

    Raises
    ------
    ValueError, TypeError, OSError
        If the problem, the local solver, the ranks and the settings do not fit each other: the same
        on all ranks, with the argument's name.

    Examples
    --------
    >>> with Solver(problem, ranks=MPI.COMM_WORLD) as solver:
    ...     for f in sources:
    ...         solution = solver(problem.with_fields(f=f))
    """

    @on_processor()
    @torch.enable_grad()  # by which Newton's method finds its derivatives, also where a program has turned it off
    def __init__(
        self,
        problem: Problem,
        local_solver: AnyLocalSolver = None,
        *,
        ranks: Any = None,
        settings: SolveSettings | None = None,
        rtol: float | None = None,
        clock: Stopwatch | None = None,
        **wanted: Unpack[Wanted],
    ):
        if unknown := sorted(wanted.keys() - Wanted.__annotations__.keys()):
            raise TypeError(
                f"Solver takes no {unknown[0]}; known: {', '.join(Wanted.__annotations__)}"
            )
        prepare_memory()
        self._clock = clock or Stopwatch()
        self._begun: float | None = self._clock.started
        self._watch = Watch()
        self._world = Ranks.of(ranks)
        self._release = abort_uncaught(several=self._world.size > 1)
        self._closed = False
        self._at_work = threading.Lock()
        self._settled = True
        self._files: SolveFiles | None = None
        try:
            require_type("problem", problem, Problem)
            if problem.equation.steady is not None:
                raise Unsupported(
                    f"{problem.equation.name} is an equation in time: give it steps (march), or solve "
                    f"{problem.equation.steady.name}"
                )
            settings = SolveSettings() if settings is None else settings
            require_type("settings", settings, SolveSettings)
            if rtol is not None:
                settings = settings.with_changes(rtol=rtol)
            output = wanted.get("output")
            if output is not None:
                wanted["output"] = output = Output.of(output)
                require_output(self._world, output, inputs_of(problem, local_solver))
            plan = self._world, settings, wanted, self._clock
            self._setup = SolverPlan(problem, local_solver, *plan)
            self._require_possible(problem)
            self._work = SolveJob(self._setup, problem, ranks)
            points = wanted.get("points")
            if output is not None or points is not None:
                what = self._setup, self._work.first_engine, problem, points
                self._files = SolveFiles(*what)
            self._tell("planned %s by %s", problem.equation.name, self.local_solver)
        except Exception:  # of all ranks alike
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        # After an error on one rank the others may be elsewhere: then the end of the job frees it, which
        # comes at once if nothing catches the error.
        if failure[0] is None:
            self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:  # by which copies are made, too
        raise TypeError(
            "a Solver cannot be copied or pickled: make another one of the same problem"
        )

    def _tell(self, text: str, *values: object) -> None:
        """Tell who listens to the package's logger, on one rank."""
        if self._world.is_root:
            logger.info(text, *values)

    def close(self) -> None:
        """Free what was planned; the solutions stay."""
        if not self._closed:
            self._release()
            self._world.close()
        self._closed = True

    def interrupt(self) -> None:
        """Ask the solve at work to stop after this iteration; a signal handler may call it."""
        self._watch.interrupt()

    @property
    def local_solver(self) -> str:
        """The name of what solves the subdomains."""
        return self._setup.bound.name

    @property
    def partition(self) -> Partition:
        """Which nodes of the grid each rank of this group owns."""
        return self._setup.partition

    @property
    def source_ghosts(self) -> int:
        """The width of the ghost nodes of a source around those that a rank owns."""
        return self._setup.bound.source_ghosts

    @property
    def checkpoint(self) -> Path | None:
        """Where checkpoints go, if any are written."""
        return None if self._files is None else self._files.path

    @on_processor()
    @torch.enable_grad()
    def __call__(
        self,
        problem: Problem | None = None,
        *,
        start: Solution | FieldStart | None = None,
        atol: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Solution:
        """Solve; called by all ranks together.

        Parameters
        ----------
        problem
            Another one of the same domain, equation and parameters, with other data; by default the
            last one that was solved, or that this was planned for: after a call that has failed, that
            before.
        start
            A solution by this solver of as many problems, from which the iteration starts; or values
            that each rank has of a field (`FieldStart`).
        atol
            The update that is small enough this time, instead of that of the settings.
        progress
            ``progress(fraction, note)``, called after every iteration; True draws a bar on stderr, or lines where
            this is no terminal.

        Raises
        ------
        RuntimeError
            If this solver has been closed, or is at work in another thread.
        TypeError
            If the problem is none, or has a source beside points by a network; or the start is no `Solution`, or the progress
            no function.
        ValueError
            If the problem is of another kind, its data are not sound or have changed since they were
            planned for, or the start does not fit it; the same on all ranks.
        """
        with self._working():
            return self._called(problem, start, atol, progress)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Keep other threads out; `RuntimeError` if one is at work, or this has been closed."""
        if self._closed:
            raise RuntimeError("this Solver has been closed; make a new one")
        if not self._at_work.acquire(blocking=False):
            raise RuntimeError(
                "this Solver is at work in another thread: make one for each thread, or call it there later"
            )
        try:
            yield
        finally:
            self._at_work.release()

    def _called(
        self,
        problem: Problem | None,
        start: Solution | FieldStart | None = None,
        atol: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Solution:
        """Solve, while no other thread does; see `__call__`."""
        begun = time.perf_counter() if self._begun is None else self._begun
        before = self._work
        try:
            self._work = self._taken(problem)
            title = f"solving {self._work.problem.equation.name}"
            with followed(progress, title, quiet=not self._world.is_root) as show:
                solution = self._solve(start, atol, show, begun)
        except BaseException:  # whatever has begun: the next call takes its problem anew
            self._work, self._settled = before, False
            raise
        self._settled = True
        return solution

    @on_processor()
    @torch.enable_grad()
    def change(
        self,
        values: np.ndarray,
        force: np.ndarray,
        *,
        problem: Problem | None = None,
        rtol: float | None = None,
        transposed: bool = False,
    ) -> np.ndarray:
        """Return the change of a problem's values that its derivative there turns into a force; see `BaseEngine.change`.

        Both are of the whole grid, on all ranks, which call it together. Of a linear problem the change is the same at
        all values: what the equations without data make of the force.

        Parameters
        ----------
        values
            Of the problem at all nodes, in the order of arrays.
        force
            The same shape, times the squared spacing; of a periodic axis both ends count.
        problem
            Whose values they are, if that is to be checked.
        rtol
            Of the residual, relative to the force; by default that of the settings.
        transposed
            Whether it is the derivative transposed that does, as of adjoints; without a velocity it is the same.

        Raises
        ------
        RuntimeError
            If its solve has not converged, or this solver has been closed or is at work in another thread.
        ValueError
            If this was planned for another problem.
        """
        with self._working():
            work = self._work
            if problem is not None:
                work.require_like(problem)
            if not force.any():
                return np.zeros(values.shape)
            rtol = self._setup.settings.rtol if rtol is None else rtol
            engine, force = work.first_engine, np.array(force)
            own, periodic = engine.owned, np.flatnonzero(engine.partition.periodic)
            for axis in periodic:  # at the last nodes are copies of the first
                np.moveaxis(force, axis, 0)[0] += np.moveaxis(force, axis, 0)[-1]
            change = engine.change(values[own], force[own], rtol, transposed=transposed)
            if change is not None:
                whole, status = np.zeros(values.shape), change[1]
                whole[own] = change[0]
            else:
                # With constant coefficients the transposed equations are those seen from the opposite corner.
                turned = (slice(None, None, -1 if transposed else 1),) * force.ndim
                source = force[turned] / engine.grid.spacing**2
                solution = self._called(
                    work.problem.with_fields(f=source).with_sides(Dirichlet(0.0))
                )
                self._work, self._settled = work, False  # the next call goes on with its problem
                status = solution.status
            if status not in CONVERGED:
                raise RuntimeError(
                    f"the adjoint has not converged ({status}): its gradient would be wrong; give more iterations or a "
                    "larger tolerance"
                )
            if change is None:
                return np.array(solution.gather(), float)[turned].copy()
            whole = self._world.sum(whole)
            for axis in periodic:
                np.moveaxis(whole, axis, 0)[-1] = np.moveaxis(whole, axis, 0)[0]
            return whole

    def _taken(self, problem: Problem | None) -> SolveJob:
        """Return the work on a problem, by default the last one's, whose data are checked."""
        last = self._work
        if problem is None or problem is last.problem:
            last.require_like(last.problem)
            last.require_unchanged()
            return last if self._settled else last.another(last.problem)
        require_type("problem", problem, Problem)
        last.require_like(problem)
        self._require_possible(problem)
        return last.another(problem)

    def _require_possible(self, problem: Problem) -> None:
        """Raise `Unsupported` where something was asked for that takes one problem only, or a field, or no source."""
        if problem.problems > 1 or self._setup.output is not None:
            require_possible(self._setup, problem)
        if self._files is not None:
            self._files.require_possible(problem)

    def _solve(
        self,
        start: Solution | FieldStart | None,
        atol: float | None,
        progress: Progress | None,
        begun: float,
    ) -> Solution:
        """Solve the problems at work, write what was asked for, and report."""
        work, world = self._work, self._world
        begin = None if start is None else world.run_on_all(lambda: work.begin(start))
        atol = self._setup.settings.atol if atol is None else atol
        self._watch = Watch()
        before = self._clock.seconds
        world.barrier()
        setup = time.perf_counter() - begun

        files = self._files
        with nullcontext() if files is None else files.opened(work.problem, work.part):
            part, results, spent = work.solve(begin, atol, progress, self._watch, files)
            report = work.report(results)
            report["seconds"] = seconds_spent(self._clock, begun, setup, spent, before)
            report["parts"] = parts_of_ranks(world, self._clock)
            if files is not None:
                files.describe(report, results)
        left = None if files is None else files.left(results)
        self._begun = None
        ended = report["status"], report["iterations"], report["seconds"]["total"]
        self._tell("%s after %d iterations, %.2f s", *ended)
        return Solution(work.problem, part, report, results, checkpoint=left)


def solve(
    problem: Problem,
    local_solver: AnyLocalSolver = None,
    *,
    ranks: Any = None,
    settings: SolveSettings | None = None,
    rtol: float | None = None,
    window: Extent | None = None,
    keep: str = "field",
    points: Any = None,
    output: str | PathLike | Output | None = None,
    clock: Stopwatch | None = None,
    start: Solution | FieldStart | None = None,
    atol: float | None = None,
    progress: Progress | bool | None = None,
) -> Solution:
    """Solve a problem once; the arguments are those of `Solver` and of its call."""
    with Solver(
        problem,
        local_solver,
        ranks=ranks,
        settings=settings,
        rtol=rtol,
        window=window,
        keep=keep,
        points=points,
        output=output,
        clock=clock,
    ) as solver:
        return solver(start=start, atol=atol, progress=progress)
