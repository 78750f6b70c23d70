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

from mosaicdd.grid.partition import SampleNodes
from mosaicdd.grid.strips import Strip
from mosaicdd.lattice.axes import Slices, moved
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.window import Window
from mosaicdd.parallel.collect import Part, collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.given_conditions import Points, conditions_of, joined_points
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.schwarz.results.given import Sample, samples, write_given
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.results.report import Result
from mosaicdd.schwarz.results.shards_of_ranks import write_shards
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.storage import solution_writer
from mosaicdd.storage.domain_file import ACTIVE
from mosaicdd.storage.hdf5 import line_name
from mosaicdd.storage.shared_file import SharedFile
from mosaicdd.unsupported import Unsupported


class SolutionOutput:
    """The solution file of one or several problems; the root writes what the ranks hand over.

    The root opens it when the first values are there, or when all shards are. It appears under its
    name when the ``with`` block that this object guards ends well. All ranks call its methods
    together.

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
        Tells where conditions on outlines act on a rank's nodes, if it knows.
    seen
        What looks at the strips of the field on their way, if anything does.
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
        self._path = path
        self._ranks = ranks
        self._grid, self._samples = grid, samples
        self._problem = problem
        self._boundaries = boundaries
        self._dtype = dtype
        self._window = window
        self._shards = shards
        self._writing = clock.part("write")
        self._open = ExitStack()
        self._opened: solution_writer.SolutionWriter | None = None
        self._maps: set[str] = set()
        self._tell_points, self._seen = outline_points, seen

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._writing:
            if kind is None:
                self._ranks.agree(self._open.close)  # the file is there when all go on
            else:
                self._open.__exit__(kind, failure, trace)

    @property
    def _writer(self) -> solution_writer.SolutionWriter:
        """What the root writes with, from the first values on."""
        if self._opened is None:
            raise RuntimeError("the fields or the lines come first")
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
        inside, shaped = self._window.within, self._problem.domain.shape is not None
        parts = ((array, (which, *inside(tuple(nodes)))) for array, (which, *nodes) in parts)
        if shaped:
            parts = self._flags(parts)
        if self._shards:
            only, there = ((array[0], place[1:]) for array, place in parts), inside(place)
            shards = write_shards(self._path, self._ranks, only, there, self._dtype, self._writing)
            self._begin(shards=shards)
        else:
            self._begin()
            self._collect("solution", parts, self._dtype)
        if shaped:
            self._write_flags()

    def lines(self, movement: InterfaceMovement, v: Interface) -> None:
        """Write the interface of the only problem instead of the field."""
        self._begin(lines=True)
        file = None if self._opened is None else self._opened.file
        write_lines(SharedFile(self._ranks, file), movement, v, self._dtype)

    def points(self, points: np.ndarray, values: np.ndarray) -> None:
        """Write points ``(q, 2)``, (x, y), and the values ``(q,)`` of the only problem there."""
        arrays = {"points": (points, "float64"), "values": (values, self._dtype)}

        def write() -> None:
            for name, (array, dtype) in arrays.items():
                self._writer.create(name, array.shape, dtype)
                self._writer.write(name, array, (slice(None),))

        self._ranks.only_root(write)

    def maps(self, outcomes: Sequence[Outcome], members: range) -> None:
        """Write what is known per sampled node of some problems, or take part with none."""
        nodes = [outcome.error_estimate.nodes for outcome in outcomes]
        self._map(solution_writer.ERRORS, nodes, outcomes, members, self._dtype)
        outside = [outcome.outside for outcome in outcomes if outcome.outside is not None]
        if self._ranks.any(bool(outside)):
            flags = [flag.to(torch.uint8) for flag in outside]
            self._map(solution_writer.OUTSIDE, flags, outcomes, members, "uint8")

    def _map(
        self,
        name: str,
        values: list[torch.Tensor],
        outcomes: Sequence[Outcome],
        members: range,
        dtype: str,
    ) -> None:
        self._ranks.only_root(lambda: self._create_map(name, dtype))
        parts = []
        if values:
            place = slice(members.start, members.stop), *outcomes[0].error_estimate.place
            parts = [(torch.stack(values).cpu().numpy(), place)]
        self._collect(name, parts, dtype)

    def _create_map(self, name: str, dtype: str) -> None:
        """Add an array over the sampled nodes, if there is none yet."""
        if name not in self._maps:
            self._writer.create(name, self._samples.counts, dtype)
            self._writer.place(name, self._samples.first, self._samples.step)
            self._maps.add(name)

    def rows(self, problem: int) -> dict[str, np.ndarray]:
        """Return, on the root, what the file has of one of several problems by now."""
        return self._writer.rows(problem)

    def restore(self, rows: Iterable[tuple[int, Mapping[str, np.ndarray]]]) -> None:
        """Write what an earlier run's file had of some problems, as the root knows it."""
        self._begin()

        def on_root() -> None:
            for problem, arrays in rows:
                for name, array in arrays.items():
                    if name in (solution_writer.ERRORS, solution_writer.OUTSIDE):
                        self._create_map(name, array.dtype.name)
                    if name in (ACTIVE, solution_writer.GHOSTS):
                        self._create_flags()
                    whole = (slice(None),) * array.ndim
                    which = () if name == ACTIVE else (slice(problem, problem + 1),)
                    self._writer.write(
                        name, array if name == ACTIVE else array[None], which + whole
                    )

        self._ranks.on_root(on_root)

    def source(self, nodes: Slices) -> None:
        """Write the problem's parameters and source, of which each rank samples some nodes."""

        def put(name: str, sample: Sample, dtype: str) -> None:
            self._collect(name, samples(sample, nodes), dtype)

        writer = self._writer if self._ranks.is_root else None
        write_given(self._problem, self._grid, self._dtype, writer, put, self._ranks.only_root)

    def _flags(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Pass parts of fields on, and keep where there are values."""
        self._inside: list[Part] = []
        for array, place in parts:
            nodes, grid = moved(place[1:], self._window.start), self._grid
            flags = has_values(self._problem.domain.shape, grid, nodes, np.asarray(array))
            self._inside.append((flags.astype(np.uint8), place))
            yield array, place

    def _write_flags(self) -> None:
        """Write where the domain is: for all problems alike, and for ParaView."""
        self._ranks.only_root(self._create_flags)
        first = [
            (flags[:1], (slice(0, 1), *place[1:]))
            for flags, place in self._inside
            if place[0].start == 0
        ]
        self._collect(ACTIVE, first, "uint8")
        hidden = ((solution_writer.HIDDEN * (1 - flags), place) for flags, place in self._inside)
        self._collect(solution_writer.GHOSTS, hidden, "uint8")

    def _create_flags(self) -> None:
        """Add the arrays for where there are values, if there are none yet."""
        if ACTIVE not in self._maps:
            self._writer.hide_outside(self._window.shape)
            self._maps.add(ACTIVE)

    def describe(self, report: dict, results: Sequence[Result]) -> None:
        """Write the report, the results and histories, and NaN for what was not begun."""

        def write() -> None:
            self._writer.describe(report, [asdict(result.history) for result in results])
            for member, result in enumerate(results):
                if not result.begun:
                    for name in ("solution", solution_writer.ERRORS):
                        self._writer.leave_empty(name, member)

        self._ranks.only_root(write)

    def _begin(self, **what: Any) -> None:
        """Open the file on the root, if it is not open; an error is raised on all ranks."""
        tell, points = self._tell_points, None
        if tell is not None and self._problem.domain.shape is not None:
            parts = [part for part in self._ranks.gather(tell()) or () if part is not None]
            points = joined_points(parts) if parts else None
        self._tell_points = None

        def on_root() -> None:
            if self._opened is None:
                grid, problem = self._grid, self._problem
                inputs = grid, self._boundaries, self._dtype
                sides, edges = None, []
                if not problem.plain:
                    sides = conditions_of(problem, grid, points)
                if problem.domain.shape is not None:
                    edges = problem.conditions.edge_values(grid)
                new = solution_writer.writing_solutions(
                    self._path, *inputs, window=self._window, sides=sides, edges=edges, **what
                )
                self._opened = self._open.enter_context(new)

        self._ranks.on_root(on_root)

    def _collect(self, name: str, parts: Iterable[Part], dtype: str) -> None:
        def write(array: np.ndarray, place: tuple[slice, ...]) -> None:
            with self._writing:
                self._writer.write(name, array, place)

        collect(self._ranks, parts, dtype, 1 + len(self._window.shape), write)


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
