"""Solution files: the field, the boundary data, the history and how it was made.

``/solution`` is ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``, or a window of that; its attributes
``first_node``, ``origin`` and ``spacing`` say where it lies, in the order of axes, which have their letters as labels.
Its values may lie in shards. ``/VTKHDF`` presents the same data to ParaView as an image. Instead of
it there may be the interface alone, ``/lines/0`` and ``/lines/1``, as in a checkpoint.
``/error_estimate`` and ``/outside_training_range``, where the solver gave them, hold a value per
lattice node. Of a domain that is no rectangle, ``/active`` says at which nodes of ``/solution`` there
are values, which are NaN elsewhere, and ``/domain/level`` which part of the rectangle it is, as
`problems.shapes.shape`. ``/fields`` holds coefficients and sources: numbers as attributes, arrays on nodes or
cells; ``/foils`` the sheets in these, as `Foils.table`. Attributes hold all that ``solve --json`` prints, versions and the command line. A solution
file is a boundary file, too.

Of several problems, all arrays but common fields have a leading axis; ``/problems`` holds what
differs between them, ``(n,)`` each: status, iterations, update, residual and so on; the attributes
are of all problems together, and ParaView sees a stack of planes, of boxes one after another.

Of a series in time, ``/time`` holds the times of the fields, which are the leading axis of ``/solution``,
also before that of several problems; the histories have an entry per step, and ParaView plays it, in space
with an array for each problem.

The arrays of ``/VTKHDF`` are links: nothing is copied.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mosaicdd.axes import letters
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Window
from mosaicdd.storage.atomic import version_of
from mosaicdd.storage.domain_file import shape_of_file
from mosaicdd.storage.field_file import FieldFile
from mosaicdd.storage.hdf5 import line_name, open_to_read, read_attributes
from mosaicdd.storage.inputs import boundary_of_file, sides_of_file
from mosaicdd.storage.shards import require_shards

_SPEC = re.compile(r"(?P<path>.+\.h5)(?::(?P<frame>\d+))?")  # of `stored_field`
_SERIES = "series"  # the solution at all times


@contextmanager
def open_solution(path: str | PathLike) -> Iterator[h5py.File]:
    """Open a solution file, and check it.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If the file is not a complete solution file with a field, or a shard is missing.
    """
    with open_to_read(path, "solution") as file:
        require_shards(file)
        if "solution" not in file and line_name(0) in file:
            raise ValueError(
                f"{file.filename} holds the interface only: /solution is missing; solve again with "
                "fields"
            )
        yield file


def axes_of_file(file: h5py.File) -> int:
    """Return the number of axes of the grid; ``/solution`` has one more of several times, and one of problems."""
    return len(file["solution"].attrs.get("first_node", (0, 0)))


class SolutionArrays:
    """Reads what an open file has of one problem, and its arrays later; in the file of a single one they have no axis for it.

    Of a series one field: by default the last. Where that is of one problem, ``problem`` may say which field, too.
    `ValueError` if there is no such problem or field.
    """

    def __init__(self, file: h5py.File, problem: int | None = None, frame: int | None = None):
        solution, series = file["solution"], "time" in file
        several = solution.ndim - axes_of_file(file) - series == 1
        self.problems = solution.shape[int(series)] if several else 1
        if series and not several and frame is None:
            problem, frame = None, problem
        self.number = self._known(file, "problem", problem, 0, self.problems)
        last = len(solution) - 1 if series else 0
        self.frame = self._known(file, "time", frame, last, last + 1)
        self.path = Path(file.filename)
        self._version = version_of(self.path)
        self._frame = (self.frame,) if series else ()
        self._number = (self.number,) if several else ()

    @staticmethod
    def _known(file: h5py.File, what: str, number: int | None, default: int, held: int) -> int:
        number = default if number is None else number
        if not 0 <= number < held:
            known = f"one {what}" if held == 1 else f"{what}s 0 to {held - 1}"
            raise ValueError(f"{file.filename} holds {known}, not number {number}")
        return number

    def __call__(self, name: str, *place: slice | int) -> np.ndarray | None:
        """Read an array, or a part of it by its first axes; None if there is none.

        ``name``: of a dataset; ``"series"``: the solution at all times.

        `ValueError` if the file has changed since it was opened.
        """
        if version_of(self.path) != self._version:
            raise ValueError(f"{self.path} has changed since it was opened; open it again")
        with open_to_read(self.path, "solution") as file:
            if name == _SERIES:
                return file["solution"][(slice(None), *self._number)]
            if name not in file:
                return None
            values, leading = file[name], self._number
            if name == "solution":
                leading = *self._frame, *self._number
            elif name.startswith(
                "fields/"
            ):  # which have an axis for the problems where they differ
                leading = (self.number,) if values.ndim > axes_of_file(file) else ()
            return values[(*leading, *place)]

    def described(self, file: h5py.File) -> dict[str, Any]:
        """Return all but the large arrays, by the names that `StoredSolution` has for it."""
        number, solution = self.number, file["solution"]
        nodes, axes = solution.shape[len(self._frame + self._number) :], axes_of_file(file)
        if len(nodes) != axes or min(nodes) < 2 or solution.dtype.kind != "f":
            raise ValueError(
                f"{file.filename}: /solution must hold rows of real numbers, got {solution.dtype} of shape "
                f"{nodes}"
            )
        grid, fields = grid_of_file(file, nodes), file.get("fields", {})
        numbers = {name: float(v[number]) for name, v in fields.items() if v.ndim == 1}
        if "fields" in file:
            numbers = {name: float(value) for name, value in fields.attrs.items()} | numbers
        described: dict[str, Any] = {
            "path": self.path,
            "grid": grid,
            "sides": (sides_of_file if "sides" in file else boundary_of_file)(file, grid, number),
            "window": window_of_file(file, grid, nodes),
            "history": {name: self._history(file, name) for name in file["history"]},
            "attributes": attributes_of_file(file) | self._results(file),
            "numbers": numbers,
            "coefficients": tuple(name for name in fields if fields[name].ndim > 1),
            "shape": shape_of_file(file),
            "number": number,
            "problems": self.problems,
            "frame": self.frame,
            "times": file["time"][()] if "time" in file else None,
            "foils": {name: table[()] for name, table in file.get("foils", {}).items()},
        }
        errors = file["error_estimate"].attrs if "error_estimate" in file else {}
        if "step" in errors:
            described["lattice_start"] = tuple(int(node) for node in errors["first_node"])
            described["lattice_step"] = int(errors["step"])
        return described

    def _history(self, file: h5py.File, name: str) -> np.ndarray:
        """Return the history of this problem, without the NaN after its last entry."""
        values = file[f"history/{name}"][self._number]
        if not self._number:
            return values
        entries = "steps" if "time" in file else "iterations"
        return values[: int(file[f"problems/{entries}"][self.number])]

    def _results(self, file: h5py.File) -> dict:
        """Return the results that differ between problems, by the names of the attributes."""
        if not self._number:
            return {}
        values = {name: each[self.number] for name, each in file["problems"].items()}
        return {
            name: value.decode() or None if isinstance(value, bytes) else value.item()
            for name, value in values.items()
        }


def read_array(path: str | PathLike, name: str, problem: int, frame: int | None = None) -> Any:
    """Read an array of one problem in a solution file, None if there is none."""
    with open_solution(path) as file:
        arrays = SolutionArrays(file, problem, frame)
    return arrays(name)


def grid_of_file(file: h5py.File, nodes: tuple[int, ...]) -> Grid:
    """Return the grid of the whole domain, by its edges; a missing one is reported elsewhere."""
    axes = len(nodes)
    if "sides" in file:
        cells = tuple(int(count) for count in file["sides"].attrs["cells"])
    else:
        # All but those along x from a side that is constant in it, those from one beside it.
        edges = [file.get(f"boundary/{name}") for name in ("left", "bottom")]
        left, bottom = (None if edge is None else edge.shape[1 - axes :] for edge in edges)
        lengths = nodes if left is None or bottom is None else (*left, bottom[-1])
        cells = tuple(n - 1 for n in lengths)
    # The sides of a cell may be one number; old files lack the origin.
    known = file.attrs["spacing"], file.attrs.get("origin", 0.0)
    return Grid.of_cells(
        cells, *(np.broadcast_to(np.asarray(a, float), axes).tolist() for a in known)
    )


def window_of_file(file: h5py.File, grid: Grid, nodes: tuple[int, ...]) -> Window:
    """Return the window of nodes that the field has; `ValueError` if it is not within the grid."""
    first = file["solution"].attrs.get("first_node", np.zeros(len(nodes), int))
    start = tuple(int(node) for node in first)
    window = Window(start, tuple(a + n for a, n in zip(start, nodes, strict=True)))
    if min(start) < 0 or any(b > n for b, n in zip(window.stop, grid.nodes, strict=True)):
        raise ValueError(
            f"{file.filename}: /solution has {nodes} nodes from {start}, the boundary data are for "
            f"{grid.nodes}"
        )
    return window


def attributes_of_file(file: h5py.File) -> dict:
    """Return all attributes; the seconds among them must be numbers."""
    attributes = read_attributes(file)
    seconds = attributes.get("seconds", {})
    numbers = seconds.values() if isinstance(seconds, dict) else [None]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(f"{file.filename}: seconds must be numbers by name, got {seconds!r}")
    return attributes


def stored_field(spec: str) -> FieldFile | None:
    """Return the node values in a solution file, ``(ny + 1, nx + 1)``, of several problems with a leading axis.

    ``spec``: ``FILE.h5``, of a series its last field, or ``FILE.h5:K``, that at its time number K; None if it is neither.

    Errors as `open_solution`; `ValueError` if the file holds a window, or no such time.
    """
    known = _SPEC.fullmatch(spec)
    if known is None:
        return None
    path, frame = Path(known["path"]), None if known["frame"] is None else int(known["frame"])
    with open_solution(path) as file:
        if frame is not None and "time" not in file:
            raise ValueError(f"{path} is no series, it has no time number {frame}: give {path}")
        arrays = SolutionArrays(file, None, frame)
        stored = arrays.described(file)
    grid, window = stored["grid"], stored["window"]
    if window != Window.whole(grid):
        raise ValueError(
            f"{path} holds a window of {window.shape} of {grid.nodes} nodes, initial values are of "
            "all: solve again without a window"
        )
    first = () if stored["times"] is None else (arrays.frame,)
    axes = enumerate(letters(len(grid.nodes)))
    along = {letter: window.coordinates(grid, axis) for axis, letter in axes}
    return FieldFile(f"{path}:/solution", first, along)


GHOSTS = "VTKHDF/PointData/vtkGhostType"
"""Flags of the nodes that ParaView hides."""

HIDDEN = 2
"""The flag of a hidden node."""


def present_to_vtk(
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
