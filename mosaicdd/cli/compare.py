"""``mosaicdd compare``: a solution file against a reference solution."""

import time

import click
import numpy as np

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.json_line import json_line
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.reference import reference_of_spec
from mosaicdd.storage.solution_file import read_solution


@click.command()
@click.argument("solution_file", metavar="OUT.h5")
@click.option(
    "--reference",
    default="pyamg",
    show_default=True,
    metavar="SPEC",
    help="'pyamg', 'dst' (fast sine transform), 'expr:...' in x and y, or another solution file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@on_first_rank
def compare(solution_file: str, reference: str, as_json: bool):
    """Compare a solution with a reference: errors, and the seconds of both."""
    with bad_input():
        solution = read_solution(solution_file)
        start = time.perf_counter()
        truth, _ = reference_of_spec(reference, solution)
        seconds = time.perf_counter() - start
    difference = np.abs(solution.field - truth)
    size = np.linalg.norm(truth)
    report = {
        "mae": float(difference.mean()),
        "max_error": float(difference.max()),
        "relative_l2": float(np.linalg.norm(difference) / size) if size else np.nan,
        "reference": reference,
        "reference_seconds": seconds,
        "solution_seconds": solution.seconds,
    }
    click.echo(json_line(report) if as_json else _for_people(report))


def _for_people(report: dict) -> str:
    return (
        f"against {report['reference']}: MAE {report['mae']:.2e}, largest error "
        f"{report['max_error']:.2e}, relative L2 error {report['relative_l2']:.2e}\n"
        f"the reference took {report['reference_seconds']:.2f} s, "
        f"the solution {report['solution_seconds']:.2f} s without start-up and writing"
    )
