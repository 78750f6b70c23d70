"""Reports of a solve: one of all its problems, and a small one of each.

A report is what ``solve --json`` prints, the solution file keeps and `Solution.report` holds: names
and plain values, the same on all ranks.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.outcome import History, Outcome
from mosaicdd.solvers.settings import BEST_FIRST, RESUMABLE

_LARGEST = (
    "iterations",
    "sweeps",
    "update",
    "relative_update",
    "residual",
    "discrete_residual",
    "error_estimate",
    "energy_estimate",
)
_SMALL = ("status", *_LARGEST, "rounding", "imbalance", "outside_training_range", "failure")
_NOT_BEGUN = {"status": "interrupted", "iterations": 0, "sweeps": 0}


@dataclass(frozen=True)
class Result:
    """The result of one problem; of one that was not begun, nothing but that."""

    # What is said of it
    report: dict = field(
        default_factory=lambda: dict.fromkeys((*_SMALL, "certificate")) | _NOT_BEGUN
    )
    history: History = field(default_factory=History)  # how its iteration went

    @property
    def begun(self) -> bool:
        """Whether there is anything of a solution."""
        return self.report["iterations"] > 0


def result_of(ranks: Ranks, outcome: Outcome) -> Result:
    """Return the result of an outcome; called by all ranks that solved it."""
    outside = None
    if outcome.outside is not None:
        outside = int(ranks.sum(np.array([float(outcome.outside.sum())]))[0])
    report = {
        "status": outcome.status,
        "iterations": outcome.iterations,
        "sweeps": outcome.sweeps,
        "update": outcome.update,
        "relative_update": outcome.update / outcome.size if outcome.size else outcome.update,
        "residual": outcome.residual,
        "discrete_residual": outcome.discrete_residual,
        "rounding": outcome.rounding,
        "error_estimate": outcome.error_estimate.rms,
        "energy_estimate": outcome.error_estimate.energy,
        "outside_training_range": outside,
        "imbalance": outcome.imbalance,
        "failure": outcome.failure,
        "certificate": outcome.certificate and asdict(outcome.certificate),
    }
    return Result(report, outcome.history)


def resumable(results: Sequence[Result]) -> bool:
    """Say whether another run may go on with some of them."""
    return any(result.report["status"] in RESUMABLE for result in results)


def merged_results(results: Sequence[Result]) -> dict:
    """Return the report of all problems: the worst status, the largest numbers; and of each."""
    begun = [result.report for result in results if result.begun]
    statuses = [result.report["status"] for result in results]
    merged = {"status": max(statuses, key=BEST_FIRST.index)}
    for name in _LARGEST:
        merged[name] = _largest([report[name] for report in begun])
    rounding = [report["rounding"] for report in begun if report["rounding"] is not None]
    merged["rounding"] = max(rounding, default=None)
    merged["imbalance"] = _largest([report["imbalance"] for report in begun])
    merged["failure"] = next((why for report in begun if (why := report["failure"])), None)
    worst = max(begun, key=lambda report: report["discrete_residual"] or 0.0)
    merged["certificate"] = worst["certificate"]
    outside = [report["outside_training_range"] for report in begun]
    merged["outside_training_range"] = None if None in outside else sum(outside)
    if len(results) > 1:
        merged["problems"] = [
            {"problem": number} | {name: result.report[name] for name in _SMALL}
            for number, result in enumerate(results)
        ]
    return merged


def _largest(values: list) -> float | int | None:
    """Return the largest number: NaN if one is, None where they were not measured."""
    if None in values:
        return None
    largest = next((value for value in values if math.isnan(value)), None) or max(values)
    return largest.item() if isinstance(largest, np.generic) else largest


def seconds_spent(
    clock: Stopwatch, begun: float, setup: float, solved: dict[str, float], before: dict[str, float]
) -> dict[str, float]:
    """Return the seconds of this rank by part since a call began.

    Parameters
    ----------
    begun
        When, by `time.perf_counter`.
    setup, solved
        Seconds of the set-up, and of iteration, estimate and assembly, writing included.
    before
        What the clock had measured by then.
    """
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in clock.seconds.items()}
    parts = {"setup": setup} | solved | {"write": spent.get("write", 0.0)}
    parts["assemble"] = max(parts["assemble"] - parts["write"], 0.0)  # clocks are not exact
    if "points" in spent:
        parts["points"] = spent["points"]
    return parts | {"total": time.perf_counter() - begun}


def parts_of_ranks(ranks: Ranks, clock: Stopwatch) -> dict[str, dict[str, float]]:
    """Return the seconds of each part of the work, mean and largest over the ranks."""
    gathered = ranks.allgather(clock.seconds)
    names = sorted({name for seconds in gathered for name in seconds})
    by_name = {name: [seconds.get(name, 0.0) for seconds in gathered] for name in names}
    return {
        name: {"mean": sum(values) / len(values), "max": max(values)}
        for name, values in by_name.items()
    }


def described(report: dict) -> list[str]:
    """Describe a report in three lines: the problem, its end and errors, the seconds."""
    return [_what(report), _how_it_ended(report), seconds_described(report)]


def _what(report: dict) -> str:
    cells, dims = ("x".join(map(str, report[name])) for name in ("grid", "dims"))
    groups = f"{report['replicas']} x " * (report["replicas"] > 1)
    ranks = f"{report['ranks']} rank{'s' * (report['ranks'] > 1)} ({groups}{dims})"
    many = ""
    if "problems" in report:
        many = f": {len(report['problems'])} problems, {report['batch']} at once"
    what = (
        f"{report['pde']} on {cells} cells by {report['local_solver']}{many}, {ranks}, "
        f"{report['dtype']} on {report['device']}"
    )
    return what if report.get("domain") is None else f"{what}\ndomain {report['domain']}"


def _how_it_ended(report: dict) -> str:
    numbers = ("relative_update", "discrete_residual", "error_estimate")
    said = {name: f"{report[name]:.1e}" for name in numbers if report[name] is not None}
    if report["rounding"] is not None:
        said["discrete_residual"] += f" (rounding to float64 alone: {report['rounding']:.1e})"
    reached = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in said.items())
    if "problems" in report:
        counts = Counter(row["status"] for row in report["problems"])
        statuses = [status for status in BEST_FIRST if counts[status]]
        ended = ", ".join(f"{counts[status]} {status}" for status in statuses)
        ended += f" after up to {report['iterations']} iterations; largest {reached}"
    else:
        ended = f"{report['status']} after {report['iterations']} iterations: {reached}"
    if report["failure"] is not None:
        ended += f"\n{report['failure']}"
    if report["imbalance"] is not None:
        ended += (
            f"\nno value is given on any side: the mean is zero; {report['imbalance']:.1e} of sources and "
            "fluxes were left over, and taken from the sources evenly"
        )
    certificate = report["certificate"]
    if certificate and report["status"].startswith("converged"):
        ended += (
            f"\ncertified to a discrete residual of {certificate['rtol']:.1e} by "
            f"{certificate['iterations']} iterations with the exact local solver"
        )
    return ended


def seconds_described(report: dict) -> str:
    """Describe the seconds of the parts of a solve, and its memory."""
    seconds = report["seconds"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if name != "total")
    each = ""
    if "problems" in report:
        each = f", {seconds['total'] / len(report['problems']):.4f} s per problem"
    return (
        f"{seconds['total']:.2f} s ({parts}){each}, {report['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
