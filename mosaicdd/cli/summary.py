"""What ``solve`` tells people at its end, and when it is called away."""

from pathlib import Path
from typing import TYPE_CHECKING

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation

if TYPE_CHECKING:
    from mosaicdd.schwarz.results.solution import Solution


def summary(solution: "Solution", output: str, boundary: str | None) -> str:
    """Say in a few lines what was solved, how it ended, how good it is, and where it is.

    Parameters
    ----------
    boundary
        What was given on sides that have no condition of their own.
    """
    from mosaicdd.schwarz.results.report import described

    report = solution.report
    lines = described(report)
    if boundary is not None:
        lines[0] += f", boundary {boundary}"
    if outside := report["outside_training_range"]:
        each = f" (of {report['subdomains']} per problem)" if "problems" in report else ""
        of = "" if each else f"of {report['subdomains']} "
        said = (
            "are outside of the network's range, or along the edge: solved by Newton's method"
            if isinstance(solution.problem.equation, NonlinearEquation)
            else "have data rougher than the network was trained on: see --out-of-range exact, or --certify"
        )
        lines.insert(2, f"{outside} {of}subdomains{each} {said}")
    if solution.checkpoint is not None:
        interrupted = report["status"] == "interrupted"
        why = "interrupted" if interrupted else "out of iterations"
        how = "" if interrupted else " and a larger --max-iterations"
        lines.append(
            f"{why}; the iteration is kept in {solution.checkpoint}: the same command with --resume{how} goes on "
            "from there"
        )
    return "\n".join([*lines, f"wrote {output}"])


def interrupted(output: str, checkpoint: Path | None) -> str:
    """Return what is said at once when a signal asks for the end."""
    kept = "" if checkpoint is None else f" and {checkpoint}"
    return f"interrupted: finishing this iteration, writing {output}{kept}"
