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
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from dataclasses import field as member
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mosaicdd.lattice.axes import at
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Placed, Window
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.equations import find_any_equation
from mosaicdd.problems.operators.foils import Foils
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import Shape, has_values
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.storage import solution_layout
from mosaicdd.storage.atomic import version_of
from mosaicdd.storage.domain_file import shape_of_file
from mosaicdd.storage.hdf5 import line_name, open_to_read
from mosaicdd.storage.inputs import boundary_of_file, sides_of_file
from mosaicdd.storage.shards import require_shards


@dataclass(frozen=True)
class StoredSolution(Placed):
    """One problem of a solution file; its large arrays are read when they are first asked for.

    Parameters
    ----------
    path
        The file, and its ``version`` when it was opened.
    sides
        What was given on the outline.
    window
        Which of the nodes of the grid `field` has; all of them, as a rule.
    history
        Arrays of one number per iteration: ``update``, ``residual``, ``mae``, ``seconds``; or per step.
    attributes
        What ``solve --json`` printed, of this problem, and the equation's name as ``pde``.
    shape
        Which part of the rectangle the domain is; None for all.
    number, problems
        Which of how many problems of its file this is.
    frame, times
        Which of the fields of a series, and the times of all; else 0, and None.
    foils
        Those in coefficients, by the names of these, as `Foils.table`.
    lattice_start, lattice_step
        At which grid node, (y, x), the arrays with a value per lattice node begin, and how many cells
        they go on by; None where they begin or end with the grid.
    """

    path: Path
    version: tuple[int, ...]
    grid: Grid
    sides: Boundary | Sides
    window: Window
    history: dict[str, np.ndarray]
    attributes: dict
    shape: Shape | None = None
    number: int = 0
    problems: int = 1
    frame: int = 0
    lattice_start: tuple[int, ...] | None = None
    lattice_step: int | None = None
    times: np.ndarray | None = None
    foils: Mapping[str, np.ndarray] = member(default_factory=dict)

    @property
    def time(self) -> float | None:
        """Of the field, if it is one of a series."""
        return None if self.times is None else float(self.times[self.frame])

    def series(self) -> np.ndarray:
        """Return all fields of a series, ``(times, ny + 1, nx + 1)``."""
        with self._open() as file:
            solution = file["solution"]
            return solution[:, self.number] if self.problems > 1 else solution[()]

    @cached_property
    def field(self) -> np.ndarray:
        """The solution, ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``, or a window of that."""
        with self._open() as file:
            return self._member(file).array("solution")

    def plane(self, axis: int, index: int) -> np.ndarray:
        """Return the values of a field in space in one plane, ``(rows, columns)``; no more is read.

        ``index``: of the field's nodes along an axis that the plane is constant in.
        """
        place = at(axis, len(self.grid.shape), index)
        if "field" in vars(self):
            return np.asarray(self.field)[place]
        with self._open() as file:
            return self._member(file).part(*place)

    def rows(self, count: int) -> Iterator[np.ndarray]:
        """Yield the solution in portions of so many rows, without holding more of it."""
        with self._open() as file:
            member = self._member(file)
            for first in range(0, self.window.shape[0], count):
                yield member.part(slice(first, first + count))

    @cached_property
    def inside(self) -> np.ndarray | None:
        """At which nodes `field` has values, by `has_values`; None of a rectangle, where it has them at all."""
        if self.shape is None:
            return None
        return has_values(self.shape, self.grid, self.window.place, np.asarray(self.field))

    @property
    def boundary(self) -> Boundary | None:
        """The values that were given on all edges; None where a side is natural."""
        return self.sides if isinstance(self.sides, Boundary) else None

    def coordinates(self, axis: int) -> np.ndarray:
        """Return where the nodes of the field lie along an axis, in units of domain length."""
        return self.window.coordinates(self.grid, axis)

    @property
    def status(self) -> str:
        """How the solve ended; empty if the file does not say."""
        return str(self.attributes.get("status", ""))

    @property
    def error_estimate(self) -> float | None:
        """Estimated root mean square of the error; None if the file does not say."""
        return self.attributes.get("error_estimate")

    @cached_property
    def error_map(self) -> np.ndarray | None:
        """The estimated error at the lattice nodes, ``(K_y + 1, K_x + 1)``; None without one.

        Along a periodic axis the last is the first, and left out.
        """
        return self._map("error_estimate")

    @cached_property
    def outside(self) -> np.ndarray | None:
        """Per lattice node, whether its subdomain's data were outside of the training range.

        None if there was no such range.
        """
        return self._map("outside_training_range")

    @cached_property
    def fields(self) -> dict[str, float | np.ndarray]:
        """Coefficients and sources by name: numbers, or arrays on nodes or cells."""
        with self._open() as file:
            return (
                dict(solution_layout.fields_of_file(file, self.number)) if "fields" in file else {}
            )

    @property
    def numbers(self) -> dict[str, float]:
        """The coefficients and sources that are numbers, by name; arrays are not read for them."""
        if "fields" in vars(self):
            every = self.fields.items()
            return {name: float(value) for name, value in every if np.ndim(value) == 0}
        with self._open() as file:
            return solution_layout.numbers_of_file(file, self.number)

    @cached_property
    def problem(self) -> Problem:
        """The boundary value problem that was solved; one of the user's own equations must be in use."""
        domain = Domain.of_grid(self.grid, self.shape)
        pde = find_any_equation(str(self.attributes.get("pde")))
        parameters = self.attributes.get("parameters", {})
        functions = {name: parameters[name] for name in getattr(pde, "functions", {})}
        fields: dict[str, Any] = {**self.fields, **functions}
        for name, table in self.foils.items():
            fields[name] = Foils.of_table(table, fields[name])
        return Problem(domain, pde, fields, self.sides)

    @property
    def seconds(self) -> float:
        """Seconds that the solve took: iteration and fill, or steps; without start-up and writing."""
        spent = self.attributes.get("seconds", {})
        if "march" in spent:
            return spent["march"]
        return spent.get("iterate", 0.0) + spent.get("assemble", 0.0)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Along which axes, (y, x), the domain goes on at the opposite side."""
        if isinstance(self.sides, Boundary):
            return (False,) * len(self.grid.shape)
        return self.sides.periodic

    def map_extent(self, nodes: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
        """Return the low and the high end per axis, (y, x), of so many lattice nodes."""
        first = np.array(self.lattice_start or (0,) * len(nodes))
        count = np.subtract(nodes, 1)
        step = self.lattice_step or np.divide(self.grid.shape, count)
        low, high = self.grid.at([first, first + step * count]).tolist()
        return tuple(zip(low, high, strict=True))

    def _map(self, name: str) -> np.ndarray | None:
        with self._open() as file:
            return self._member(file).array(name) if name in file else None

    def _member(self, file: h5py.File) -> solution_layout.OneProblem:
        return solution_layout.OneProblem(file, self.number, self.frame)

    def _open(self) -> AbstractContextManager[h5py.File]:
        if version_of(self.path) != self.version:
            raise ValueError(f"{self.path} has changed since it was opened; open it again")
        return open_to_read(self.path, "solution")


def read_solution(
    path: str | PathLike, problem: int | None = None, frame: int | None = None
) -> StoredSolution:
    """Open a solution file, and check it; or one problem of it.

    Parameters
    ----------
    problem
        By default the first.
    frame
        Of a series the number of a field, by default the last; of one problem ``problem`` may say it, too.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If the file is not a complete solution file with a field, has no such problem, or a shard is
        missing.
    """
    with open_to_read(path, "solution") as file:
        _require_field(file)
        return _stored(file, solution_layout.OneProblem(file, problem, frame))


def read_solutions(path: str | PathLike, frame: int | None = None) -> Iterator[StoredSolution]:
    """Open a solution file once for all of its problems, one after another; as `read_solution`."""
    with open_to_read(path, "solution") as file:
        _require_field(file)
        first = solution_layout.OneProblem(file, None, frame)
        for problem in range(first.problems):
            yield _stored(file, solution_layout.OneProblem(file, problem, first.frame))


def _stored(file: h5py.File, member: solution_layout.OneProblem) -> StoredSolution:
    problem = member.number
    nodes = solution_layout.nodes_of_file(file, member)
    grid = solution_layout.grid_of_file(file, nodes)
    return StoredSolution(
        path=Path(file.filename),
        version=version_of(file.filename),
        grid=grid,
        sides=sides_of_file(file, grid, problem)
        if "sides" in file
        else boundary_of_file(file, grid, problem),
        window=solution_layout.window_of_file(file, grid, nodes),
        history={name: member.array(f"history/{name}") for name in file["history"]},
        attributes=solution_layout.attributes_of_file(file) | member.results(),
        shape=shape_of_file(file),
        number=member.number,
        problems=member.problems,
        frame=member.frame,
        times=file["time"][()] if "time" in file else None,
        foils={name: table[()] for name, table in file.get("foils", {}).items()},
        **solution_layout.lattice_of_file(file),
    )


def _require_field(file: h5py.File) -> None:
    require_shards(file)
    if "solution" not in file and line_name(0) in file:
        raise ValueError(
            f"{file.filename} holds the interface only: /solution is missing; solve again with "
            "fields"
        )
