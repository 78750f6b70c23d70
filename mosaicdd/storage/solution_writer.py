"""Writing solution files, of one problem or of several; `solution_file` says what is in them.

Arrays have a leading axis for the problems only if there are several. Writers need not care: parts
always come with that axis, and it is left out where the file has none. Histories, ``(n,
iterations)``, are NaN after a problem's last iteration. In a series in time the solution has an axis for the times first.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike

import h5py
import numpy as np

from mosaicdd.lattice.axes import letters
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.shapes.polygons import Polygons
from mosaicdd.problems.shapes.shape import Shape
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.side_values import EvaluatedPart
from mosaicdd.storage.domain_file import ACTIVE, LEVEL, POLYGONS, VOXELS
from mosaicdd.storage.hdf5 import ArrayWriter, new_file, write_attributes
from mosaicdd.storage.inputs import write_boundaries, write_sides
from mosaicdd.storage.shards import ShardFile, link_shards, replacing_shards

GHOSTS = "VTKHDF/PointData/vtkGhostType"
"""What ParaView hides of the nodes."""
HIDDEN = 2
"""Its flag of a hidden node."""
ERRORS, OUTSIDE = "error_estimate", "outside_training_range"
"""Maps over the lattice nodes."""
_ROWS = "solution", ERRORS, OUTSIDE, GHOSTS  # arrays of each problem


class SolutionWriter(ArrayWriter):
    """Fills an open solution file of so many problems in so many axes: arrays part by part, then what is known of the solve."""

    def __init__(self, file: h5py.File, problems: int, axes: int):
        super().__init__(file)
        self._problems, self._axes = problems, axes

    def create(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Add an array of zeros, of this shape for each problem."""
        several = (self._problems,) if self._problems > 1 else ()
        super().create(name, (*several, *shape), dtype)

    def create_common(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Add an array of zeros that serves all problems."""
        super().create(name, shape, dtype)

    def write(self, name: str, part: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part ``(problems, ...)`` of an array to its place; of one problem also ``(...)``."""
        if len(place) > self._file[name].ndim:
            part, place = part[0], place[1:]
        super().write(name, part, place)

    def place(self, name: str, first: tuple[int, ...], step: int) -> None:
        """Say which grid nodes, (y, x), the values of an array stand at: every so many from a first."""
        self._file[name].attrs["first_node"] = first
        self._file[name].attrs["step"] = step

    def leave_empty(self, name: str, problem: int, frame: int | None = None) -> None:
        """Fill the array of a problem that was not solved with NaN; of a series a field."""
        leading = () if frame is None else (frame,)
        self._file[name][(*leading, problem) if self._problems > 1 else leading] = np.nan

    def rows(self, problem: int) -> dict[str, np.ndarray]:
        """Return what the file has of one of several problems by now, and where there are values."""
        rows = {name: self._file[name][problem] for name in _ROWS if name in self._file}
        return rows | ({ACTIVE: self._file[ACTIVE][()]} if ACTIVE in self._file else {})

    def domain(self, shape: Shape, grid: Grid) -> None:
        """Add an array for the level of a domain that is no rectangle; of voxels write these."""
        if shape.voxels is not None:
            self.create_common(VOXELS, grid.shape, "uint8")
            self.write(VOXELS, shape.voxels.view(np.uint8), (slice(None),) * shape.voxels.ndim)
            return
        self.create_common(LEVEL, grid.nodes, "float64")
        self._file[LEVEL].attrs["staircase"] = shape.staircase
        self._file[LEVEL].attrs["of_cells"] = shape.of_cells
        if isinstance(shape, Polygons):
            rings = [ring.tolist() for ring in shape.rings]
            self._file[POLYGONS] = json.dumps(rings)

    def hide_outside(self, nodes: tuple[int, ...]) -> None:
        """Add arrays for where there are values, and for what ParaView hides."""
        self.create_common(ACTIVE, nodes, "uint8")
        self.create(GHOSTS, nodes, "uint8")

    def field(self, name: str, values: float | np.ndarray) -> None:
        """Write a coefficient or source: a number or an array, perhaps with a leading axis for problems."""
        array = np.asarray(values)
        if array.ndim in (1, 1 + self._axes) and len(array) == 1:
            array = array[0]
        group = self._file.require_group("fields")
        if array.ndim:
            group[name] = array
        else:
            group.attrs[name] = array

    def foils(self, name: str, table: np.ndarray) -> None:
        """Write the foils in a coefficient, a row for each of their sheets, as `Foils.table`."""
        self._file[f"foils/{name}"] = table

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
        write_attributes(self._file, {name: report[name] for name in report if name != "problems"})
        if self._problems == 1:
            self.history(histories[0])
            return
        for name, numbers in in_rows_of(histories).items():
            self._file[f"history/{name}"] = numbers
        for name in [name for name in rows[0] if name != "problem"] if rows else []:
            values = [row[name] for row in rows]
            texts = any(isinstance(value, str) for value in values)
            empty = "" if texts else np.nan
            data = [empty if value is None else value for value in values]
            dtype = h5py.string_dtype() if texts else np.asarray(data).dtype
            self._file.create_dataset(f"problems/{name}", data=data, dtype=dtype)


@contextmanager
def writing_solutions(
    path: str | PathLike,
    grid: Grid,
    boundaries: Sequence[Boundary],
    dtype: str,
    *,
    window: Window | None = None,
    shards: list[ShardFile] | None = None,
    lines: bool = False,
    fields: Mapping[str, float | np.ndarray] | None = None,
    sides: Sequence[EvaluatedPart] | None = None,
    edges: Sequence[Boundary] = (),
    times: Sequence[float] | None = None,
) -> Iterator[SolutionWriter]:
    """Open a solution file for writing; it appears under its name when all is written.

    `OSError` if it cannot be written, as on a full disk; a file that was there before stays.

    Parameters
    ----------
    boundaries
        Of each problem.
    dtype
        Of the fields.
    window
        Part of the fields to write; all of them by default.
    shards
        Where the values are, if not in this file.
    lines
        Whether there are only the lines of the interface, and no fields: ``lines/0`` and
        ``lines/1``, for the caller to create.
    fields
        Coefficients and sources by name, as for `SolutionWriter.field`; what is too large for one
        rank is created as ``fields/NAME`` and written in parts.
    sides
        All conditions, where there are others than given values on all edges.
    edges
        Besides them, values on all edges, whose surface gives those on the outline of a shape.
    times
        Of the fields of a series, which has one for each.
    """
    window = window or Window.whole(grid)
    with replacing_shards(path, shards or []), new_file(path, "solution") as file:
        file.attrs["spacing"] = grid.steps if grid.aspect else grid.spacing
        file.attrs["origin"] = grid.origin
        if sides is None:
            write_boundaries(file, boundaries)
        else:
            write_sides(file, sides, grid)
            if edges:
                write_boundaries(file, edges)
        writer = SolutionWriter(file, len(boundaries), len(grid.shape))
        for name, values in (fields or {}).items():
            writer.field(name, values)
        if not lines:
            leading = {"problem": len(boundaries)} if len(boundaries) > 1 else {}
            if times is not None:
                file["time"] = np.asarray(times, float)
                leading = {"time": len(times), **leading}
            held = (*leading.values(), *window.shape)
            if shards is None:
                writer.create_common("solution", held, dtype)
            else:
                link_shards(file, "solution", held, dtype, shards)
            name_axes(file["solution"], grid, window, tuple(leading))
            _present_to_vtk(file, grid.steps, file["solution"].attrs["origin"], leading)
        yield writer


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
