"""What a command says, and shows of its work; nothing with ``--quiet``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mosaicdd.report.progress import Show, shown

if TYPE_CHECKING:
    from mosaicdd.schwarz.results.solution import Solution

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


def summary(solution: "Solution", output: str, boundary: str | None) -> str:
    """Say in a few lines what was solved, with what on sides without a condition, how it ended, how good and where it is."""
    from mosaicdd.schwarz.results.report import described

    report = solution.report
    lines = described(report)
    if boundary is not None:
        lines[0] += f", boundary {boundary}"
    if outside := report["outside_training_range"]:
        each = f" (of {report['subdomains']} per problem)" if "problems" in report else ""
        of = "" if each else f"of {report['subdomains']} "
        lines.insert(
            2,
            f"{outside} {of}subdomains{each} have data rougher than the network was trained on: see "
            "--out-of-range exact, or --certify",
        )
    if solution.checkpoint is not None:
        ended = "interrupted" in [
            report["status"],
            *(row["status"] for row in report.get("problems", [])),
        ]
        why = "interrupted" if ended else "out of iterations"
        how = "" if ended else " and a larger --max-iterations"
        lines.append(
            f"{why}; the iteration is kept in {solution.checkpoint}: the same command with --resume{how} goes on "
            "from there"
        )
    return "\n".join([*lines, f"wrote {output}"])


def interrupted(output: str, checkpoint: Path | None) -> str:
    """Return what is said at once when a signal asks for the end."""
    kept = "" if checkpoint is None else f" and {checkpoint}"
    return f"interrupted: finishing this iteration, writing {output}{kept}"
