"""What is said of the steps of a march."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mosaicdd.quantities.balance import balance_until
from mosaicdd.solvers.settings import BEST_FIRST


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
