"""Writing solution files, of one problem or of several; `solution_file` says what is in them.

All ranks write together. Arrays have a leading axis for the problems only if there are several; parts always come with that
axis, and it is left out where the file has none. Histories, ``(n, iterations)``, are NaN after a problem's last iteration.
In a series in time the solution has an axis for the times first.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike

import h5py
import numpy as np

from mosaicdd.axes import Slices, in_rows, letters
from mosaicdd.discretisation.given_conditions import Points, conditions_of
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Window
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.polygons import Polygons
from mosaicdd.problems.shapes.shape import Shape
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.domain_file import ACTIVE, LEVEL, POLYGONS, VOXELS
from mosaicdd.storage.hdf5 import new_file, write_attributes
from mosaicdd.storage.inputs import write_boundaries, write_sides
from mosaicdd.storage.shards import ShardFile, SharedFile, link_shards, replacing_shards

GHOSTS = "VTKHDF/PointData/vtkGhostType"
"""What ParaView hides of the nodes."""
HIDDEN = 2
"""Its flag of a hidden node."""
ERRORS, OUTSIDE = "error_estimate", "outside_training_range"
"""Maps over the lattice nodes."""
_ROWS = "solution", ERRORS, OUTSIDE, GHOSTS  # arrays of each problem
_SAMPLES = 2**20  # values that a rank samples at a time


class SolutionWriter(SharedFile):
    """Fills an open solution file of so many problems; all ranks call its methods together."""

    def __init__(
        self,
        ranks: Ranks,
        file: h5py.File | None,
        problems: int,
        clock: AbstractContextManager | None = None,
    ):
        super().__init__(ranks, file, clock)
        self._problems = problems

    def create(
        self, name: str, shape: tuple[int, ...], dtype: str, *, common: bool = False
    ) -> None:
        """Add an array of zeros, of this shape for each problem, or common to all of them."""
        several = (self._problems,) if self._problems > 1 and not common else ()
        super().create(name, (*several, *shape), dtype)

    def leave_empty(self, name: str, problem: int) -> None:
        """Fill the array of a problem that was not solved with NaN."""
        which = problem if self._problems > 1 else ()

        def write(file: h5py.File) -> None:
            file[name][which] = np.nan

        self.on_root(write)

    def rows(self, problem: int) -> dict[str, np.ndarray]:
        """Return, on the root, the arrays of one of several problems by now, and where there are values."""
        rows: dict[str, np.ndarray] = {}

        def read(file: h5py.File) -> None:
            rows.update({name: file[name][problem] for name in _ROWS if name in file})
            rows.update({ACTIVE: file[ACTIVE][()]} if ACTIVE in file else {})

        self.on_root(read)
        return rows

    def inputs(self, problem: Problem, grid: Grid, dtype: str, nodes: Slices) -> None:
        """Write the parameters, the source and the domain of a problem, of which each rank samples some nodes."""
        shape = problem.domain.shape
        numbers, axes = problem.numbers, len(grid.shape)
        self.on_root(lambda file: write_fields(file, numbers, axes))
        for name, field in problem.arrays.items():
            several = (field.problems,) if field.problems > 1 else ()
            places = grid.shape if field.per_cell(grid) else grid.nodes
            self.create(f"fields/{name}", (*several, *places), dtype, common=True)
            if field.foils is not None:
                table = field.foils.table
                self.on_root(functools.partial(_add, f"foils/{name}", table))
            sample = functools.partial(field.sample_as_given, grid, checked=shape is None)
            self.fill(f"fields/{name}", _samples(sample, nodes))
        if shape is not None and shape.voxels is not None:
            self.on_root(functools.partial(_add, VOXELS, shape.voxels.view(np.uint8)))
        elif shape is not None:
            self.create(LEVEL, grid.nodes, "float64", common=True)
            self.on_root(functools.partial(_describe_shape, shape))
            self.fill(LEVEL, _samples(lambda part: shape.level(grid, part)[None], nodes))

    def describe(self, report: dict, histories: Sequence[Mapping[str, Sequence[float]]]) -> None:
        """Write what is known of the solve.

        Parameters
        ----------
        report
            Of all problems together; containers and None become JSON texts. What differs between
            several is under ``problems``: for each a text or number by name; None becomes NaN.
        histories
            Of each problem, numbers per iteration by name.
        """
        rows = report.get("problems", [])

        def write(file: h5py.File) -> None:
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
                empty = "" if texts else np.nan
                data = [empty if value is None else value for value in values]
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
    """Yield values ``(n, rows, columns)`` at some nodes, or in the cells beyond them, a few rows at a time."""
    for place in in_rows(nodes, _SAMPLES):
        values = sample(place)
        ends = zip(place, values.shape[1:], strict=True)
        there = (slice(part.start, part.start + count) for part, count in ends)
        yield values, (slice(0, len(values)), *there)


@contextmanager
def writing_solutions(
    path: str | PathLike,
    grid: Grid,
    boundaries: Sequence[Boundary],
    dtype: str,
    *,
    ranks: Ranks | None = None,
    problem: Problem | None = None,
    points: Points | None = None,
    window: Window | None = None,
    shards: list[ShardFile] | None = None,
    lines: bool = False,
    fields: Mapping[str, float | np.ndarray] | None = None,
    times: Sequence[float] | None = None,
    clock: AbstractContextManager | None = None,
) -> Iterator[SolutionWriter]:
    """Open a solution file for writing by all ranks; it appears under its name when all is written.

    `OSError` on all ranks, if it cannot be written, as on a full disk; a file that was there before stays.

    Parameters
    ----------
    boundaries
        Of each problem.
    dtype
        Of the fields.
    ranks
        By default this process alone.
    problem
        Whose conditions are written, where there are others than given values on all edges.
    points
        Where conditions on outlines act, if that is known.
    window
        Part of the fields to write; all of them by default.
    shards
        Where the values are, if not in this file.
    lines
        Whether there are only the lines of the interface, and no fields: ``lines/0`` and
        ``lines/1``, for the caller to create.
    fields
        Coefficients and sources by name: numbers or arrays, perhaps with a leading axis for problems.
    times
        Of the fields of a series, which has one for each.
    clock
        Measures the writing of parts.
    """
    window, problems = window or Window.whole(grid), len(boundaries)

    @contextmanager
    def opened() -> Iterator[h5py.File]:
        with replacing_shards(path, shards or []), new_file(path, "solution") as file:
            yield file

    def begin(file: h5py.File) -> None:
        file.attrs["spacing"] = grid.steps if grid.aspect else grid.spacing
        file.attrs["origin"] = grid.origin
        if problem is None or problem.plain:
            write_boundaries(file, boundaries)
        else:
            write_sides(file, conditions_of(problem, grid, points), grid)
            # The surface of values on all edges gives those on the outline of a shape.
            edges = [] if problem.domain.shape is None else problem.conditions.edge_values(grid)
            if edges:
                write_boundaries(file, edges * (problems // len(edges)))
        write_fields(file, fields or {}, len(grid.shape))
        if times is not None:
            file["time"] = np.asarray(times, float)

    with (ranks or Ranks.alone()).held_by_root(opened) as file:
        writer = SolutionWriter(ranks or Ranks.alone(), file, problems, clock)
        writer.on_root(begin)
        if not lines:
            leading = {"problem": problems} if problems > 1 else {}
            if times is not None:
                leading = {"time": len(times), **leading}
            held = (*leading.values(), *window.shape)
            if shards is None:
                writer.create("solution", held, dtype, common=True)
            else:
                writer.on_root(lambda file: link_shards(file, "solution", held, dtype, shards))
            writer.on_root(lambda file: _place(file, grid, window, leading))
        yield writer


def _place(file: h5py.File, grid: Grid, window: Window, leading: Mapping[str, int]) -> None:
    """Write where the fields lie, for readers and for ParaView; ``leading``: as `_present_to_vtk`."""
    name_axes(file["solution"], grid, window, tuple(leading))
    _present_to_vtk(file, grid.steps, file["solution"].attrs["origin"], leading)


def in_rows_of(histories: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, np.ndarray]:
    """Return numbers by name with a row for each of several problems, NaN after the last one of a problem."""
    longest = max(len(values) for history in histories for values in history.values())
    rows = {}
    for name in dict.fromkeys(name for history in histories for name in history):
        rows[name] = np.full((len(histories), longest), np.nan)
        for row, history in zip(rows[name], histories, strict=True):
            row[: len(history.get(name, ()))] = history.get(name, ())
    return rows


def name_axes(solution: h5py.Dataset, grid: Grid, window: Window, leading: tuple[str, ...]) -> None:
    """Say where the values of a field lie: names of its axes, the first node in the grid and its coordinates."""
    names = letters(len(grid.shape))
    solution.attrs["first_node"] = window.start
    solution.attrs["origin"] = grid.at(window.start)
    solution.attrs["spacing"] = grid.steps
    for axis, name in enumerate((*leading, *names)):
        solution.dims[axis].label = name


def _present_to_vtk(
    file: h5py.File,
    apart: Sequence[float],
    origin: Sequence[float],
    leading: Mapping[str, int],
) -> None:
    """Describe ``/solution`` as what ParaView reads, from ``origin``, nodes ``apart`` along each axis; values are not copied.

    ``leading``: the lengths of the axes ``time`` and ``problem``, those that there are. Problems in the plane are a stack, as
    far apart as nodes along x. In space, where nothing is beside a box, they are steps; with steps in time each is an array.
    """
    solution, axes = file["solution"], len(apart)
    problems = leading.get("problem", 1)
    planes, y, x = (problems, *solution.shape[-axes:])[-3:]
    steps = file["time"][()] if "time" in leading else None
    if axes == 3 and problems > 1 and steps is None:
        steps = np.arange(problems, dtype=float)
    image = file.create_group("VTKHDF")
    image.attrs["Version"] = np.array([2, 0], dtype="i8")
    image.attrs.create("Type", b"ImageData", dtype=h5py.string_dtype("ascii", 9))
    image.attrs["WholeExtent"] = np.array([0, x - 1, 0, y - 1, 0, planes - 1], dtype="i8")
    image.attrs["Origin"] = np.array([*origin[::-1], 0.0][:3])
    image.attrs["Spacing"] = np.array([*apart[::-1], apart[-1] if planes > 1 else 1.0][:3])
    image.attrs["Direction"] = np.eye(3).ravel()
    data, names = image.create_group("PointData"), ["solution"]
    if axes == 3 and len(leading) > 1:
        names = [f"problem{number}" for number in range(problems)]
        shape = len(file["time"]), *solution.shape[-axes:]
        for number, name in enumerate(names):
            layout = h5py.VirtualLayout(shape, solution.dtype)
            source = h5py.VirtualSource(".", "solution", solution.shape, solution.dtype)
            layout[...] = source[:, number]
            data.create_virtual_dataset(name, layout, fillvalue=np.nan)
    else:
        data["solution"] = solution
    if steps is not None:
        played = image.create_group("Steps")
        played.attrs["NSteps"] = np.int64(len(steps))
        played["Values"] = steps
        for name in names:
            played[f"PointDataOffsets/{name}"] = np.arange(len(steps))
