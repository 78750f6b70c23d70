"""``mosaicdd compare``: a solution file against a reference solution."""

import click
import numpy as np

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.reference import own_equation_option, problem_option, reference_option, waiting
from mosaicdd.cli.show import quiet_option
from mosaicdd.report.comparison import Comparison, compare_all
from mosaicdd.report.stored import read, read_all
from mosaicdd.storage.json_line import json_line


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
