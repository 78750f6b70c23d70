"""What ``solve`` says about several problems: one report of all, and a small one of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mosaicdd.schwarz.stopping import CONVERGED

_BEST_FIRST = (
    *CONVERGED,
    "stagnated",
    "diverged_max_iterations",
    "diverged_tolerance",
    "diverged_nan",
    "interrupted",
)
_LARGEST = ("iterations", "sweeps", "update", "residual", "discrete_residual", "error_estimate")
_NOT_BEGUN = {"status": "interrupted", "iterations": 0, "sweeps": 0}
_HISTORY = ("update", "residual", "mae", "seconds")
SMALL = ("status", *_LARGEST, "outside_training_range")
"""What is said of each problem."""


@dataclass(frozen=True)
class Result:
    """How one problem ended; of a problem that was not begun, nothing but that.

    Parameters
    ----------
    report
        As that of a single problem (`report_of`).
    history
        One list per name of `History`.
    """

    report: dict = field(default_factory=lambda: dict.fromkeys(SMALL) | _NOT_BEGUN)
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _HISTORY})

    @property
    def begun(self) -> bool:
        """Whether there is anything of a solution."""
        return self.report["iterations"] > 0


def small_reports(results: Sequence[Result]) -> list[dict]:
    """Return what is said of each problem, in a list."""
    return [
        {"problem": number} | {name: result.report[name] for name in SMALL}
        for number, result in enumerate(results)
    ]


def merged_report(results: Sequence[Result]) -> dict:
    """Return the report of all: the worst status, the largest numbers, and what is common."""
    begun = [result.report for result in results if result.begun]
    statuses = [result.report["status"] for result in results]
    merged = dict(begun[0])
    merged["status"] = max(statuses, key=_BEST_FIRST.index)
    for name in _LARGEST:
        merged[name] = np.max([report[name] for report in begun]).item()  # NaN if one is
    worst = max(begun, key=lambda report: report["discrete_residual"])
    merged["certificate"] = worst["certificate"]
    if merged["outside_training_range"] is not None:
        merged["outside_training_range"] = sum(r["outside_training_range"] for r in begun)
    return merged


def many_for_people(report: dict, output: str) -> str:
    """Say in a few lines what was solved, how it ended, and where it is."""
    (nx, ny), (px, py), seconds = report["grid"], report["dims"], report["seconds"]
    problems = report["problems"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if name != "total")
    groups = f"{report['replicas']} x " * (report["replicas"] > 1)
    ranks = f"{report['ranks']} rank{'s' * (report['ranks'] > 1)} ({groups}{px}x{py})"
    each = seconds["total"] / len(problems)
    problem = (
        f"{report['pde']} on {nx}x{ny} cells by {report['local_solver']}: {len(problems)} problems, "
        f"{report['batch']} at once"
    )
    numbers = ("update", "discrete_residual", "error_estimate")
    reached = ", ".join(f"{name.replace('_', ' ')} {report[name]:.1e}" for name in numbers)
    counts = dict.fromkeys(_BEST_FIRST, 0)
    for one in problems:
        counts[one["status"]] += 1
    ended = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    spent = (
        f"{seconds['total']:.2f} s ({parts}), {each:.4f} s per problem, "
        f"{report['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    lines = [
        f"{problem}, {ranks}, {report['dtype']} on {report['device']}",
        f"{ended} after up to {report['iterations']} iterations; largest {reached}",
        spent,
        f"wrote {output}",
    ]
    if outside := report["outside_training_range"]:
        lines.insert(
            2,
            f"{outside} subdomains (of {report['subdomains']} per problem) have data rougher than the "
            "network was trained on: see --out-of-range exact, or --certify",
        )
    return "\n".join(lines)
