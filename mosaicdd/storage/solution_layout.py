"""How a solution file holds the parts of one problem, and what of them must fit together.

`storage.solution_file` tells which arrays there are.
"""

from collections.abc import Iterator

import h5py
import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.storage.hdf5 import read_attributes


def axes_of_file(file: h5py.File) -> int:
    """Return the number of axes of the grid; ``/solution`` has one more of several times, and one of problems."""
    return len(file["solution"].attrs.get("first_node", (0, 0)))


class OneProblem:
    """Reads the arrays of one problem that a file has; in the file of a single one they have no axis for it.

    Of a series one field: by default the last. Where that is of one problem, ``problem`` may say which field, too.
    `ValueError` if there is no such problem or field.
    """

    def __init__(self, file: h5py.File, problem: int | None, frame: int | None = None):
        solution, series = file["solution"], "time" in file
        several = solution.ndim - axes_of_file(file) - series == 1
        self.problems = solution.shape[int(series)] if several else 1
        if series and not several and frame is None:
            problem, frame = None, problem
        self.number = self._known(file, "problem", problem, 0, self.problems)
        last = len(solution) - 1 if series else 0
        self.frame = self._known(file, "time", frame, last, last + 1)
        self._file = file
        self._leading = (*([self.frame] if series else ()), *([self.number] if several else ()))
        self._at = self.number if several else ()

    @staticmethod
    def _known(file: h5py.File, what: str, number: int | None, default: int, held: int) -> int:
        number = default if number is None else number
        if not 0 <= number < held:
            known = f"one {what}" if held == 1 else f"{what}s 0 to {held - 1}"
            raise ValueError(f"{file.filename} holds {known}, not number {number}")
        return number

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        leading = len(self._leading) if name == "solution" else int(self._at != ())
        return self._file[name].shape[leading:]

    def array(self, name: str) -> np.ndarray:
        """Return an array; of histories as much as belongs to this problem."""
        if name == "solution":
            return self.part()
        values = self._file[name][self._at]
        if name.startswith("history/") and self._at != ():
            entries = "steps" if "time" in self._file else "iterations"
            return values[: int(self._file[f"problems/{entries}"][self._at])]
        return values

    def part(self, *place: slice | int) -> np.ndarray:
        """Return a part of the solution, by its first axes."""
        return self._file["solution"][(*self._leading, *place)]

    def results(self) -> dict:
        """Return the results that differ between problems, by the names of the attributes."""
        if self._at == ():
            return {}
        group = self._file["problems"]
        values = {name: group[name][self._at] for name in group}
        return {
            name: value.decode() or None if isinstance(value, bytes) else value.item()
            for name, value in values.items()
        }


def lattice_of_file(file: h5py.File) -> dict:
    """Return where values per lattice node stand, if the file says so."""
    if "error_estimate" not in file or "step" not in file["error_estimate"].attrs:
        return {}
    attributes = file["error_estimate"].attrs
    start = tuple(int(node) for node in attributes["first_node"])
    return {"lattice_start": start, "lattice_step": int(attributes["step"])}


def nodes_of_file(file: h5py.File, member: OneProblem) -> tuple[int, ...]:
    """Return the nodes per axis of the field, which must be rows of real numbers."""
    nodes, dtype = member.shape("solution"), file["solution"].dtype
    if len(nodes) != axes_of_file(file) or min(nodes) < 2 or dtype.kind != "f":
        raise ValueError(
            f"{file.filename}: /solution must hold rows of real numbers, got {dtype} of shape "
            f"{nodes}"
        )
    return nodes


def grid_of_file(file: h5py.File, nodes: tuple[int, ...]) -> Grid:
    """Return the grid of the whole domain, by its edges; a missing one is reported elsewhere."""
    if "sides" in file:
        cells = tuple(int(count) for count in file["sides"].attrs["cells"])
        return Grid.of_cells(cells, *_places_of_cells(file, len(cells)))
    # All but those along x from a side that is constant in it, those from one beside it.
    axes, edges = len(nodes), [file.get(f"boundary/{name}") for name in ("left", "bottom")]
    left, bottom = (None if edge is None else edge.shape[1 - axes :] for edge in edges)
    lengths = nodes if left is None or bottom is None else (*left, bottom[-1])
    return Grid.of_cells(tuple(n - 1 for n in lengths), *_places_of_cells(file, axes))


def _places_of_cells(file: h5py.File, axes: int) -> tuple[list[float], list[float]]:
    """Return the sides of a cell per axis, where the attribute may be one number, and the origin, which old files lack."""
    known = file.attrs["spacing"], file.attrs.get("origin", 0.0)
    sides, origin = (np.broadcast_to(np.asarray(a, float), axes).tolist() for a in known)
    return sides, origin


def window_of_file(file: h5py.File, grid: Grid, nodes: tuple[int, ...]) -> Window:
    """Return which nodes of the grid the field has; `ValueError` if the grid has not all of them."""
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


def numbers_of_file(file: h5py.File, problem: int) -> dict[str, float]:
    """Return the fields of a problem that are numbers."""
    if "fields" not in file:
        return {}
    group = file["fields"]
    each = {name: float(values[problem]) for name, values in group.items() if values.ndim == 1}
    return {name: float(value) for name, value in group.attrs.items()} | each


def fields_of_file(file: h5py.File, problem: int) -> Iterator[tuple[str, float | np.ndarray]]:
    """List the fields of a problem: arrays of an axis more than the grid have one for the problems."""
    yield from numbers_of_file(file, problem).items()
    axes = axes_of_file(file)
    for name, values in file["fields"].items():
        if values.ndim > 1:
            yield name, values[problem] if values.ndim > axes else values[()]
