"""What a march gives: fields at some times, how far off they are, and what can be done with them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import Slices, in_rows, times
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Placed, Window
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fingerprint import Told, require_same, told_of_rest
from mosaicdd.problems.in_time import CoefficientsInTime, SidesInTime
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.quantities.balance import Balance, balance_until
from mosaicdd.report.presented import labelled
from mosaicdd.schwarz.results.kept import OVER_RANKS
from mosaicdd.schwarz.settings import CONVERGED, Output
from mosaicdd.storage.domain_file import ACTIVE, LEVEL
from mosaicdd.storage.inputs import inputs_of
from mosaicdd.storage.solution_file import read_solution
from mosaicdd.storage.solution_writer import SolutionWriter, writing_solutions
from mosaicdd.time.frames import Frames, Record
from mosaicdd.unsupported import Unsupported

_VALUES = 2**20  # of a coefficient that are sampled at once


@dataclass(frozen=True)
class Marched:
    """What a march leaves on a rank."""

    problem: Problem
    grid: Grid
    place: Slices  # the nodes of the grid that this rank owns
    frames: Frames
    report: dict  # what is said of all steps
    record: Record  # and of each

    @property
    def last(self) -> Problem:
        """The problem with the coefficients and the values on its sides at the end."""
        end = self.frames.times[-1]
        sides = SidesInTime(self.problem.conditions)(end)
        return CoefficientsInTime(self.problem)(end).with_sides(sides)

    def told(self) -> Told:
        """Return what tells the data that are written from others; of values on sides those at the end."""
        return told_of_rest(self.last, self.grid, self.place)

    def write(self, path: str | PathLike, ranks: Ranks) -> None:
        """Write a solution file with all times; all ranks together.

        `OSError` on all ranks, if it cannot be written.
        """
        frames = self.frames

        def begin() -> AbstractContextManager[SolutionWriter]:
            last, grid = self.last, self.grid
            shape = self.problem.domain.shape
            return writing_solutions(
                path,
                grid,
                last.boundaries(grid),
                "float64",
                sides=None if last.plain else conditions_of(last, grid),
                edges=[] if shape is None else last.conditions.edge_values(grid),
                times=frames.times,
            )

        def complete() -> None:
            if writer is not None:
                self._write_coefficients(writer)
                self._write_domain(writer)
                writer.describe(self.report, [self.record.arrays()])

        with ranks.held_by_root(begin) as writer:
            for number in range(len(frames.times)):

                def write(values: np.ndarray, place: Slices, at: int = number) -> None:
                    if writer is not None:
                        writer.write("solution", values[None], (slice(at, at + 1), *place))

                frames.to_root(ranks, number, write)
            ranks.on_root(complete)

    def _write_coefficients(self, writer: SolutionWriter) -> None:
        """Write the parameters at the end, those that are fields a few rows at a time."""
        last = self.last
        for name, number in last.parameters.items():
            writer.field(name, number)
        for name, field in last.arrays.items():
            if name == "f":  # which depends on the time
                continue
            shape = self.grid.shape if field.per_cell(self.grid) else self.grid.nodes
            writer.create_common(f"fields/{name}", shape, "float64")
            if field.foils is not None:
                writer.foils(name, field.foils.table)
            for place in _strips(shape):
                values = field.sample_as_given(self.grid, place)[0]
                writer.write(f"fields/{name}", values, place)

    def _write_domain(self, writer: SolutionWriter) -> None:
        """Write the level of a domain that is no rectangle, a few rows at a time, and where it has values."""
        shape, grid = self.problem.domain.shape, self.grid
        if shape is None:
            return
        writer.domain(shape, grid)
        writer.create_common(ACTIVE, grid.nodes, "uint8")
        for place in _strips(grid.nodes):
            level = shape.level(grid, place)
            there = level < 0 if shape.staircase else level <= 0
            if shape.voxels is None:
                writer.write(LEVEL, level, place)
            writer.write(ACTIVE, there.astype(np.uint8), place)


def _strips(shape: tuple[int, ...]) -> Iterator[Slices]:
    return in_rows(tuple(slice(0, count) for count in shape), _VALUES)


class Series(Placed):
    """The solution of an equation in time; every rank has its own part.

    ``series[i]`` is the field at ``times[i]``, ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``. On several ranks `gather`, `save` and
    `to_xarray` are called by all of them together; nothing else sends anything.

    Attributes
    ----------
    problem
        What was solved.
    times
        Of the fields that were kept, the initial ones first, in units of time.
    report
        All that ``solve --json`` prints, by name.
    steps
        By name, a number for each step: ``time`` at its end, ``step``, ``iterations``, and the root mean
        squares ``time_error`` and ``solver_error`` that it is estimated to add to the error; and what flowed, was made,
        consumed and stored in it, per time, by the names of `Balance`, ``flow_left`` and so on.
    path
        The file that holds the fields, if one was asked for.
    place
        Where the parts of this rank belong in the fields: a slice per axis.
    """

    def __init__(self, marched: Marched, given_ranks: Any, path: str | PathLike | None):
        self.problem, self.report, self.place = marched.problem, marched.report, marched.place
        self.times = np.array(marched.frames.times)
        self.steps = {name: np.array(values) for name, values in marched.record.arrays().items()}
        self.path = None if path is None else Path(path)
        self._marched, self._grid = marched, marched.grid
        self._given_ranks = given_ranks
        self._told = marched.told() if path is None else None

    @property
    def status(self) -> str:
        """How it ended: ``converged_rtol``, ``interrupted``, or how the solve of a step failed."""
        return self.report["status"]

    @property
    def converged(self) -> bool:
        """Whether all steps were solved."""
        return self.status in CONVERGED

    def coordinates(self, axis: int) -> np.ndarray:
        """Return where the nodes of the fields lie along an axis, in units of domain length."""
        return Window.whole(self._grid).coordinates(self._grid, axis)

    def balance(self, number: int = -1) -> Balance:
        """Return what flowed, was made, consumed and stored until a field, by default the last; without messages.

        By the steps' discrete equations, so only what their solves leave is left over.

        Raises
        ------
        Unsupported
            If the equation is not linear, or has a mixed derivative; or a step of it was taken before balances were.
        """
        known = balance_until(self.times[self._number(number)], self.steps)
        if known is None:
            raise Unsupported(
                f"{self.report['pde']} in time has no balance: it is not linear, has a mixed derivative, or went on "
                "from a checkpoint without one"
            )
        return known

    @property
    def field(self) -> np.ndarray:
        """The last field, ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``.

        Raises
        ------
        RuntimeError
            If it lies over several ranks.
        """
        return self[-1]

    def gather(self, number: int = -1) -> np.ndarray:
        """Return a field on every rank, by default the last; all ranks together."""
        number = self._number(number)
        if self.path is not None:
            return read_solution(self.path, number).field
        whole = np.zeros(self._grid.nodes)
        whole[self.place] = self.local(number)
        with Ranks.of(self._given_ranks) as ranks:
            return whole if ranks.size == 1 else ranks.sum(whole)

    def local(self, number: int = -1) -> np.ndarray:
        """Return the part of a field that this rank has, by default of the last."""
        number = self._number(number)
        if self.path is not None:
            return read_solution(self.path, number).field[self.place]
        return self._marched.frames.part(number)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> np.ndarray:
        if self.path is None and self.report["ranks"] > 1:
            raise RuntimeError(OVER_RANKS.format(ranks=self.report["ranks"]))
        return self.gather(number)

    def _number(self, number: int) -> int:
        """Return which field it is, from the first; raise `IndexError` if there is none."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are {len(self)} fields, 0 to {len(self) - 1}, not {number}")
        return number % len(self)

    def to_xarray(self) -> Any:
        """Return all fields ``(time, y, x)``, in space ``(time, z, y, x)``, as a `DataArray`, with what is known of them.

        Raises
        ------
        ModuleNotFoundError
            If xarray is not installed.
        """
        fields = np.stack([self.gather(number) for number in range(len(self))])
        along = [self.coordinates(axis) for axis in range(len(self.place))]
        return labelled(fields, along, self.report, ("time", self.times))

    def save(self, path: str | PathLike, *, overwrite: bool = False) -> None:
        """Write a solution file with all times, as ``mosaicdd solve`` does; all ranks together.

        Parameters
        ----------
        overwrite
            Whether a file of this name that mosaicdd has not written may be replaced, too.

        Raises
        ------
        OSError
            If it cannot be written, or is not to be replaced, on all ranks; what was there before stays.
        RuntimeError
            If the march wrote the fields to a file already.
        ValueError
            If the problem's data are other ones than when it was solved.
        """
        if self._told is None:
            raise RuntimeError(f"the series was written to {self.path} and is kept there only")
        told, output = self._told, Output(path, overwrite=overwrite)
        with Ranks.of(self._given_ranks) as ranks:
            ranks.on_root(lambda: output.require_path(inputs_of(self.problem)))
            ranks.agree(lambda: require_same(told, self._marched.told()))
            self._marched.write(path, ranks)

    def __repr__(self) -> str:
        return (
            f"<Series of {self.report['pde']} on {times(self._grid.shape)} cells: {len(self)} times to "
            f"{self.times[-1]:g}, {self.status} after {self.report['steps']} steps>"
        )
