"""The files of a solve: what may be asked of them, and how a solution file is filled.

Parts of arrays have a leading axis for the problems, of a single one, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.grid.window import Strip, as_points, on_grid
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.fill import InterpolatedValues, PointValues
from mosaicdd.settings import argument
from mosaicdd.solution.checkpoints import Checkpoints, write_lines
from mosaicdd.solution.kept import LocalResult
from mosaicdd.solution.report import Result, resumable
from mosaicdd.solution.setup import SolverPlan
from mosaicdd.solvers.base_engine import BaseEngine
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.settings import Output
from mosaicdd.storage.atomic import naming_checkpoint
from mosaicdd.storage.shards import require_shard_folder
from mosaicdd.storage.solution_writer import ERRORS, OUTSIDE, SolutionWriter
from mosaicdd.unsupported import Unsupported


def require_output(ranks: Ranks, output: Output, inputs: Sequence[str | PathLike]) -> None:
    """Check that an output can be written; `OSError` or `ValueError` on all ranks, if it cannot.

    ``inputs``: files that are read, which are not to be replaced.
    """
    with argument("output"):
        ranks.on_root(lambda: output.require_path(inputs))
    if output.shards:
        with argument("shards"):
            ranks.on_root(lambda: require_shard_folder(output.path))


def require_one_problem(problems: int, asked: Mapping[str, bool]) -> None:
    """Raise `Unsupported` where something was asked for, by its name, that a file holds of one problem only."""
    for name, is_given in asked.items():
        if is_given and problems > 1:
            raise Unsupported(
                f"{name} takes one problem, there are {problems}: solve them one by one"
            )


def require_possible(setup: SolverPlan, problem: Problem) -> None:
    """Raise `Unsupported` where something was asked for that takes one problem only, or a field."""
    asked, output = {"until_mae": setup.settings.until_mae is not None}, setup.output
    if output is not None:
        if output.shards:
            setup.require_field("shards")
        asked |= {"shards=True": output.shards, "keep='interface'": not setup.fill}
    require_one_problem(problem.problems, asked)


class SolveFiles:
    """The solution file of a solver, the values at points in it, and checkpoints; all ranks call its methods together.

    Errors as those of `Checkpoints.read`, where an earlier run is to go on.

    ``points``: ``(q, 2)``, (x, y), whose values the file of one problem is to hold, or None. `Unsupported` if there are
    several problems, or no file; `ValueError` if they are no points of the domain.
    """

    def __init__(self, setup: SolverPlan, engine: Any, problem: Problem, points: Any):
        self._setup, self._engine = setup, engine
        self._points: np.ndarray | None = None
        self._values_at: PointValues | InterpolatedValues | None = None
        if points is not None:
            self._plan_points(problem, points)
        if setup.output is None:
            raise Unsupported("points are written to the output file of one problem")
        self._output = output = setup.output
        of_problem = problem, setup.bound.name, setup.world, 60 * output.checkpoint_minutes
        self._checkpoints = Checkpoints(str(output.path), setup.ranks, engine, *of_problem)
        self.path = self._checkpoints.path
        self._keeps = True  # whether checkpoints are of as many problems as are at work
        if output.resume:
            with argument("resume"):
                self._checkpoints.read()

    def _plan_points(self, problem: Problem, points: Any) -> None:
        setup, grid, shape = self._setup, self._setup.grid, problem.domain.shape
        by_network = self._engine.interpolant is not None
        if not by_network:
            setup.require_field("points")
        with argument("points"):
            if problem.problems > 1 or setup.output is None:
                raise Unsupported("points are written to the output file of one problem")
            self._points = as_points(points, len(grid.shape))
            cells = on_grid(self._points, grid)
            if by_network:
                self._values_at = self._engine.plan_points(cells)
            else:
                level = None if shape is None else partial(shape.level, grid)
                self._values_at = InterpolatedValues(setup.ranks, cells, setup.window, level)

    def require_possible(self, problem: Problem) -> None:
        """Raise `Unsupported` for problems whose values at points have not been planned for."""
        values_at = self._values_at
        if values_at is None or (
            problem.problems == 1 and (values_at.takes_source or problem.source is None)
        ):
            return
        raise Unsupported(
            "this Solver was planned with points, which take one problem, by a network without a source; "
            "make a new one without points and interpolate the field"
        )

    @contextmanager
    def opened(self, problem: Problem, part: LocalResult) -> Iterator[None]:
        """Open the file of some problems; it appears under its name at the end.

        ``part``: this rank's of the solution, whose values still come.
        """
        self._part, self._keeps = part, self._checkpoints.problems == problem.problems
        file = SolutionWriter(
            self._output.path,
            part,
            part.boundaries,
            problem,
            ranks=self._setup.world,
            clock=self._setup.clock.part("write"),
            outline_points=self._engine.outline_points,
        )
        with naming_checkpoint(self.path), file:
            self._file = file
            yield

    def restored(self) -> dict[int, Result]:
        """Write the problems that had ended in an earlier run; return their results."""
        if not self._keeps:
            return {}
        self._checkpoints.begin()
        for number in self._checkpoints.results:
            rows = partial(self._checkpoints.rows, number)
            self._file.restore(number, rows, self._part.samples)
        return self._checkpoints.results

    def options(self, members: range, engine: BaseEngine, watch: Watch) -> dict[str, Any]:
        """Return options of a solve of some problems, as `SolveOptions` has them: start, watch and sink."""
        begun: dict[str, Any] = {"watch": watch}
        if self._keeps:
            begun["watch"] = self._checkpoints.watch(watch, members.start)
            begun |= self._checkpoints.start(members, engine)
        problems = slice(members.start, members.stop)

        def sink(strips: Iterator[Strip]) -> None:
            seen = strips if self._values_at is None else self._values_at.seen(strips)
            parts = ((s.owned.cpu().numpy(), (problems, *s.place)) for s in seen)
            self._file.fields(parts, engine.place, shards=self._output.shards)

        return begun | {"sink": sink}

    def write(
        self, outcomes: Sequence[Outcome], members: range, results: dict[int, Result]
    ) -> None:
        """Write what belongs to a batch besides its fields, which are written by now; ``results``: of its problems."""
        if not members and self._setup.fill:
            self._file.fields((), tuple(slice(0, 0) for _ in self._part.own))
        if not self._setup.fill:
            self._file.begin(fields=False)
            lines = outcomes[0].interface, self._part.dtype
            write_lines(self._file, self._engine.movement, *lines)
        if outcomes and self._points is not None and self._values_at is not None:
            with self._setup.clock.part("points"):
                (values,) = self._values_at(outcomes[0].interface, self._part.boundaries)
            held = ("points", self._points, "float64"), ("values", values, self._part.dtype)
            for name, array, dtype in held:
                self._file.create(name, array.shape, dtype)
                self._file.write(name, array, (slice(None),) * array.ndim)
        write_maps(self._file, self._part, outcomes, members)
        if self._keeps:
            self._checkpoints.ended(self._file.rows, results)

    def describe(self, report: dict, results: Sequence[Result]) -> None:
        """Write what is said of the problems."""
        describe(self._file, report, results)

    def left(self, results: Sequence[Result]) -> Path | None:
        """Return the checkpoint from which another run may go on; of a run that has ended remove it."""
        self._checkpoints.forget()
        if resumable(results):
            return self.path
        self._checkpoints.remove()
        return None

    def end(self, results: Sequence[Result]) -> None:
        """Write what the problems were given, and keep those that have ended where others have not."""
        self._file.inputs(self._setup.spoken_for)
        if self._keeps and resumable(results):
            self._checkpoints.ended(self._file.rows, {}, last=True)


def write_part(file: SolutionWriter, part: LocalResult, group: Ranks, *, shards: bool) -> None:
    """Write what a group of ranks has of a solution: fields, or the lattice lines where these were left out."""
    outcomes, parts = part.outcomes, list[Part]()
    if outcomes and outcomes[0].field is None:
        v = outcomes[0].interface
        file.begin(fields=False)
        write_lines(file, part.movement(group, v.block.lattice), v, part.dtype)
    else:
        if outcomes:
            parts = [(part.local, (part.members, *part.nodes))]
        file.fields(parts, part.nodes, shards=shards)
    write_maps(file, part, outcomes, range(part.first, part.first + len(outcomes)))


def describe(file: SolutionWriter, report: dict, results: Sequence[Result]) -> None:
    """Write the report, the results and histories, and NaN for what was not begun."""
    empty = [number for number, result in enumerate(results) if not result.begun]
    file.describe(report, [asdict(result.history) for result in results], empty)


def write_maps(
    file: SolutionWriter, part: LocalResult, outcomes: Sequence[Outcome], members: range
) -> None:
    """Write what is known per sampled node of some problems, or take part with none."""
    nodes = [outcome.error_estimate.nodes for outcome in outcomes]
    outside = [o.outside.to(torch.uint8) for o in outcomes if o.outside is not None]
    maps = [(ERRORS, nodes, part.dtype)]
    if file.ranks.any(bool(outside)):
        maps.append((OUTSIDE, outside, "uint8"))
    for name, values, dtype in maps:
        file.create_map(name, dtype, part.samples)
        parts = []
        if values:
            place = slice(members.start, members.stop), *outcomes[0].error_estimate.place
            parts = [(torch.stack(values).cpu().numpy(), place)]
        file.fill(name, parts)
