"""Records of steps, and fields of a march, on the ranks or in files until its output is written."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mosaicdd.parallel.collect import Part, collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.quantities.balance import balance_until
from mosaicdd.solvers.settings import BEST_FIRST, Output
from mosaicdd.storage.field_file import ArrayFrames, RawFrames, remove_idle_frames
from mosaicdd.storage.solution_writer import RankPart

_PER_STEP = "time", "step", "iterations", "time_error", "solver_error", "balance"


@dataclass
class Record:
    """The steps of a problem and their end; of one that was not begun, nothing but that."""

    # One entry per step: the time at its end, its length, the iterations of its solve
    time: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    # Estimated root mean squares of what the step and what its solve add to the error; NaN where nothing is known of it yet
    time_error: list[float] = field(default_factory=list)
    solver_error: list[float] = field(default_factory=list)
    # What flowed in it, was made, consumed and stored, per time; nothing where that is not known
    balance: list[dict[str, float]] = field(default_factory=list)
    frames: list[float] = field(default_factory=list)  # times of the fields that were kept
    status: str = "interrupted"
    failure: str | None = None  # why, where more is known than the status says

    def add(self, **entries: float | dict[str, float]) -> None:
        """Enter a step."""
        for name in _PER_STEP:
            vars(self)[name].append(entries[name])

    @property
    def last_error(self) -> float:
        """The error of the last step; 0 if there is none, or it is not known."""
        error = self.time_error[-1] if self.time_error else math.nan
        return 0.0 if math.isnan(error) else error

    @property
    def note(self) -> str:
        """The remark on the last step as it is taken."""
        error = self.time_error[-1]
        known = "" if math.isnan(error) else f", error of the step {error:.1e}"
        return f"{self.iterations[-1]} iterations{known}"

    @property
    def unjudged(self) -> int:
        """The number of the last steps that have no known error."""
        return next(
            (n for n, error in enumerate(reversed(self.time_error)) if not math.isnan(error)),
            len(self.time_error),
        )

    def judge(self, time_error: float) -> None:
        """Enter the error of the last steps, which was not known before."""
        for n in range(self.unjudged):
            self.time_error[-1 - n] = time_error

    def drop(self, count: int) -> None:
        """Forget the last steps."""
        for name in _PER_STEP:
            entries = vars(self)[name]
            del entries[len(entries) - count :]

    def described(self) -> dict:
        """Return the report of all steps together."""
        known = [error for error in self.time_error if not math.isnan(error)]
        balance = balance_until(None, self.arrays())
        return {
            "status": self.status,
            "steps": len(self.time),
            "time": self.time[-1] if self.time else 0.0,
            "shortest_step": min(self.step, default=None),
            "longest_step": max(self.step, default=None),
            "iterations": sum(self.iterations),
            "most_iterations": max(self.iterations, default=0),
            "time_error": sum(known) if known else None,
            "solver_error": sum(self.solver_error),
            "balance": None if balance is None else balance.described(),
            "failure": self.failure,
            "frames": len(self.frames),
        }

    def arrays(self) -> dict[str, list]:
        """Return the entries of the steps by name."""
        entries = {name: vars(self)[name] for name in _PER_STEP if name != "balance"}
        names = dict.fromkeys(name for sums in self.balance for name in sums)
        return entries | {
            name: [sums.get(name, math.nan) for sums in self.balance] for name in names
        }


_OF_EACH = ("status", "steps", "time", "iterations", "time_error", "solver_error", "failure")


def merged(records: Sequence[Record]) -> dict:
    """Return the report of the steps of all problems; of several the worst of each number, and some of each."""
    each = [record.described() for record in records]
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


class FrameStore:
    """The fields of a march, those of one problem after another; all ranks make it and call `write` and `keep` together.

    Without an output each rank keeps its parts in memory. Else they are in files until the output is written: the root
    writes ``OUTPUT.frames``, or with shards each rank its part, the others to ``OUTPUT.frames.3``. The root has
    ``OUTPUT.frames`` open in any case, which is that of one run.

    ``part``: what this rank has of a field.
    """

    def __init__(self, part: RankPart, ranks: Ranks, output: Output | None):
        self.part = part
        self._apart = output is None or output.shards  # whether each rank keeps its part
        self._path = None if output is None else Path(f"{output.path}.frames")
        self._file: RawFrames | ArrayFrames | None = None
        if self._path is None:
            self._file = ArrayFrames(part.shape)
            return
        self._ranks = ranks

        def begin() -> None:
            shape = part.shape if self._apart else part.window.shape
            self._file = RawFrames(str(self._path), shape)

        def follow() -> None:
            if self._apart and not ranks.is_root and all(part.shape):
                self._file = RawFrames(f"{self._path}.{ranks.rank}", part.shape)

        ranks.only_root(begin)
        ranks.run_on_all(follow)

    def write(self, number: int, owned: np.ndarray) -> None:
        """Store a field, of which each rank gives the nodes that it owns."""
        part, file = self.part, self._file
        values = part.of(owned)
        if self._apart:
            whole = tuple(slice(0, n) for n in part.shape)
            self._on_all(lambda: file and file.write(number, values, whole))
            return

        def write(values: np.ndarray, place: tuple[slice, ...]) -> None:
            if file is not None:
                file.write(number, values, place)

        parts: list[Part] = [(values, part.place)] if all(part.shape) else []
        collect(self._ranks, parts, np.float64, write)

    def keep(self, count: int) -> None:
        """Drop all but the first ones; raise `ValueError` on all ranks, if a file has fewer."""
        self._on_all(lambda: self._file and self._file.keep(count))

    def _on_all(self, function: Callable[[], object]) -> None:
        """Call a function on every rank; an error of files is raised on all."""
        if self._path is None:
            function()
        else:
            self._ranks.run_on_all(function)

    def local(self, number: int) -> np.ndarray:
        """Return the part of a field on this rank, where each keeps its part."""
        return np.empty(self.part.shape) if self._file is None else self._file.read(number)

    def parts(self, number: int | None) -> list[Part]:
        """Return the parts of a field that this rank hands over, NaN of one that was not reached."""
        part = self.part
        if self._file is None or (self._apart and not all(part.shape)):
            return []
        shape = part.shape if self._apart else part.window.shape
        place = part.place if self._apart else tuple(slice(0, nodes) for nodes in shape)
        field = np.full(shape, np.nan) if number is None else self._file.read(number)
        return [(field, place)]

    def end(self, *, keep: bool) -> None:
        """Close the files, and remove them if they are not to be kept; a second time nothing is done."""
        if (
            self._path is None or self._file is None
        ):  # another run may have the next one of this name
            return
        file, self._file = self._file, None
        if not keep and self._ranks.is_root:  # those of an earlier run on more ranks, too
            with suppress(OSError):
                remove_idle_frames(self._path)
        with suppress(OSError):  # all that it held is elsewhere
            file.close() if keep else file.remove()
