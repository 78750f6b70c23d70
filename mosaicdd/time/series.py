"""Series of a march: fields at some times, their estimated errors, and their solution file."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.axes import Slices, moved, times
from mosaicdd.grid.window import Placed
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fingerprint import Fingerprint, fingerprint_but_source, require_same
from mosaicdd.problems.limits import just_before
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.quantities.balance import Balance, balance_until
from mosaicdd.report.presented import labelled
from mosaicdd.solution.kept import OVER_RANKS
from mosaicdd.solvers.settings import CONVERGED, Output
from mosaicdd.storage.domain_file import ACTIVE
from mosaicdd.storage.inputs import inputs_of
from mosaicdd.storage.shards import require_shard_folder, write_shards
from mosaicdd.storage.solution_file import read_array
from mosaicdd.storage.solution_writer import SolutionWriter, in_rows_of
from mosaicdd.time.data import CoefficientsInTime, SidesInTime
from mosaicdd.time.frames import FrameStore, Record
from mosaicdd.unsupported import Unsupported


class Series(Placed):
    """The solution of an equation in time; every rank has its own part.

    ``series[i]`` is the field at ``times[i]``, ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``, or the window that was
    asked for; of several problems ``(n, ny + 1, nx + 1)``, NaN where one did not go so far. On several ranks `gather`, `save` and
    `to_xarray` are called by all of them together; nothing else sends anything.

    Attributes
    ----------
    problem
        What was solved.
    times
        Of the fields that were kept, the initial ones first, in units of time; the same of all problems.
    report
        All that ``solve --json`` prints, by name.
    steps
        By name, a number for each step: ``time`` at its end, ``step``, ``iterations``, and the root mean
        squares ``time_error`` and ``solver_error`` that it is estimated to add to the error; and what flowed, was made,
        consumed and stored in it, per time, by the names of `Balance`, ``flow_left`` and so on. Of several problems
        ``(n, steps)``, NaN after the last of one.
    path
        The file that holds the fields, if one was asked for.
    place
        Where the parts of this rank belong in the fields: a slice per axis, of several problems all of them first.
    """

    def __init__(
        self,
        problem: Problem,
        store: FrameStore,
        most: int,  # fields of a problem, whose numbers in the store follow each other
        report: dict,
        records: Sequence[Record],  # how each problem went, and when its fields were kept
        given_ranks: Any,
        path: str | PathLike | None,
    ):
        self.problem, self.report, self.problems = problem, report, len(records)
        several = (slice(0, self.problems),) if self.problems > 1 else ()
        self.place: Slices = (*several, *store.part.place)
        self.times = np.array(max((record.frames for record in records), key=len))
        each = [record.arrays() for record in records]
        self.steps = in_rows_of(each) if several else {n: np.array(v) for n, v in each[0].items()}
        self.path = None if path is None else Path(path)
        self._store, self._most, self._records, self._part = store, most, records, store.part
        self._given_ranks = given_ranks
        self._told = self._told_now() if path is None else None

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
        return self._part.window.coordinates(self._part.grid, axis)

    def balance(self, number: int = -1) -> Balance | list[Balance]:
        """Return the balance until a field, by default the last; without messages.

        Of several problems a list.

        By the steps' discrete equations, so only what their solves leave is left over.

        Raises
        ------
        Unsupported
            If the equation is not linear, or has a mixed derivative; or a step of it was taken before balances were.
        """
        time = self.times[self._number(number)]
        each = []
        for record in self._records:
            known = balance_until(time, record.arrays())
            if known is None:
                raise Unsupported(
                    f"{self.report['pde']} in time has no balance: it is not linear, has a mixed derivative, or no step "
                    "was taken"
                )
            each.append(known)
        return each if self.problems > 1 else each[0]

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
            return self._stored(number)
        several = (self.problems,) if self.problems > 1 else ()
        whole = np.zeros((*several, *self._part.window.shape))
        whole[self.place] = self.local(number)
        with Ranks.of(self._given_ranks) as ranks:
            return whole if ranks.size == 1 else ranks.sum(whole)

    def local(self, number: int = -1) -> np.ndarray:
        """Return the part of a field that this rank has, by default of the last."""
        number = self._number(number)
        if self.path is not None:
            return self._stored(number)[self.place]
        each = []
        for problem, record in enumerate(self._records):
            if number < len(record.frames):
                each.append(self._store.local(problem * self._most + number))
            else:
                each.append(np.full(self._part.shape, np.nan))
        return np.stack(each) if self.problems > 1 else each[0].copy()

    def _stored(self, number: int) -> np.ndarray:
        """Return a field of the file."""
        if self.path is None:
            raise RuntimeError("the fields are in memory")
        path = self.path
        each = [read_array(path, "solution", problem, number) for problem in range(self.problems)]
        return np.stack(each) if self.problems > 1 else each[0]

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> np.ndarray:
        if self.path is None and self.report["ranks"] > 1:
            raise RuntimeError(OVER_RANKS.format(ranks=self.report["ranks"]))
        return self.gather(number)

    def _number(self, number: int) -> int:
        """Return the number of a field, from the first; raise `IndexError` if there is none."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are {len(self)} fields, 0 to {len(self) - 1}, not {number}")
        return number % len(self)

    def to_xarray(self) -> Any:
        """Return all fields ``(time, y, x)``, in space ``(time, z, y, x)``, as a `DataArray` with the report.

        Of several problems ``(time, problem, y, x)``.

        Raises
        ------
        ModuleNotFoundError
            If xarray is not installed.
        """
        fields = np.stack([self.gather(number) for number in range(len(self))])
        along = [self.coordinates(axis) for axis in range(len(self._part.grid.shape))]
        several = [("problem", None)] if self.problems > 1 else []
        return labelled(fields, along, self.report, [("time", self.times), *several])

    def save(self, path: str | PathLike, *, shards: bool = False, overwrite: bool = False) -> None:
        """Write a solution file with all times, as ``mosaicdd solve`` does; all ranks together.

        Parameters
        ----------
        shards
            Whether every rank writes its part of the fields to a file of its own.
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
        told, output = self._told, Output(path, shards=shards, overwrite=overwrite)
        with Ranks.of(self._given_ranks) as ranks:
            ranks.on_root(lambda: output.require_path(inputs_of(self.problem)))
            ranks.run_on_all(lambda: require_same(told, self._told_now()))
            if shards:
                ranks.on_root(lambda: require_shard_folder(path))
            self.write(path, ranks, shards=shards)

    @property
    def _last(self) -> Problem:
        """The problem with the coefficients and the values on its sides at the end; its source is not written."""
        end = just_before(self.times[-1], 0.0)
        sides = SidesInTime(self.problem.conditions)(end)
        return CoefficientsInTime(self.problem)(end).with_sides(sides).with_fields(f=0.0)

    def _told_now(self) -> Fingerprint:
        """Return the fingerprint of the data that are written; of values on sides those at the end."""
        return fingerprint_but_source(self._last, self._part.grid, self._part.own)

    def write(self, path: str | PathLike, ranks: Ranks, *, shards: bool) -> None:
        """Write the file that `save` names, without its checks."""
        last, part, shape = self._last, self._part, self.problem.domain.shape
        boundaries, shares = last.boundaries(part.grid), None
        if shards:
            place = slice(0, len(self)), *self.place
            shares = write_shards(str(path), ranks, self._parts(), place, "float64", nullcontext())
        each = boundaries * (self.problems // len(boundaries))
        with SolutionWriter(path, part, each, last, ranks=ranks) as writer:
            writer.begin(times=self.times.tolist(), shards=shares)
            if not shards:
                writer.fill("solution", self._parts())
            if shape is not None:  # where the first field has values, as all others have
                writer.create(ACTIVE, part.window.shape, "uint8", common=True)
                begins, parts = part.window.start, self._store.parts(0)
                at = ((has_values(shape, part.grid, moved(p, begins), v), p) for v, p in parts)
                writer.fill(ACTIVE, ((flags.astype(np.uint8), place) for flags, place in at))
            writer.inputs(part.own)
            writer.describe(self.report, [record.arrays() for record in self._records])

    def _parts(self) -> Iterator[Part]:
        """Yield what this rank hands over of all fields, NaN of those that their problems did not reach."""
        for at in range(len(self)):
            for problem, record in enumerate(self._records):
                several = [slice(problem, problem + 1)] if self.problems > 1 else []
                leading = slice(at, at + 1), *several
                number = problem * self._most + at if at < len(record.frames) else None
                for values, place in self._store.parts(number):
                    yield values[(None,) * len(leading)], (*leading, *place)

    def __repr__(self) -> str:
        several = f"{self.problems} problems, " if self.problems > 1 else ""
        return (
            f"<Series of {self.report['pde']} on {times(self._part.grid.shape)} cells: {several}{len(self)} times to "
            f"{self.times[-1]:g}, {self.status} after {self.report['steps']} steps>"
        )
