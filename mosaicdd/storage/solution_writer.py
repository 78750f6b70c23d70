"""Writing solution files, of one problem or of several; `solution_file` says what is in them.

All ranks write together. Arrays have a leading axis for the problems only if there are several; parts always come with that
axis, and it is left out where the file has none. Histories, ``(n, iterations)``, are NaN after a problem's last iteration.
In a series in time the solution has an axis for the times first.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Self

import h5py
import numpy as np

from mosaicdd.axes import Slices, in_rows, letters, within
from mosaicdd.discretisation.given_conditions import Points, conditions_of, joined_points
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import SampleNodes
from mosaicdd.grid.window import Window
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.polygons import Polygons
from mosaicdd.problems.shapes.shape import Shape, has_values
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.domain_file import ACTIVE, LEVEL, POLYGONS, VOXELS
from mosaicdd.storage.hdf5 import new_file, write_attributes
from mosaicdd.storage.inputs import write_boundaries, write_sides
from mosaicdd.storage.shards import (
    ShardFile,
    SharedFile,
    link_shards,
    replacing_shards,
    write_shards,
)
from mosaicdd.storage.solution_file import GHOSTS, HIDDEN, present_to_vtk

ERRORS, OUTSIDE = "error_estimate", "outside_training_range"
"""Maps over the sampled nodes."""
_ROWS = "solution", ERRORS, OUTSIDE, GHOSTS  # arrays of each problem
_SAMPLES = 2**20  # values that a rank samples at a time


@dataclass(frozen=True, kw_only=True)
class RankPart:
    """The part of the fields of some problems that a rank has: its nodes of a window.

    Parameters
    ----------
    grid, window
        Of the whole domain; the nodes that are wanted of it.
    own
        The nodes of the grid that this rank owns.
    dtype
        Of the fields in files.
    """

    grid: Grid
    window: Window
    own: Slices
    dtype: str = "float64"

    @property
    def nodes(self) -> Slices:
        """The nodes of the grid that this rank owns of the window; ``0:0`` if it has none."""
        return self.window.clip(self.own)

    @property
    def place(self) -> Slices:
        """Where this rank's part lies in the window; ``0:0`` if it has none."""
        nodes = self.nodes
        return self.window.within(nodes) if nodes[0].stop else nodes

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes per axis of this rank's part."""
        return tuple(p.stop - p.start for p in self.nodes)

    def of(self, owned: np.ndarray) -> np.ndarray:
        """Return the part of values at the nodes that this rank owns, a view."""
        return owned[within(self.nodes, self.own)] if all(self.shape) else np.empty(self.shape)


class SolutionWriter(SharedFile):
    """A solution file of one or several problems; all ranks call its methods together.

    `begin` opens it, with the first values. It appears under its name when the ``with`` block that this object guards ends
    well: before, a file that was there stays. `OSError` on all ranks, if it cannot be written, as on a full disk.

    Parameters
    ----------
    boundaries
        Values on the edges of the domain, of each problem.
    problem
        Whose conditions are written, where there are others than given values on all edges.
    ranks
        By default this process alone.
    clock
        Measures the writing of parts.
    outline_points
        Returns where conditions on outlines act on a rank's nodes, or None.
    """

    def __init__(
        self,
        path: str | PathLike,
        part: RankPart,
        boundaries: Sequence[Boundary],
        problem: Problem | None = None,
        *,
        ranks: Ranks | None = None,
        clock: AbstractContextManager | None = None,
        outline_points: Callable[[], Points | None] = lambda: None,
    ):
        super().__init__(ranks or Ranks.alone(), None, clock)
        self.path, self._part, self._problem = str(path), part, problem
        self._shape = None if problem is None else problem.domain.shape
        self._boundaries, self._problems = boundaries, len(boundaries)
        self._outline_points, self._open, self._begun = outline_points, ExitStack(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._clock:
            self._open.__exit__(kind, failure, trace)

    def begin(
        self,
        *,
        fields: bool = True,
        times: Sequence[float] | None = None,
        shards: list[ShardFile] | None = None,
    ) -> None:
        """Open the file, if it is not open, and add the fields.

        Parameters
        ----------
        fields
            Whether there are any, and not the lines of the interface alone, for the caller to create.
        times
            Of the fields of a series, which has one for each.
        shards
            Where the values are, if not in this file.
        """
        if self._begun:
            return
        points = None
        if self._shape is not None:
            gathered = self.ranks.gather(self._outline_points()) or ()
            parts = [part for part in gathered if part is not None]
            points = joined_points(parts) if parts else None

        @contextmanager
        def opened() -> Iterator[h5py.File]:
            with (
                replacing_shards(self.path, shards or []),
                new_file(self.path, "solution") as file,
            ):
                yield file

        self._file = self._open.enter_context(self.ranks.held_by_root(opened))
        self._begun = True
        self.on_root(lambda file: self._describe_domain(file, points))
        if not fields:
            return
        leading = {"problem": self._problems} if self._problems > 1 else {}
        if times is not None:
            self.on_root(functools.partial(_add, "time", np.asarray(times, float)))
            leading = {"time": len(times), **leading}
        held, dtype = (*leading.values(), *self._part.window.shape), self._part.dtype
        if shards is None:
            self.create("solution", held, dtype, common=True)
        else:
            self.on_root(lambda file: link_shards(file, "solution", held, dtype, shards))
        self.on_root(lambda file: self._place(file, leading))

    def _describe_domain(self, file: h5py.File, points: Points | None) -> None:
        """Write the grid, and what is given on the sides; ``points``: where conditions on outlines act."""
        grid, problem = self._part.grid, self._problem
        file.attrs["spacing"] = grid.steps if grid.aspect else grid.spacing
        file.attrs["origin"] = grid.origin
        if problem is None or problem.plain:
            write_boundaries(file, self._boundaries)
            return
        write_sides(file, conditions_of(problem, grid, points), grid)
        # The surface of values on all edges gives those on the outline of a shape.
        edges = [] if self._shape is None else problem.conditions.edge_values(grid)
        if edges:
            write_boundaries(file, edges * (self._problems // len(edges)))

    def _place(self, file: h5py.File, leading: Mapping[str, int]) -> None:
        """Write where the fields lie, for readers and for ParaView; ``leading``: as `present_to_vtk`."""
        grid, start, solution = self._part.grid, self._part.window.start, file["solution"]
        solution.attrs["first_node"] = start
        solution.attrs["origin"] = grid.at(start)
        solution.attrs["spacing"] = grid.steps
        for axis, name in enumerate((*leading, *letters(len(grid.shape)))):
            solution.dims[axis].label = name
        present_to_vtk(file, grid.steps, solution.attrs["origin"], leading)

    def create(
        self, name: str, shape: tuple[int, ...], dtype: str, *, common: bool = False
    ) -> None:
        """Add an array of zeros, of this shape for each problem, or common to all of them."""
        several = (self._problems,) if self._problems > 1 and not common else ()
        super().create(name, (*several, *shape), dtype)

    def fields(self, parts: Iterable[Part], place: Slices, *, shards: bool = False) -> None:
        """Write parts of the fields, ``(problems, rows, columns)``, by their places in the grid.

        ``place``: that of this rank's parts together. ``shards``: whether each rank writes its part of the only problem's
        to a file of its own.
        """
        inside, shape, grid = self._part.window.within, self._shape, self._part.grid
        flags: list[Part] = []  # where there are values

        def placed() -> Iterator[Part]:
            for array, (which, *nodes) in parts:
                where = which, *inside(tuple(nodes))
                if shape is not None:
                    known = has_values(shape, grid, tuple(nodes), np.asarray(array))
                    flags.append((known.astype(np.uint8), where))
                yield array, where

        if shards:
            only = ((array[0], where[1:]) for array, where in placed())
            what = self.ranks, only, inside(place), self._part.dtype, self._clock
            self.begin(shards=write_shards(self.path, *what))
        else:
            self.begin()
            self.fill("solution", placed())
        if shape is not None:
            self._create_flags()
            self.fill(ACTIVE, [(f[:1], at) for f, at in flags if at[0].start == 0])
            self.fill(GHOSTS, ((HIDDEN * (1 - f), at) for f, at in flags))

    def _create_flags(self) -> None:
        """Add the arrays for where there are values: for all problems alike, and for ParaView."""
        self.create(ACTIVE, self._part.window.shape, "uint8", common=True)
        self.create(GHOSTS, self._part.window.shape, "uint8")

    def create_map(self, name: str, dtype: str, samples: SampleNodes) -> None:
        """Add an array over sampled nodes, if there is none yet."""

        def place(file: h5py.File) -> None:
            file[name].attrs["first_node"] = samples.first
            file[name].attrs["step"] = samples.step

        self.create(name, samples.counts, dtype)
        self.on_root(place)

    def rows(self, problem: int) -> dict[str, np.ndarray]:
        """Return, on the root, the arrays of one of several problems by now, and where there are values."""
        rows: dict[str, np.ndarray] = {}

        def read(file: h5py.File) -> None:
            rows.update({name: file[name][problem] for name in _ROWS if name in file})
            rows.update({ACTIVE: file[ACTIVE][()]} if ACTIVE in file else {})

        self.on_root(read)
        return rows

    def restore(
        self, problem: int, read: Callable[[], Mapping[str, np.ndarray]], samples: SampleNodes
    ) -> None:
        """Write what an earlier run's file had of a problem, as the root reads it."""
        arrays = dict[str, np.ndarray]()

        def on_root() -> list[tuple[str, int, str]]:
            arrays.update(read())
            return [(name, array.ndim, array.dtype.name) for name, array in arrays.items()]

        self.begin()
        for name, axes, dtype in self.ranks.on_root(on_root):
            if name in (ERRORS, OUTSIDE):
                self.create_map(name, dtype, samples)
            if name in (ACTIVE, GHOSTS):
                self._create_flags()
            which = () if name == ACTIVE else (slice(problem, problem + 1),)
            part = arrays.get(name, np.empty(0))
            self.write(name, part[None] if which else part, (*which, *(slice(None),) * axes))

    def inputs(self, nodes: Slices) -> None:
        """Write the parameters, the source and the domain of the problem, of which each rank samples some nodes."""
        problem, grid, shape, dtype = self._problem, self._part.grid, self._shape, self._part.dtype
        if problem is None:
            return
        numbers, axes = problem.numbers, len(grid.shape)
        self.on_root(lambda file: write_fields(file, numbers, axes))
        for name, field in problem.arrays.items():
            several = (field.problems,) if field.problems > 1 else ()
            places = grid.shape if field.per_cell(grid) else grid.nodes
            self.create(f"fields/{name}", (*several, *places), dtype, common=True)
            if field.foils is not None:
                self.on_root(functools.partial(_add, f"foils/{name}", field.foils.table))
            sample = functools.partial(field.sample_as_given, grid, checked=shape is None)
            self.fill(f"fields/{name}", _samples(sample, nodes))
        if shape is not None and shape.voxels is not None:
            self.on_root(functools.partial(_add, VOXELS, shape.voxels.view(np.uint8)))
        elif shape is not None:
            self.create(LEVEL, grid.nodes, "float64", common=True)
            self.on_root(functools.partial(_describe_shape, shape))
            self.fill(LEVEL, _samples(lambda part: shape.level(grid, part)[None], nodes))

    def describe(
        self,
        report: dict,
        histories: Sequence[Mapping[str, Sequence[float]]],
        empty: Iterable[int] = (),
    ) -> None:
        """Write what is known of the solve.

        Parameters
        ----------
        report
            Of all problems together; containers and None become JSON texts. What differs between
            several is under ``problems``: for each a text or number by name; None becomes NaN.
        histories
            Of each problem, numbers per iteration by name.
        empty
            Problems that were not solved, whose fields and maps become NaN.
        """
        rows = report.get("problems", [])

        def write(file: h5py.File) -> None:
            for problem in empty:
                for name in ("solution", ERRORS):
                    if name in file:
                        file[name][problem if self._problems > 1 else ()] = np.nan
            write_attributes(file, {name: report[name] for name in report if name != "problems"})
            if self._problems == 1:
                for name, values in histories[0].items():
                    file[f"history/{name}"] = np.asarray(values, dtype=float)
                return
            for name, numbers in in_rows_of(histories).items():
                file[f"history/{name}"] = numbers
            for name in [name for name in rows[0] if name != "problem"] if rows else []:
                values = [row[name] for row in rows]
                texts = any(isinstance(value, str) for value in values)
                lacking = "" if texts else np.nan
                data = [lacking if value is None else value for value in values]
                dtype = h5py.string_dtype() if texts else np.asarray(data).dtype
                file.create_dataset(f"problems/{name}", data=data, dtype=dtype)

        self.on_root(write)


def _add(name: str, array: np.ndarray, file: h5py.File) -> None:
    """Write a whole array."""
    file[name] = array


def write_fields(file: h5py.File, fields: Mapping[str, float | np.ndarray], axes: int) -> None:
    """Write coefficients and sources: numbers or arrays, perhaps with a leading axis for problems."""
    group = file.require_group("fields") if fields else file
    for name, values in fields.items():
        array = np.asarray(values)
        if array.ndim in (1, 1 + axes) and len(array) == 1:
            array = array[0]
        if array.ndim:
            group[name] = array
        else:
            group.attrs[name] = array


def _describe_shape(shape: Shape, file: h5py.File) -> None:
    """Write how the level of a domain that is no rectangle counts."""
    file[LEVEL].attrs["staircase"] = shape.staircase
    file[LEVEL].attrs["of_cells"] = shape.of_cells
    if isinstance(shape, Polygons):
        file[POLYGONS] = json.dumps([ring.tolist() for ring in shape.rings])


def _samples(sample: Callable[[Slices], np.ndarray], nodes: Slices) -> Iterator[Part]:
    """Yield values ``(n, rows, columns)`` at nodes, or in the cells beyond them, some rows at a time."""
    for place in in_rows(nodes, _SAMPLES):
        values = sample(place)
        ends = zip(place, values.shape[1:], strict=True)
        there = (slice(part.start, part.start + count) for part, count in ends)
        yield values, (slice(0, len(values)), *there)


def in_rows_of(histories: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, np.ndarray]:
    """Return histories as arrays by name, a row per problem, NaN after its last entry."""
    longest = max(len(values) for history in histories for values in history.values())
    rows = {}
    for name in dict.fromkeys(name for history in histories for name in history):
        rows[name] = np.full((len(histories), longest), np.nan)
        for row, history in zip(rows[name], histories, strict=True):
            row[: len(history.get(name, ()))] = history.get(name, ())
    return rows
