"""What a command says, and shows of its work; nothing with ``--quiet``."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from mosaicdd.report.progress import Show, shown

_QUIET = f"{__name__}.quiet"


def quiet_option() -> Callable:
    """Return the option of a command that shows its progress."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.meta[_QUIET] = value

    return click.option(
        "--quiet",
        "-q",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Show no progress, and say nothing of what went well.",
    )


def _is_quiet() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_QUIET, False)


def say(text: str, *, asked: bool = False) -> None:
    """Write what a command has to say at its end, on stdout.

    If ``asked``, as JSON is and what went wrong, also with ``--quiet``.
    """
    if asked or not _is_quiet():
        click.echo(text)


@contextmanager
def stage(title: str, *, quiet: bool = False) -> Iterator[Show]:
    """Show the progress of one piece of work on stderr; nothing with ``--quiet``, or if ``quiet``."""
    with shown(title, quiet=quiet or _is_quiet()) as show:
        yield show


def summary(report: dict, output: str, boundary: str | None, checkpoint: Path | None) -> str:
    """Say in a few lines what was solved, how it ended, how good it is and where it is.

    Parameters
    ----------
    boundary
        What was given for sides without a condition.
    checkpoint
        Where the state is from which another run may go on, if it is anywhere.
    """
    from mosaicdd.solution.report import described

    in_time = "steps" in report
    lines = _steps_described(report) if in_time else described(report)
    if boundary is not None:
        lines[0] += f", boundary {boundary}"
    if outside := report.get("outside_training_range"):
        each = f" (of {report['subdomains']} per problem)" if "problems" in report else ""
        of = "" if each else f"of {report['subdomains']} "
        lines.insert(
            2,
            f"{outside} {of}subdomains{each} have data rougher than the network was trained on: see "
            "--out-of-range exact, or --certify",
        )
    if checkpoint is not None:
        members = [report, *report.get("problems", [])]
        ended = "interrupted" in [member["status"] for member in members]
        why = "interrupted" if ended else "out of iterations"
        how = "" if ended else " and a larger --max-iterations"
        what = "the last values are" if in_time else "the iteration is"
        lines.append(
            f"{why}; {what} kept in {checkpoint}: the same command with --resume{how} goes on from there"
        )
    times = f": {report['frames']} times" if in_time else ""
    return "\n".join([*lines, f"wrote {output}{times}"])


def _steps_described(report: dict) -> list[str]:
    """Say of a march what `described` says of a solve."""
    from mosaicdd.solution.report import seconds_described

    cells, dims = ("x".join(map(str, report[name])) for name in ("grid", "dims"))
    steps, shortest, longest = (report[n] for n in ("steps", "shortest_step", "longest_step"))
    lines = [
        (
            f"{report['pde']} on {cells} cells by {report['local_solver']} and {report['method']}, "
            f"{report['ranks']} rank{'s' * (report['ranks'] > 1)} ({dims}), {report['dtype']} on {report['device']}"
        )
    ]
    taken = steps
    if several := report.get("problems"):
        taken = sum(row["steps"] for row in several)
        counts = Counter(row["status"] for row in several)
        ended = ", ".join(f"{count} {status}" for status, count in counts.items())
        lines.append(
            f"{len(several)} problems, one after another: {ended}; of all together, or the largest:"
        )
    if steps:
        each = (
            f"of {longest:g}" if shortest == longest else f"from {shortest:g} to {longest:g} long"
        )
        known = "unknown" if report["time_error"] is None else f"{report['time_error']:.1e}"
        lines.append(
            f"{report['status']} after {steps} steps {each}, at time {report['time']:g}: "
            f"{report['iterations'] / taken:.1f} iterations per step; estimated errors of all steps "
            f"{known}, of their solves {report['solver_error']:.1e}"
        )
    else:
        lines.append(f"{report['status']} in the first step")
    lines += [report["failure"]] if report["failure"] else []
    return [*lines, seconds_described(report)]
