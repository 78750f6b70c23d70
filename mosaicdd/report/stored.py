"""The solution of one problem, in memory or in a file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as member
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.axes import at
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Placed, Window, as_points, interpolate, interpolate_within, on_grid
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.equations import find_any_equation
from mosaicdd.problems.operators.foils import Foils
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import Shape, has_values
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.quantities.balance import Balance, balance_until
from mosaicdd.quantities.quantities import Ask, Quantified
from mosaicdd.quantities.sums import alone
from mosaicdd.report.presented import Presented
from mosaicdd.storage.solution_file import SolutionArrays, open_solution
from mosaicdd.tensors import read_only
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported


@dataclass(frozen=True)
class StoredSolution(Placed, Quantified, Presented):
    """The solution of one problem, in memory or in a file; its large arrays are read when they are first asked for.

    Parameters
    ----------
    arrays
        Returns an array, or a part of it by its first axes, None if there is none: by the names of `SolutionArrays`.
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
        Which of how many problems that were solved together this is.
    numbers, coefficients
        Coefficients and sources that are numbers, by name; the names of those that are arrays.
    path
        The file; ``memory`` in memory.
    frame, times
        Which of the fields of a series, and the times of all; else 0, and None.
    foils
        Those in coefficients, by the names of these, as `Foils.table`.
    lattice_start, lattice_step
        At which grid node, (y, x), the arrays with a value per lattice node begin, and how many cells
        they go on by; None where they begin or end with the grid.
    """

    arrays: Callable[..., Any]
    grid: Grid
    sides: Boundary | Sides
    window: Window
    history: dict[str, np.ndarray]
    attributes: dict
    numbers: dict[str, float]
    coefficients: tuple[str, ...] = ()
    path: Path = Path("memory")
    shape: Shape | None = None
    number: int = 0
    problems: int = 1
    frame: int = 0
    lattice_start: tuple[int, ...] | None = None
    lattice_step: int | None = None
    times: np.ndarray | None = None
    foils: Mapping[str, np.ndarray] = member(default_factory=dict)

    def __repr__(self) -> str:
        cells = "x".join(map(str, self.attributes.get("grid", self.grid.shape[::-1])))
        which = f"problem {self.number} of {self.problems}, " if self.problems > 1 else ""
        if self.times is not None:
            which += f"time {self.time:g}, number {self.frame} of {len(self.times)}, "
        return (
            f"<solution of {self.attributes.get('pde', 'unknown')} on {cells} cells in "
            f"{self.path}: {which}{self.status or 'unknown status'}>"
        )

    @property
    def time(self) -> float | None:
        """Of the field, if it is one of a series."""
        return None if self.times is None else float(self.times[self.frame])

    def series(self) -> np.ndarray:
        """Return all fields of a series, ``(times, ny + 1, nx + 1)``."""
        return self.arrays("series")

    @cached_property
    def field(self) -> np.ndarray:
        """The solution, ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``, or a window of that.

        Read-only: change a ``copy()``.
        """
        return read_only(self.arrays("solution"))

    def plane(self, axis: int, index: int) -> np.ndarray:
        """Return the values of a field in space in one plane, ``(rows, columns)``; no more is read.

        ``index``: of the field's nodes along an axis that the plane is constant in.
        """
        return self._part(*at(axis, len(self.grid.shape), index))

    def rows(self, count: int) -> Iterator[np.ndarray]:
        """Yield the solution in portions of so many rows, without holding more of it."""
        for first in range(0, self.window.shape[0], count):
            yield self._part(slice(first, first + count))

    def _part(self, *place: slice | int) -> np.ndarray:
        """Return a part of the field by its first axes, without reading the rest."""
        return self.field[place] if "field" in vars(self) else self.arrays("solution", *place)

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
        return self.arrays("error_estimate")

    @cached_property
    def outside(self) -> np.ndarray | None:
        """Per lattice node, whether its subdomain's data were outside of the training range.

        None if there was no such range.
        """
        return self.arrays("outside_training_range")

    @cached_property
    def fields(self) -> dict[str, float | np.ndarray]:
        """Coefficients and sources by name: numbers, or arrays on nodes or cells."""
        return self.numbers | {name: self.arrays(f"fields/{name}") for name in self.coefficients}

    @cached_property
    def problem(self) -> Problem:
        """The boundary value problem that was solved; one of the user's own equations must be in use."""
        domain = Domain.of_grid(self.grid, self.shape)
        pde = find_any_equation(str(self.attributes.get("pde")))
        parameters = self.attributes.get("parameters", {})
        functions = {name: parameters[name] for name in pde.functions}
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

    def each(self) -> list["StoredSolution"]:
        """Return the solution itself."""
        return [self]

    def balance(self) -> Balance:
        """Return the `Balance`; of a series that of all steps up to the field, as `Series.balance` has it."""
        known = None if self.times is None else balance_until(self.time, self.history)
        if known is None:
            return super().balance()
        of_all = self.attributes.get("balance") or {
            "flows": known.flows
        }  # in the order of the sides
        return replace(known, flows={name: known.flows[name] for name in of_all["flows"]})

    def at(self, points: Any) -> np.ndarray:
        """Return the values at points ``(q, 2)``, (x, y), in space (x, y, z), linear between the nodes, ``(q,)``.

        Outside of a domain that is no rectangle they are NaN. `ValueError` as `Solution.at`.
        """
        cells = on_grid(as_points(points, len(self.grid.shape)), self.grid) - np.array(
            self.window.start
        )
        field = np.asarray(self.field, float)[None]
        if self.shape is None:
            return interpolate(field, cells)[0]
        level = self.shape.level(self.grid, self.window.place)
        return interpolate_within(field, np.asarray(self.inside), level, cells)[0]

    @property
    def _spacing(self) -> float:
        return min(self.grid.steps)

    @on_processor()
    def _asked(self, ask: Ask) -> Any:
        """Return what is asked of the field."""
        if self.window != Window.whole(self.grid):
            raise Unsupported(
                f"quantities are of the whole field, and {self.path} holds a window of it: solve without --window"
            )
        return ask(alone(self.problem, self.grid, np.asarray(self.field)[None]))


def read(
    path: str | PathLike, number: int | None = None, *, frame: int | None = None
) -> StoredSolution:
    """Open one problem of a solution file; its arrays are read when they are first asked for.

    Parameters
    ----------
    number
        Which of several problems, from 0; ``problems`` of what is returned says how many there are. Of a
        series in time of one problem it may be that of the field.
    frame
        Of a series in time, which field, by default the last; ``times`` lists them.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, it is damaged, or has no such problem.
    """
    with open_solution(path) as file:
        arrays = SolutionArrays(file, number, frame)
        return StoredSolution(arrays, **arrays.described(file))


def read_all(path: str | PathLike, frame: int | None = None) -> Iterator[StoredSolution]:
    """Open a solution file once for all of its problems, one after another; as `read`."""
    with open_solution(path) as file:
        first = SolutionArrays(file, None, frame)
        for number in range(first.problems):
            arrays = SolutionArrays(file, number, first.frame)
            yield StoredSolution(arrays, **arrays.described(file))
