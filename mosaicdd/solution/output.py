"""What a solver writes while it works: a solution file, its shards, values at points, checkpoints.

Parts of arrays have a leading axis for the problems here, of a single one, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.discretisation.given_conditions import Points, joined_points
from mosaicdd.grid.points import as_points, on_grid
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.schwarz.fill import InterpolatedValues, PointValues
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.settings import argument
from mosaicdd.solution.checkpoints import Checkpoints, write_lines
from mosaicdd.solution.kept import LocalResult
from mosaicdd.solution.report import Result
from mosaicdd.solution.setup import SolverPlan
from mosaicdd.solvers.base_engine import BaseEngine, Stopwatch
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.settings import Output
from mosaicdd.storage.domain_file import ACTIVE
from mosaicdd.storage.shards import require_shard_folder, write_shards
from mosaicdd.storage.solution_writer import (
    ERRORS,
    GHOSTS,
    HIDDEN,
    OUTSIDE,
    SolutionWriter,
    writing_solutions,
)
from mosaicdd.unsupported import Unsupported


class SolutionOutput:
    """The solution file of one or several problems; the root writes what the ranks hand over.

    It is opened when the first values are there, or when all shards are. It appears under its name when the ``with`` block
    that this object guards ends well. All ranks call its methods together.

    Parameters
    ----------
    ranks
        All of them, of all groups.
    part
        This rank's of the solution, whose values may still come.
    clock
        Measures the writing.
    shards
        Whether each rank writes its part of the field to a file of its own; one problem only.
    outline_points
        Returns where conditions on outlines act on a rank's nodes, or None.
    points, values_at
        Points ``(q, 2)``, (x, y), and what evaluates the only problem there, if that is asked for.
    """

    def __init__(
        self,
        path: str,
        ranks: Ranks,
        part: LocalResult,
        problem: Problem,
        clock: Stopwatch,
        *,
        shards: bool = False,
        outline_points: Callable[[], Points | None] | None = None,
        points: np.ndarray | None = None,
        values_at: PointValues | InterpolatedValues | None = None,
    ):
        self.path, self._ranks, self._part, self._problem = path, ranks, part, problem
        self._grid, self._window, self._dtype = part.grid, part.window, part.settings.dtype
        self._shards, self._clock, self._writing = shards, clock, clock.part("write")
        self._open = ExitStack()
        self._opened: SolutionWriter | None = None
        self._outline_points, self._points, self._values_at = outline_points, points, values_at

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._writing:
            self._open.__exit__(kind, failure, trace)

    @property
    def _writer(self) -> SolutionWriter:
        """What writes, from the first values on."""
        if self._opened is None:
            raise RuntimeError("the fields or the lines come first")
        return self._opened

    def _begin(self, **what: Any) -> SolutionWriter:
        """Open the file, if it is not open."""
        if self._opened is None:
            points = None
            if self._outline_points is not None and self._problem.domain.shape is not None:
                gathered = self._ranks.gather(self._outline_points()) or ()
                parts = [part for part in gathered if part is not None]
                points = joined_points(parts) if parts else None
            new = writing_solutions(
                self.path,
                self._grid,
                self._part.boundaries,
                self._dtype,
                ranks=self._ranks,
                problem=self._problem,
                points=points,
                window=self._window,
                clock=self._writing,
                **what,
            )
            self._opened = self._open.enter_context(new)
        return self._opened

    def strips(self, strips: Iterator[Strip], members: range, place: Slices) -> None:
        """Write the fields of some problems strip by strip, as they are filled.

        ``place``: where the strips of this rank belong together in the domain.
        """
        problems = slice(members.start, members.stop)
        seen = strips if self._values_at is None else self._values_at.seen(strips)
        parts = ((s.owned.cpu().numpy(), (problems, *s.place)) for s in seen)
        self.fields(parts, place)

    def fields(self, parts: Iterable[Part], place: Slices) -> None:
        """Write parts of the fields, ``(problems, rows, columns)``, which lie at a place together."""
        inside, shape = self._window.within, self._problem.domain.shape
        flags: list[Part] = []  # where there are values

        def placed() -> Iterator[Part]:
            for array, (which, *nodes) in parts:
                where = which, *inside(tuple(nodes))
                if shape is not None:
                    known = has_values(shape, self._grid, tuple(nodes), np.asarray(array))
                    flags.append((known.astype(np.uint8), where))
                yield array, where

        if self._shards:
            only = ((array[0], where[1:]) for array, where in placed())
            what = self._ranks, only, inside(place), self._dtype, self._writing
            writer = self._begin(shards=write_shards(self.path, *what))
        else:
            writer = self._begin()
            writer.fill("solution", placed())
        if shape is not None:
            self._create_flags()
            writer.fill(ACTIVE, [(f[:1], at) for f, at in flags if at[0].start == 0])
            writer.fill(GHOSTS, ((HIDDEN * (1 - f), at) for f, at in flags))

    def _create_flags(self) -> None:
        """Add the arrays for where there are values: for all problems alike, and for ParaView."""
        self._writer.create(ACTIVE, self._window.shape, "uint8", common=True)
        self._writer.create(GHOSTS, self._window.shape, "uint8")

    def lines(self, movement: InterfaceMovement, v: Interface) -> None:
        """Write the interface of the only problem instead of the field."""
        write_lines(self._begin(lines=True), movement, v, self._dtype)

    def part(self, part: LocalResult, group: Ranks, *, lines: bool) -> None:
        """Write what a group of ranks has of the solution: fields or lattice lines, and all that belongs to them."""
        outcomes, nodes = part.outcomes, part.window.clip(part.own)
        if lines:
            v = outcomes[0].interface
            self.lines(part.movement(group, v.block.lattice), v)
        else:
            self.fields([(part.local, (part.place[0], *nodes))] if outcomes else [], nodes)
        self.maps(outcomes, range(part.first, part.first + len(outcomes)))

    def points(self, v: Interface | None) -> None:
        """Write the points that are asked for, if any are, and the values of the only problem there."""
        if self._points is None or self._values_at is None:
            return
        with self._clock.part("points"):
            (values,) = self._values_at(v, self._part.boundaries)
        known = ("points", self._points, "float64"), ("values", values, self._dtype)
        for name, array, dtype in known:
            self._writer.create(name, array.shape, dtype)
            self._writer.write(name, array, (slice(None),) * array.ndim)

    def maps(self, outcomes: Sequence[Outcome], members: range) -> None:
        """Write what is known per sampled node of some problems, or take part with none."""
        nodes = [outcome.error_estimate.nodes for outcome in outcomes]
        outside = [o.outside.to(torch.uint8) for o in outcomes if o.outside is not None]
        maps = [(ERRORS, nodes, self._dtype)]
        if self._ranks.any(bool(outside)):
            maps.append((OUTSIDE, outside, "uint8"))
        for name, values, dtype in maps:
            self._create_map(name, dtype)
            parts = []
            if values:
                place = slice(members.start, members.stop), *outcomes[0].error_estimate.place
                parts = [(torch.stack(values).cpu().numpy(), place)]
            self._writer.fill(name, parts)

    def _create_map(self, name: str, dtype: str) -> None:
        """Add an array over the sampled nodes, if there is none yet."""
        samples = self._part.samples

        def place(file: Any) -> None:
            file[name].attrs["first_node"] = samples.first
            file[name].attrs["step"] = samples.step

        self._writer.create(name, samples.counts, dtype)
        self._writer.on_root(place)

    def rows(self, problem: int) -> dict[str, np.ndarray]:
        """Return, on the root, what the file has of one of several problems by now."""
        return self._writer.rows(problem)

    def restore(self, problem: int, read: Callable[[], Mapping[str, np.ndarray]]) -> None:
        """Write what an earlier run's file had of a problem, as the root reads it."""
        writer, arrays = self._begin(), dict[str, np.ndarray]()

        def on_root() -> list[tuple[str, int, str]]:
            arrays.update(read())
            return [(name, array.ndim, array.dtype.name) for name, array in arrays.items()]

        for name, axes, dtype in self._ranks.on_root(on_root):
            if name in (ERRORS, OUTSIDE):
                self._create_map(name, dtype)
            if name in (ACTIVE, GHOSTS):
                self._create_flags()
            which = () if name == ACTIVE else (slice(problem, problem + 1),)
            part = arrays.get(name, np.empty(0))
            part = part if name == ACTIVE else part[None]
            writer.write(name, part, (*which, *(slice(None),) * axes))

    def inputs(self, nodes: Slices) -> None:
        """Write the problem's parameters, source and domain, of which each rank samples some nodes."""
        self._writer.inputs(self._problem, self._grid, self._dtype, nodes)

    def describe(self, report: dict, results: Sequence[Result]) -> None:
        """Write the report, the results and histories, and NaN for what was not begun."""
        self._writer.describe(report, [asdict(result.history) for result in results])
        for member, result in enumerate(results):
            if not result.begun:
                for name in ("solution", ERRORS):
                    self._writer.leave_empty(name, member)


def require_one_problem(problems: int, asked: Mapping[str, bool]) -> None:
    """Raise `Unsupported` where something was asked for, by its name, that a file holds of one problem only."""
    for name, is_given in asked.items():
        if is_given and problems > 1:
            raise Unsupported(
                f"{name} takes one problem, there are {problems}: solve them one by one"
            )


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
        self._points: np.ndarray | None = None
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

    def plan(self, setup: SolverPlan, engine: BaseEngine, problem: Problem, points: Any) -> None:
        """Plan the values at points, and checkpoints; read where an earlier run stopped."""
        self._engine = engine
        if points is not None:
            by_network = engine.interpolant is not None
            if not by_network:
                setup.require_field("points")
            with argument("points"):
                if problem.problems > 1 or self.output is None:
                    raise Unsupported("points are written to the output file of one problem")
                self._points = as_points(points, len(setup.grid.shape))
                cells = on_grid(self._points, setup.grid)
                if by_network:
                    self._values_at = engine.plan_points(cells)
                else:
                    shape = problem.domain.shape
                    level = None if shape is None else partial(shape.level, setup.grid)
                    self._values_at = InterpolatedValues(setup.ranks, cells, setup.window, level)
        if self.output is None:
            return
        self._checkpoints = Checkpoints(
            str(self.output.path),
            setup.ranks,
            engine,
            problem,
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

    def file(self, part: LocalResult, problem: Problem) -> SolutionOutput | nullcontext[None]:
        """Return the solution file of a problem, to be entered; nothing is written where none is asked for."""
        if self.output is None:
            return nullcontext()
        return SolutionOutput(
            str(self.output.path),
            self._world,
            part,
            problem,
            self._clock,
            shards=self.output.shards,
            outline_points=self._engine.outline_points,
            points=self._points,
            values_at=self._values_at,
        )

    def end(self, *, resumable: bool) -> Path | None:
        """Remove the checkpoint of a run that has ended; return that of one from which another may go on."""
        if self._checkpoints is not None:
            self._checkpoints.earlier = None
            if not resumable:
                self._checkpoints.remove()
        return self.checkpoint if resumable else None
