"""The fields that a march keeps: on the ranks, or in files, from which they go to the output at the end.

Stores number the fields of all problems, one problem after another; `Frames` are those of one.

What is said of the steps of a march.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np

from mosaicdd.axes import Slices, within
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Window
from mosaicdd.parallel.collect import Part, collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.quantities.balance import balance_until
from mosaicdd.solvers.settings import BEST_FIRST
from mosaicdd.storage.field_file import RawFrames, remove_idle_frames


@dataclass
class Record:
    """One entry per step."""

    time: list[float] = field(default_factory=list)  # at its end
    step: list[float] = field(default_factory=list)  # its length, in units of time
    iterations: list[int] = field(default_factory=list)  # of its solve
    # time_error, solver_error: estimated root mean squares of what the step and what its solve add
    # to the error; NaN where nothing is known of it yet
    time_error: list[float] = field(default_factory=list)
    solver_error: list[float] = field(default_factory=list)
    # What flowed in it, was made, consumed and stored, per time; nothing where that is not known
    balance: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.balance += [{}] * (len(self.time) - len(self.balance))  # of old checkpoints

    def add(
        self,
        time: float,
        step: float,
        iterations: int,
        time_error: float | None,
        solver_error: float,
        balance: dict[str, float],
    ) -> None:
        """Enter a step."""
        self.time.append(time)
        self.step.append(step)
        self.iterations.append(iterations)
        self.time_error.append(math.nan if time_error is None else time_error)
        self.solver_error.append(solver_error)
        self.balance.append(balance)

    @property
    def last_error(self) -> float:
        """Of the last step; 0 if there is none, or its error is not known."""
        error = self.time_error[-1] if self.time_error else math.nan
        return 0.0 if math.isnan(error) else error

    @property
    def note(self) -> str:
        """What is said of the last step as it is taken."""
        error = self.time_error[-1]
        known = "" if math.isnan(error) else f", error of the step {error:.1e}"
        return f"{self.iterations[-1]} iterations{known}"

    @property
    def unjudged(self) -> int:
        """How many of the last steps have no known error."""
        return next(
            (n for n, error in enumerate(reversed(self.time_error)) if not math.isnan(error)),
            len(self.time_error),
        )

    def judge(self, time_error: float) -> None:
        """Let the last steps have an error that was not known before."""
        for n in range(self.unjudged):
            self.time_error[-1 - n] = time_error

    def drop(self, count: int) -> None:
        """Forget the last steps."""
        for entries in vars(self).values():
            del entries[len(entries) - count :]

    def summed(self) -> dict:
        """Return what is said of all steps together."""
        known = [error for error in self.time_error if not math.isnan(error)]
        balance = balance_until(None, self.arrays())
        return {
            "steps": len(self.time),
            "time": self.time[-1] if self.time else 0.0,
            "shortest_step": min(self.step, default=None),
            "longest_step": max(self.step, default=None),
            "iterations": sum(self.iterations),
            "most_iterations": max(self.iterations, default=0),
            "time_error": sum(known) if known else None,
            "solver_error": sum(self.solver_error),
            "balance": None if balance is None else balance.described(),
        }

    def arrays(self) -> dict[str, list]:
        """Return the entries by name."""
        entries = {name: values for name, values in vars(self).items() if name != "balance"}
        names = dict.fromkeys(name for sums in self.balance for name in sums)
        return entries | {
            name: [sums.get(name, math.nan) for sums in self.balance] for name in names
        }


@dataclass(frozen=True)
class StepsEnded:
    """How the steps of a problem ended; of one that was not begun, nothing but that."""

    status: str = "interrupted"
    failure: str | None = None  # why, where more is known than the status says
    times: list[float] = field(default_factory=list)  # of the fields that were kept
    record: Record = field(default_factory=Record)

    def described(self) -> dict:
        """Return what a report says of it."""
        more = {"failure": self.failure, "frames": len(self.times)}
        return {"status": self.status, **self.record.summed(), **more}


_OF_EACH = ("status", "steps", "time", "iterations", "time_error", "solver_error", "failure")


def merged(ended: Sequence[StepsEnded]) -> dict:
    """Return what is said of the steps of all problems; of several the worst of each number, and some of each."""
    each = [member.described() for member in ended]
    if len(each) == 1:
        return each[0]
    begun = [said for said in each if said["steps"]]

    def known(name: str) -> list:
        return [said[name] for said in begun if said[name] is not None]

    return {
        "status": max((said["status"] for said in each), key=BEST_FIRST.index),
        "steps": max(known("steps"), default=0),
        "time": min(said["time"] for said in each),
        "shortest_step": min(known("shortest_step"), default=None),
        "longest_step": max(known("longest_step"), default=None),
        "iterations": sum(known("iterations")),
        "most_iterations": max(known("most_iterations"), default=0),
        "time_error": max(known("time_error"), default=None),
        "solver_error": max(known("solver_error"), default=0.0),
        "balance": None,
        "failure": next((why for said in each if (why := said["failure"])), None),
        "frames": max(said["frames"] for said in each),
        "problems": [
            {"problem": number} | {name: said[name] for name in _OF_EACH}
            for number, said in enumerate(each)
        ],
    }


class Wanted:
    """What a rank has of the part of the fields that is kept.

    ``own``: the nodes of the grid that the rank owns.

    Attributes
    ----------
    own
        These nodes.
    place
        Where its part lies in a field that is kept; nothing, if it has none of the window.
    """

    def __init__(self, grid: Grid, window: Window, own: Slices):
        self.grid, self.window, self.own = grid, window, own
        self._nodes = window.clip(own)
        self.there = any(p.start < p.stop for p in self._nodes)
        empty = tuple(slice(0, 0) for _ in own)
        self.place: Slices = window.within(self._nodes) if self.there else empty

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its part."""
        return tuple(p.stop - p.start for p in self.place)

    def of(self, owned: np.ndarray) -> np.ndarray:
        """Return its part of values at the nodes that it owns, a view."""
        return owned[within(self._nodes, self.own)] if self.there else np.empty(self.shape)


class MemoryFrames:
    """Each rank keeps its parts of fields."""

    def __init__(self, wanted: Wanted):
        self.wanted = wanted
        self._parts: dict[int, np.ndarray] = {}

    def write(self, number: int, owned: np.ndarray) -> None:
        """Take a field, of which each rank gives the nodes that it owns."""
        self._parts[number] = self.wanted.of(owned).copy()

    def keep(self, count: int) -> None:
        """Drop all but the first ones."""
        self._parts = {number: part for number, part in self._parts.items() if number < count}

    def part(self, number: int) -> np.ndarray:
        """Return what this rank has of a field."""
        return self._parts[number]

    def parts(self, number: int | None) -> list[Part]:
        """Return what this rank hands over of a field, which all together make up; NaN of one that was not reached."""
        wanted = self.wanted
        if not wanted.there:
            return []
        whole = number is not None
        return [(self._parts[number] if whole else np.full(wanted.shape, np.nan), wanted.place)]

    def end(self, *, keep: bool) -> None:
        """Keep all: there is nothing else."""


class FileFrames:
    """The root writes fields to ``OUTPUT.frames``, or each rank its part, to ``OUTPUT.frames.3``; as `MemoryFrames`.

    All ranks make it and call its methods together, but for `part` and `end`.
    ``apart``: whether each rank writes its part. The root has ``OUTPUT.frames``, which is that of one run, in any case.
    """

    def __init__(self, output: str | PathLike, ranks: Ranks, wanted: Wanted, *, apart: bool):
        self.wanted = wanted
        self._ranks, self._apart, self._path = ranks, apart, Path(f"{output}.frames")
        self._opened: list[RawFrames] = []  # of this rank, one or none

        def begin() -> None:
            shape = wanted.shape if apart else wanted.window.shape
            self._opened.append(RawFrames(self._path, shape))

        def follow() -> None:
            if apart and not ranks.is_root and wanted.there:
                self._opened.append(RawFrames(f"{self._path}.{ranks.rank}", wanted.shape))

        ranks.on_root(begin)
        ranks.run_on_all(follow)

    def write(self, number: int, owned: np.ndarray) -> None:
        """Take a field."""
        wanted = self.wanted
        part, whole = wanted.of(owned), tuple(slice(0, n) for n in wanted.shape)

        def write(values: np.ndarray, place: tuple[slice, ...]) -> None:
            for file in self._opened:
                file.write(number, values, place)

        if self._apart:
            self._ranks.run_on_all(lambda: write(part, whole))
        else:
            parts: list[Part] = [(part, wanted.place)] if wanted.there else []
            collect(self._ranks, parts, np.float64, write)

    def keep(self, count: int) -> None:
        """Drop all but the first ones; raise `ValueError` on all ranks, if a file has fewer."""

        def keep() -> None:
            for file in self._opened:
                file.keep(count)

        self._ranks.run_on_all(keep)

    def part(self, number: int) -> np.ndarray:
        """Return what this rank has of a field, where each writes its part."""
        return self._opened[0].read(number) if self._opened else np.empty(self.wanted.shape)

    def parts(self, number: int | None) -> list[Part]:
        """Return what this rank hands over of a field, NaN of one that was not reached."""
        wanted = self.wanted
        if not (wanted.there if self._apart else self._opened):
            return []
        shape = wanted.shape if self._apart else wanted.window.shape
        place = wanted.place if self._apart else tuple(slice(0, nodes) for nodes in shape)
        field = np.full(shape, np.nan) if number is None else self._opened[0].read(number)
        return [(field, place)]

    def end(self, *, keep: bool) -> None:
        """Close the files, and remove them if they are not to be kept; a second time nothing is done."""
        while self._opened:  # another run may have the next one of this name
            file = self._opened.pop()
            if not keep and self._ranks.is_root:  # those of an earlier run on more ranks, too
                with suppress(OSError):
                    remove_idle_frames(self._path)
            with suppress(OSError):  # all that it held is elsewhere
                file.close() if keep else file.remove()


FrameStore = MemoryFrames | FileFrames


class Frames:
    """The fields of one problem that are kept, whose numbers begin at ``first`` in the store; all ranks together.

    ``times``: of these, in units of time.
    """

    def __init__(self, store: FrameStore, first: int = 0):
        self.times: list[float] = []
        self._store, self._first = store, first

    def add(self, time: float, owned: np.ndarray) -> None:
        """Take a field, of which each rank gives the nodes that it owns."""
        number = self._first + len(self.times)
        if number == 0:
            self._store.keep(0)  # what an earlier run has left
        self._store.write(number, owned)
        self.times.append(time)

    def keep(self, count: int) -> None:
        """Drop all but the first ones; raise `ValueError` on all ranks, if the store has fewer."""
        self._store.keep(self._first + count)
        del self.times[count:]
