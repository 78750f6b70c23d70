"""What is said of the steps of a march."""

import math
from dataclasses import asdict, dataclass, field


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

    def add(
        self,
        time: float,
        step: float,
        iterations: int,
        time_error: float | None,
        solver_error: float,
    ) -> None:
        """Enter a step."""
        self.time.append(time)
        self.step.append(step)
        self.iterations.append(iterations)
        self.time_error.append(math.nan if time_error is None else time_error)
        self.solver_error.append(solver_error)

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
        return {
            "steps": len(self.time),
            "time": self.time[-1] if self.time else 0.0,
            "shortest_step": min(self.step, default=None),
            "longest_step": max(self.step, default=None),
            "iterations": sum(self.iterations),
            "most_iterations": max(self.iterations, default=0),
            "time_error": sum(known) if known else None,
            "solver_error": sum(self.solver_error),
        }

    def arrays(self) -> dict[str, list]:
        """Return the entries by name."""
        return asdict(self)
