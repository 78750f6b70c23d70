"""``mosaicdd compare``: a solution file against a reference solution.

What ``compare`` and ``plot`` share: the option for a reference, and progress while it is computed.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import numpy as np

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.options import completed
from mosaicdd.cli.show import quiet_option, stage
from mosaicdd.problems.equations import find_any_equation
from mosaicdd.report.comparison import Comparison, available, compare_all
from mosaicdd.report.stored import StoredSolution, read, read_all
from mosaicdd.storage.metrics_file import json_line

# Of a core of 2024 for Laplace's equation; what takes longer is said to.
_SECONDS_PER_NODE = {"pyamg": 2.5e-6, "direct": 1e-5}
_SHOWN = 2.0  # seconds that are worth it
_TICK = 0.5  # seconds


def reference_option(default: str, more: str = "") -> Callable:
    """Declare ``--reference``; ``more`` is what else it may be."""
    return click.option(
        "--reference",
        default=default,
        show_default=True,
        metavar="SPEC",
        shell_complete=completed("report.comparison:known_references"),
        help="'pyamg', 'dst' (fast sine transform), 'direct' (sparse factorisation), 'auto' (one of these), "
        f"'expr:...' in x and y (and z), or another solution file{more}.",
    )


def problem_option(default: str) -> Callable:
    """Declare ``--problem`` and ``--frame``; ``default``: which of several problems are taken without it."""
    number = click.IntRange(min=0)
    problem = click.option(
        "--problem",
        type=number,
        help=f"Which of several problems of the file. [default: {default}]",
    )
    frame = click.option(
        "--frame",
        type=number,
        help="Which of the times of a series, from 0. [default: the last one]",
    )
    return lambda command: problem(frame(command))


def own_equation_option() -> Callable:
    """Declare ``--pde`` for files that know their equation by name only."""
    return click.option(
        "--pde",
        metavar="FILE.py:NAME",
        shell_complete=completed(),
        help="The equation, if it is one of your own. [default: the file's]",
        callback=lambda context, option, spec: _find(spec),
        expose_value=False,
    )


def _find(spec: str | None) -> None:
    """Make an equation of the user's own known by its name."""
    if spec is not None:
        with bad_input("--pde"):
            find_any_equation(spec)


@contextmanager
def waiting(
    reference: str, solution: StoredSolution, problems: int, *, quiet: bool
) -> Iterator[str]:
    """Show on stderr how long the references of some problems like this take, if that is long.

    What is yielded says which reference, where the fastest was asked for.
    """
    reference = available(reference, solution)
    nodes = math.prod(solution.grid.nodes) * problems
    expected = _SECONDS_PER_NODE.get(reference, 0.0) * nodes
    with stage(f"reference by {reference}", quiet=quiet or expected < _SHOWN) as show:
        done, start = threading.Event(), time.monotonic()

        def tick() -> None:
            while not done.wait(_TICK):
                elapsed = time.monotonic() - start
                show(min(elapsed / expected, 0.99), f"{elapsed:.0f} s of about {expected:.0f} s")

        ticking = threading.Thread(target=tick, daemon=True)
        if expected >= _SHOWN and not quiet:
            ticking.start()
        try:
            yield reference
        finally:
            done.set()
            if ticking.is_alive():
                ticking.join()


@click.command()
@click.argument("solution_file", metavar="OUT.h5", type=click.Path())
@reference_option("pyamg")
@own_equation_option()
@problem_option("all problems")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@quiet_option()
@on_first_rank
def compare(
    solution_file: str, reference: str, problem: int | None, frame: int | None, as_json: bool
) -> None:
    """Compare a solution with a reference: errors, and the seconds of both.

    Of a file with several problems, the errors are those over the nodes of all of them. Of a series in
    time they are those of one field; an expression may have t.
    """
    with bad_input():
        solution = read(solution_file, problem, frame=frame)
        problems = solution.problems if problem is None else 1
        with waiting(reference, solution, problems, quiet=as_json) as method:
            solutions = read_all(solution_file, frame) if problem is None else [solution]
            comparison = compare_all(solutions, method)
    report = _report(comparison, method)
    if solution.time is not None:
        report["time"] = solution.time
    click.echo(json_line(report) if as_json else _for_people(report))


def _report(comparison: Comparison, reference: str) -> dict:
    """Return what ``--json`` prints."""
    report = comparison.errors | {
        "reference": reference,
        "reference_seconds": comparison.seconds,
        "solution_seconds": comparison.solution_seconds,
    }
    if comparison.problems:
        report["problems"] = [
            {"problem": number} | member.errors for number, member in enumerate(comparison.problems)
        ]
    return report


def _for_people(report: dict) -> str:
    text = ""
    if many := report.get("problems"):
        maes = [row["mae"] for row in many]
        worst = int(np.argmax(maes))  # the first that is NaN, if one is
        text = f"{len(many)} problems: MAE from {min(maes):.2e} to {maes[worst]:.2e} (problem {worst})\n"
    if "time" in report:
        text += f"at time {report['time']:g} "
    return text + (
        f"against {report['reference']}: MAE {report['mae']:.2e}, largest error "
        f"{report['max_error']:.2e}, relative L2 error {report['relative_l2']:.2e}\n"
        f"the reference took {report['reference_seconds']:.2f} s, "
        f"the solution {report['solution_seconds']:.2f} s without start-up and writing"
    )
