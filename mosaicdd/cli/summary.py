"""What ``solve`` tells people at its end, and when it is called away."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mosaicdd.schwarz.settings import BEST_FIRST

if TYPE_CHECKING:
    from mosaicdd.schwarz.solution import Solution


def summary(solution: "Solution", output: str) -> str:
    """Say in a few lines what was solved, how it ended, how good it is, and where it is."""
    report = solution.report
    lines = [_what(report), _how_it_ended(report), _seconds(report)]
    if outside := report["outside_training_range"]:
        each = f" (of {report['subdomains']} per problem)" if "problems" in report else ""
        of = "" if each else f"of {report['subdomains']} "
        lines.insert(
            2,
            f"{outside} {of}subdomains{each} have data rougher than the network was trained on: see "
            "--out-of-range exact, or --certify",
        )
    if report["status"] == "interrupted" and solution.checkpoint is not None:
        lines.append(
            f"interrupted; the iteration is kept in {solution.checkpoint}: the same command with "
            "--resume goes on from there"
        )
    return "\n".join([*lines, f"wrote {output}"])


def interrupted(output: str, checkpoint: Path | None) -> str:
    """Return what is said at once when a signal asks for the end."""
    kept = "" if checkpoint is None else f" and {checkpoint}"
    return f"interrupted: finishing this iteration, writing {output}{kept}"


def _what(report: dict) -> str:
    (nx, ny), (px, py) = report["grid"], report["dims"]
    groups = f"{report['replicas']} x " * (report["replicas"] > 1)
    ranks = f"{report['ranks']} rank{'s' * (report['ranks'] > 1)} ({groups}{px}x{py})"
    many = ""
    if "problems" in report:
        many = f": {len(report['problems'])} problems, {report['batch']} at once"
    return (
        f"{report['pde']} on {nx}x{ny} cells by {report['local_solver']}{many}, {ranks}, "
        f"{report['dtype']} on {report['device']}"
    )


def _how_it_ended(report: dict) -> str:
    numbers = ("relative_update", "discrete_residual", "error_estimate")
    reached = ", ".join(
        f"{name.replace('_', ' ')} {report[name]:.1e}"
        for name in numbers
        if report[name] is not None
    )
    if "problems" in report:
        counts = Counter(one["status"] for one in report["problems"])
        statuses = [status for status in BEST_FIRST if counts[status]]
        ended = ", ".join(f"{counts[status]} {status}" for status in statuses)
        ended += f" after up to {report['iterations']} iterations; largest {reached}"
    else:
        ended = f"{report['status']} after {report['iterations']} iterations: {reached}"
    certificate = report["certificate"]
    if certificate and report["status"].startswith("converged"):
        ended += (
            f"\ncertified to a discrete residual of {certificate['rtol']:.1e} by "
            f"{certificate['iterations']} iterations with the exact local solver"
        )
    return ended


def _seconds(report: dict) -> str:
    seconds = report["seconds"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if name != "total")
    each = ""
    if "problems" in report:
        each = f", {seconds['total'] / len(report['problems']):.4f} s per problem"
    return (
        f"{seconds['total']:.2f} s ({parts}){each}, {report['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
