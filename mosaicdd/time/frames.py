"""What is said of the steps of a march, and the values that are kept: on the ranks, or in a file that the root writes."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike

import numpy as np

from mosaicdd.lattice.axes import Slices
from mosaicdd.parallel.collect import collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.quantities.balance import Balance, balance_until
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.storage.series_file import RawFrames


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
        balance: Balance | None,
    ) -> None:
        """Enter a step."""
        self.time.append(time)
        self.step.append(step)
        self.iterations.append(iterations)
        self.time_error.append(math.nan if time_error is None else time_error)
        self.solver_error.append(solver_error)
        self.balance.append({} if balance is None else balance.numbers())

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


Sink = Callable[[np.ndarray, tuple[slice, ...]], None]
"""``sink(values, place)``."""


class MemoryFrames:
    """Each rank keeps its parts of fields; all ranks call its methods together, but for `part` and `end`.

    ``times``: of the fields, in units of time.
    """

    def __init__(self, own: Slices):
        self.times: list[float] = []
        self._parts: list[np.ndarray] = []
        self._own = own

    def add(self, time: float, own: np.ndarray) -> None:
        """Take a field, of which each rank gives the nodes that it owns."""
        self.times.append(time)
        self._parts.append(own.copy())

    def keep(self, count: int) -> None:
        """Drop all but the first ones."""
        del self.times[count:], self._parts[count:]

    def part(self, number: int) -> np.ndarray:
        """Return the nodes of a field that this rank owns."""
        return self._parts[number]

    def to_root(self, ranks: Ranks, number: int, sink: Sink) -> None:
        """Hand the parts of a field to a function on the root."""
        part = self._parts[number], self._own
        collect(ranks, [part], np.float64, len(self._own), sink)

    def end(self, *, keep: bool) -> None:
        """Keep all: there is nothing else."""


class FileFrames:
    """The root writes fields to ``OUTPUT.frames``, from which they go to the output at the end; as `MemoryFrames`."""

    def __init__(self, output: str | PathLike, share: FieldShare):
        self.times: list[float] = []
        self._share = share
        self._opened: list[RawFrames] = []  # on the root

        def begin() -> None:
            self._opened.append(RawFrames(f"{output}.frames", share.grid.nodes))

        share.ranks.on_root(begin)

    @property
    def _file(self) -> RawFrames:
        """The file, on the root."""
        return self._opened[0]

    def add(self, time: float, own: np.ndarray) -> None:
        """Take a field."""
        number = len(self.times)
        self.keep(number)

        def write(values: np.ndarray, place: tuple[slice, ...]) -> None:
            self._file.write(number, values, place)

        collect(self._share.ranks, [(own, self._share.own)], np.float64, own.ndim, write)
        self.times.append(time)

    def keep(self, count: int) -> None:
        """Drop all but the first ones, in the file, too; raise `ValueError` on all ranks, if the file has fewer."""
        self._share.ranks.on_root(lambda: self._file.keep(count))
        del self.times[count:]

    def part(self, number: int) -> np.ndarray:
        """Return the nodes of a field that this rank owns."""
        return self._file.read(number)[self._share.own]

    def to_root(self, ranks: Ranks, number: int, sink: Sink) -> None:
        """Hand a field to a function on the root."""
        whole: Slices = tuple(slice(0, nodes) for nodes in self._share.grid.nodes)
        ranks.on_root(lambda: sink(self._file.read(number), whole))

    def end(self, *, keep: bool) -> None:
        """Close the file, and remove it if it is not to be kept; a second time nothing is done."""
        while self._opened:  # another run may have the next one of this name
            file = self._opened.pop()
            with suppress(OSError):  # all that it held is elsewhere
                file.close() if keep else file.remove()


Frames = MemoryFrames | FileFrames
