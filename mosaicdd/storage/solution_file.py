"""Solution files: the field, the boundary data, the history and how it was made.

``/solution`` is ``(ny + 1, nx + 1)``, or a window of that, whose ``first_node`` says where it lies;
its values may lie in shards. ``/VTKHDF`` presents the same data to ParaView as an image. Instead of
it there may be the interface alone, ``/lines/0`` and ``/lines/1``, as in a checkpoint.
``/error_estimate`` and ``/outside_training_range``, where the solver gave them, hold a value per
lattice node. Of several problems, all of these have a leading axis for the problems, see
`many_solutions`. Attributes hold all that ``solve --json`` prints, versions and the command line. A solution file
is a boundary file, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike

import h5py
import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.boundary import Boundary
from mosaicdd.storage.arrays import ArrayWriter
from mosaicdd.storage.attributes import read_attributes, write_attributes
from mosaicdd.storage.boundary_file import boundary_of_file, write_boundary
from mosaicdd.storage.checkpoint_file import line_name
from mosaicdd.storage.hdf5 import SEALED, mark, new_file, open_to_read
from mosaicdd.storage.one_problem import OneProblem
from mosaicdd.storage.shards import Shard, link_shards, replacing_shards, require_shards
from mosaicdd.storage.vtk import present_to_vtk

FORMAT_VERSION = SEALED


@dataclass(frozen=True)
class StoredSolution:
    """What a solution file holds.

    Parameters
    ----------
    field
        ``(ny + 1, nx + 1)``, or a window of that.
    window
        Which nodes these are.
    history
        Arrays of one number per iteration: ``update``, ``residual``, ``mae``, ``seconds``.
    attributes
        What ``solve --json`` printed, and the equation's name as ``pde``.
    outside
        Per lattice node, whether its subdomain's data were outside of the training range; None if
        there was no such range.
    problem, problems
        Which of how many problems of its file this is.
    """

    grid: Grid
    boundary: Boundary
    field: np.ndarray
    window: Window
    history: dict[str, np.ndarray]
    attributes: dict
    outside: np.ndarray | None
    problem: int = 0
    problems: int = 1

    @property
    def seconds(self) -> float:
        """Seconds that the solve took: iteration and fill, without start-up and writing."""
        spent = self.attributes.get("seconds", {})
        return spent.get("iterate", 0.0) + spent.get("assemble", 0.0)


class SolutionWriter(ArrayWriter):
    """Fills an open solution file: arrays part by part, then what is known of the solve."""

    def describe(self, attributes: dict, history: dict[str, list[float]]) -> None:
        """Write attributes (containers and None as JSON text) and the history."""
        write_attributes(self._file, attributes)
        self.history(history)


@contextmanager
def writing_solution(
    path: str | PathLike,
    grid: Grid,
    boundary: Boundary,
    dtype: str,
    window: Window | None = None,
    shards: list[Shard] | None = None,
) -> Iterator[SolutionWriter]:
    """Open a solution file for writing; it appears under its name when all is written.

    Parameters
    ----------
    window
        Part of the field to write; all of it by default.
    shards
        Where the values are, if not in this file.
    """
    window = window or Window.whole(grid)
    with _new_file(path, grid, boundary, shards or []) as file:
        if shards is None:
            file.create_dataset("solution", shape=window.shape, dtype=dtype)
        else:
            link_shards(file, "solution", window.shape, dtype, shards)
        file["solution"].attrs["first_node"] = window.start
        present_to_vtk(file, window.shape, grid.spacing, [n * grid.spacing for n in window.start])
        yield SolutionWriter(file)


@contextmanager
def writing_interface(
    path: str | PathLike, grid: Grid, boundary: Boundary
) -> Iterator[SolutionWriter]:
    """Open a solution file without a field for writing, as `writing_solution`."""
    with _new_file(path, grid, boundary, []) as file:
        yield SolutionWriter(file)


@contextmanager
def _new_file(
    path: str | PathLike, grid: Grid, boundary: Boundary, shards: list[Shard]
) -> Iterator[h5py.File]:
    with replacing_shards(path, shards), new_file(path) as file:
        mark(file, "solution", FORMAT_VERSION)
        file.attrs["spacing"] = grid.spacing
        write_boundary(file, boundary)
        yield file


def read_solution(path: str | PathLike, problem: int = 0) -> StoredSolution:
    """Read a solution file, or one problem of it.

    Raises
    ------
    ValueError
        If the file is not a complete solution file with a field, has no such problem, or a shard is
        missing.
    """
    with open_to_read(path, "solution", FORMAT_VERSION) as file:
        require_shards(file)
        _require_field(file)
        one = OneProblem(file, problem)
        field = _field(one)
        grid = _grid(file, field)
        history = {name: one.array(f"history/{name}") for name in file["history"]}
        return StoredSolution(
            grid=grid,
            boundary=boundary_of_file(file, grid, problem),
            field=field,
            window=_window(file, grid, field),
            history=history,
            outside=one.array("outside_training_range")
            if "outside_training_range" in file
            else None,
            attributes=_attributes(file) | one.results(),
            problem=problem,
            problems=one.problems,
        )


def count_problems(path: str | PathLike) -> int:
    """Return how many problems a solution file holds.

    Raises
    ------
    ValueError
        As `read_solution`.
    """
    with open_to_read(path, "solution", FORMAT_VERSION) as file:
        _require_field(file)
        return OneProblem(file, 0).problems


def _require_field(file: h5py.File) -> None:
    if "solution" not in file and line_name(0) in file:
        raise ValueError(
            f"{file.filename} holds the interface only: /solution is missing; solve without "
            "--fields interface"
        )


def _field(one: OneProblem) -> np.ndarray:
    field = np.asarray(one.array("solution"))
    if field.ndim != 2 or min(field.shape) < 2 or field.dtype.kind != "f":
        raise ValueError(
            f"{one.filename}: /solution must hold rows of real numbers, got {field.dtype} of shape "
            f"{field.shape}"
        )
    return field


def _grid(file: h5py.File, field: np.ndarray) -> Grid:
    """Return the grid of the whole domain, by its edges; a missing one is reported elsewhere."""
    edges = [file.get(f"boundary/{name}") for name in ("left", "bottom")]
    missing = any(edge is None for edge in edges)
    lengths = field.shape if missing else [edge.shape[-1] for edge in edges]
    return Grid(tuple(length - 1 for length in lengths), float(file.attrs["spacing"]))


def _window(file: h5py.File, grid: Grid, field: np.ndarray) -> Window:
    first = file["solution"].attrs.get("first_node", np.zeros(2, int))
    start = tuple(int(node) for node in first)
    window = Window(start, tuple(a + n for a, n in zip(start, field.shape, strict=True)))
    if min(start) < 0 or any(b > n for b, n in zip(window.stop, grid.nodes, strict=True)):
        raise ValueError(
            f"{file.filename}: /solution has {field.shape} nodes from {start}, the boundary data "
            f"are for {grid.nodes}"
        )
    return window


def _attributes(file: h5py.File) -> dict:
    attributes = read_attributes(file)
    seconds = attributes.get("seconds", {})
    numbers = seconds.values() if isinstance(seconds, dict) else [None]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(f"{file.filename}: seconds must be numbers by name, got {seconds!r}")
    return attributes
