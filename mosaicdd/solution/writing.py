"""What a solver writes while it works: a solution file, values at points, checkpoints."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from mosaicdd.grid.points import as_points, on_grid
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.point_values import InterpolatedValues, PointValues
from mosaicdd.settings import argument
from mosaicdd.solution.checkpoints import Checkpoints
from mosaicdd.solution.output import SolutionOutput, require_one_problem
from mosaicdd.solution.setup import SolverPlan
from mosaicdd.solution.work import SolveJob
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.settings import Output
from mosaicdd.solvers.stopwatch import Stopwatch
from mosaicdd.storage.shards import require_shard_folder
from mosaicdd.unsupported import Unsupported


class OutputPlan:
    """The files of a solver, if it is to write any; all ranks use it together.

    `OSError` or `ValueError` if it cannot be written: the same on all ranks.

    Parameters
    ----------
    output
        What is asked for.
    inputs
        Files that are read, which are not to be replaced.

    Attributes
    ----------
    output
        It, or None.
    """

    def __init__(
        self,
        world: Ranks,
        output: str | PathLike | Output | None,
        inputs: Sequence[str | PathLike],
        clock: Stopwatch,
    ):
        self._world, self._clock = world, clock
        self.output = None if output is None else Output.of(output)
        self._checkpoints: Checkpoints | None = None
        self._values_at: PointValues | InterpolatedValues | None = None
        if self.output is None:
            return
        asked = self.output
        with argument("output"):
            world.on_root(lambda: asked.require_path(inputs))
        if asked.shards:
            with argument("shards"):
                world.on_root(lambda: require_shard_folder(asked.path))

    @property
    def checkpoint(self) -> Path | None:
        """Where checkpoints go, if any are written."""
        return None if self._checkpoints is None else self._checkpoints.path

    def require_possible(self, setup: SolverPlan, problem: Problem) -> None:
        """Raise `Unsupported` where something was asked for that takes one problem only, or a field, or no source."""
        output, problems = self.output, problem.problems
        if output is not None and output.shards:
            setup.require_field("shards")
        asked = {
            "until_mae": setup.settings.until_mae is not None,
            "shards=True": output is not None and output.shards,
            "keep='interface'": output is not None and not setup.fill,
        }
        require_one_problem(problems, asked)
        values_at = self._values_at
        if values_at is not None and (
            problems > 1 or (problem.source is not None and not values_at.takes_source)
        ):
            raise Unsupported(
                "this Solver was planned with points, which take one problem, by a network without a source; "
                "make a new one without points and interpolate the field"
            )

    def plan(self, setup: SolverPlan, work: SolveJob, points: Any) -> None:
        """Plan the values at points, and checkpoints; read where an earlier run stopped."""
        if points is not None:
            by_network = work.first_engine.filling.between_nodes
            if not by_network:
                setup.require_field("points")
            with argument("points"):
                if work.problem.problems > 1 or self.output is None:
                    raise Unsupported("points are written to the output file of one problem")
                self._points = as_points(points, len(setup.grid.shape))
                cells = on_grid(self._points, setup.grid)
                if by_network:
                    self._values_at = work.first_engine.plan_points(cells)
                else:
                    shape = work.problem.domain.shape
                    level = None if shape is None else partial(shape.level, setup.grid)
                    self._values_at = InterpolatedValues(setup.ranks, cells, setup.window, level)
        if self.output is None:
            return
        self._checkpoints = Checkpoints(
            str(self.output.path),
            setup.ranks,
            work.first_engine,
            work.problem,
            setup.bound.name,
            setup.settings,
            self._world,
            60 * self.output.checkpoint_minutes,
        )
        if self.output.resume:
            with argument("resume"):
                self._checkpoints.read()

    def checkpoints(self, problems: int) -> Checkpoints | None:
        """Return what keeps checkpoints of so many problems, if anything does."""
        kept = self._checkpoints
        return kept if kept is not None and kept.problems == problems else None

    def file(self, setup: SolverPlan, work: SolveJob) -> SolutionOutput | nullcontext[None]:
        """Return the solution file of some work, to be entered; nothing is written where none is asked for."""
        if self.output is None:
            return nullcontext()
        return SolutionOutput(
            str(self.output.path),
            self._world,
            setup.grid,
            work.first_engine.samples,
            work.problem,
            work.boundaries,
            setup.settings.dtype,
            setup.window,
            self._clock,
            shards=self.output.shards,
            outline_points=work.first_engine.outline_points,
            seen=iter if self._values_at is None else self._values_at.seen,
        )

    def points(self, file: SolutionOutput, outcome: Outcome, work: SolveJob) -> None:
        """Write the values at the points that were asked for, if any were."""
        if self._values_at is not None:
            with self._clock.part("points"):
                (values,) = self._values_at(outcome.interface, work.boundaries)
            file.points(self._points, values)

    def end(self, *, resumable: bool) -> Path | None:
        """Remove the checkpoint of a run that has ended; return that of one from which another may go on."""
        if self._checkpoints is not None:
            self._checkpoints.earlier = None
            if not resumable:
                self._checkpoints.remove()
        return self.checkpoint if resumable else None
