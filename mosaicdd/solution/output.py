"""What all ranks write together: the solution file, its shards, and the lines of an interface.

Parts of arrays have a leading axis for the problems here, of a single one, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.discretisation.given_conditions import Points, joined_points
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import SampleNodes
from mosaicdd.grid.strips import Strip
from mosaicdd.grid.window import Window
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.solution.report import Result
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.stopwatch import Stopwatch
from mosaicdd.storage.domain_file import ACTIVE
from mosaicdd.storage.hdf5 import line_name
from mosaicdd.storage.shards import write_shards
from mosaicdd.storage.shared_file import SharedFile
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
    samples
        The nodes that have an error estimate of their own.
    boundaries
        Of each problem.
    dtype
        Of the field, or of the lines.
    window
        Which part of the field is written.
    clock
        Measures the writing.
    shards
        Whether each rank writes its part of the field to a file of its own; one problem only.
    outline_points
        Returns where conditions on outlines act on a rank's nodes, or None.
    seen
        Passes on the strips of the field, and looks at them.
    """

    def __init__(
        self,
        path: str,
        ranks: Ranks,
        grid: Grid,
        samples: SampleNodes,
        problem: Problem,
        boundaries: Sequence[Boundary],
        dtype: str,
        window: Window,
        clock: Stopwatch,
        *,
        shards: bool = False,
        outline_points: Callable[[], Points | None] | None = None,
        seen: Callable[[Iterator[Strip]], Iterator[Strip]] = iter,
    ):
        self._path, self._ranks = path, ranks
        self._grid, self._samples, self._window = grid, samples, window
        self._problem, self._boundaries = problem, boundaries
        self._dtype, self._shards = dtype, shards
        self._writing = clock.part("write")
        self._open = ExitStack()
        self._opened: SolutionWriter | None = None
        self._outline_points, self._seen = outline_points, seen

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
                self._path,
                self._grid,
                self._boundaries,
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
        parts = ((s.owned.cpu().numpy(), (problems, *s.place)) for s in self._seen(strips))
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
            writer = self._begin(shards=write_shards(self._path, *what))
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

    def points(self, points: np.ndarray, values: np.ndarray) -> None:
        """Write points ``(q, 2)``, (x, y), and the values ``(q,)`` of the only problem there."""
        for name, array, dtype in (("points", points, "float64"), ("values", values, self._dtype)):
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
        samples = self._samples

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


def write_lines(
    file: SharedFile, movement: InterfaceMovement, v: Interface, dtype: str, group: str = ""
) -> None:
    """Write the lines of one problem in the whole domain, in a group of a file."""
    for axis in range(len(v.lines)):
        name = group + line_name(axis)
        file.create(name, v.block.lattice.line_shape(axis), dtype)
        movement.gather(v, axis, file.into(name))


def require_one_problem(problems: int, asked: Mapping[str, bool]) -> None:
    """Raise `Unsupported` where something was asked for, by its name, that a file holds of one problem only."""
    for name, is_given in asked.items():
        if is_given and problems > 1:
            raise Unsupported(
                f"{name} takes one problem, there are {problems}: solve them one by one"
            )
