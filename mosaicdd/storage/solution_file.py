"""Solution files: the field, the boundary data, the history and how it was made.

``/solution`` is ``(ny + 1, nx + 1)``; ``/VTKHDF`` presents the same data to ParaView as an image.
``/error_estimate`` and ``/outside_training_range``, where the solver gave them, hold a value per
lattice node. Attributes hold all that ``solve --json`` prints, versions and the command line. A solution file
is a boundary file, too.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike

import h5py
import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.storage.arrays import ArrayWriter
from mosaicdd.storage.boundary_file import boundary_of_file, write_boundary
from mosaicdd.storage.hdf5 import SEALED, mark, new_file, open_to_read

FORMAT_VERSION = SEALED


@dataclass(frozen=True)
class StoredSolution:
    """What a solution file holds.

    Parameters
    ----------
    field
        ``(ny + 1, nx + 1)``.
    history
        Arrays of one number per iteration: ``update``, ``residual``, ``mae``, ``seconds``.
    attributes
        What ``solve --json`` printed, and the equation's name as ``pde``.
    outside
        Per lattice node, whether its subdomain's data were outside of the training range; None if
        there was no such range.
    """

    grid: Grid
    boundary: Boundary
    field: np.ndarray
    history: dict[str, np.ndarray]
    attributes: dict
    outside: np.ndarray | None

    @property
    def seconds(self) -> float:
        """Seconds that the solve took: iteration and fill, without start-up and writing."""
        spent = self.attributes.get("seconds", {})
        return spent.get("iterate", 0.0) + spent.get("assemble", 0.0)


class SolutionWriter(ArrayWriter):
    """Fills an open solution file: arrays part by part, then what is known of the solve."""

    def describe(self, attributes: dict, history: dict[str, list[float]]) -> None:
        """Write attributes (containers and None as JSON text) and the history."""
        plain = (str, int, float, bool)
        for name, value in attributes.items():
            self._file.attrs[name] = value if isinstance(value, plain) else json.dumps(value)
        self.history(history)


@contextmanager
def writing_solution(
    path: str | PathLike, grid: Grid, boundary: Boundary, dtype: str
) -> Iterator[SolutionWriter]:
    """Open a solution file for writing; it appears under its name when all is written."""
    with new_file(path) as file:
        mark(file, "solution", FORMAT_VERSION)
        file.attrs["spacing"] = grid.spacing
        write_boundary(file, boundary)
        writer = SolutionWriter(file)
        writer.create("solution", grid.nodes, dtype)
        _present_to_vtk(file, grid)
        yield writer


def read_solution(path: str | PathLike) -> StoredSolution:
    """Read a solution file.

    Raises
    ------
    ValueError
        If the file is not a complete solution file.
    """
    with open_to_read(path, "solution", FORMAT_VERSION) as file:
        field = _field(file)
        grid = Grid(tuple(n - 1 for n in field.shape), float(file.attrs["spacing"]))
        history = {name: data[()] for name, data in file["history"].items()}
        return StoredSolution(
            grid=grid,
            boundary=boundary_of_file(file, grid),
            field=field,
            history=history,
            outside=file["outside_training_range"][()]
            if "outside_training_range" in file
            else None,
            attributes=_attributes(file),
        )


def _field(file: h5py.File) -> np.ndarray:
    field = np.asarray(file["solution"][()])
    if field.ndim != 2 or min(field.shape) < 2 or field.dtype.kind != "f":
        raise ValueError(
            f"{file.filename}: /solution must hold rows of real numbers, got {field.dtype} of shape "
            f"{field.shape}"
        )
    return field


def _attributes(file: h5py.File) -> dict:
    attributes = {name: _decode(value) for name, value in file.attrs.items()}
    seconds = attributes.get("seconds", {})
    numbers = seconds.values() if isinstance(seconds, dict) else [None]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(f"{file.filename}: seconds must be numbers by name, got {seconds!r}")
    return attributes


def _decode(value):
    """Undo `SolutionWriter.describe` for one attribute."""
    if isinstance(value, str) and value[:1] in "[{n":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value.item() if isinstance(value, np.generic) else value


def _present_to_vtk(file: h5py.File, grid: Grid) -> None:
    """Describe the field as VTKHDF ImageData; the values are linked, not copied."""
    ny, nx = grid.shape
    image = file.create_group("VTKHDF")
    image.attrs["Version"] = np.array([2, 0], dtype="i8")
    image.attrs.create("Type", b"ImageData", dtype=h5py.string_dtype("ascii", 9))
    image.attrs["WholeExtent"] = np.array([0, nx, 0, ny, 0, 0], dtype="i8")
    image.attrs["Origin"] = np.zeros(3)
    image.attrs["Spacing"] = np.array([grid.spacing, grid.spacing, 1.0])
    image.attrs["Direction"] = np.eye(3).ravel()
    image.create_group("PointData")["solution"] = file["solution"]
