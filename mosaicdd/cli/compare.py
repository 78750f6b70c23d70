"""``mosaicdd compare``: a solution file against a reference solution."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

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
@click.option(
    "--problem",
    type=click.IntRange(min=0),
    help="Which of several problems of the file. [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@on_first_rank
def compare(solution_file: str, reference: str, problem: int | None, as_json: bool):
    """Compare a solution with a reference: errors, and the seconds of both.

    Of a file with several problems, the errors are those over the nodes of all of them.
    """
    with bad_input():
        problems = read_solution(solution_file).problems if problem is None else 1
    numbers = range(problems) if problem is None else [problem]
    errors, seconds = [], 0.0
    for number in numbers:
        with bad_input():
            solution = read_solution(solution_file, number)
            start = time.perf_counter()
            truth, _ = reference_of_spec(reference, solution)
            seconds += time.perf_counter() - start
        errors.append(Errors.of(solution.field, truth))
    report = Errors.of_all(errors).report() | {
        "reference": reference,
        "reference_seconds": seconds,
        "solution_seconds": solution.seconds,
    }
    if problems > 1:
        report["problems"] = [
            {"problem": number} | one.report() for number, one in zip(numbers, errors, strict=True)
        ]
    click.echo(json_line(report) if as_json else _for_people(report))


@dataclass(frozen=True)
class Errors:
    """Differences of a field from the truth, so that those of several fields can be put together."""

    mae: float
    max_error: float
    norm: float
    size: float

    @classmethod
    def of(cls, field: np.ndarray, truth: np.ndarray) -> Self:
        """Measure one field."""
        difference = np.abs(field - truth)
        return cls(
            float(difference.mean()),
            float(difference.max()),
            float(np.linalg.norm(difference)),
            float(np.linalg.norm(truth)),
        )

    @classmethod
    def of_all(cls, errors: Sequence[Self]) -> Self:
        """Put together those of fields of the same number of nodes."""
        return cls(
            float(np.mean([one.mae for one in errors])),
            float(np.max([one.max_error for one in errors])),
            float(np.linalg.norm([one.norm for one in errors])),
            float(np.linalg.norm([one.size for one in errors])),
        )

    def report(self) -> dict[str, float]:
        """Return what ``--json`` prints."""
        return {
            "mae": self.mae,
            "max_error": self.max_error,
            "relative_l2": self.norm / self.size if self.size else np.nan,
        }


def _for_people(report: dict) -> str:
    text = ""
    if many := report.get("problems"):
        maes = [one["mae"] for one in many]
        worst = int(np.argmax(maes))  # the first that is NaN, if one is
        text = f"{len(many)} problems: MAE from {min(maes):.2e} to {maes[worst]:.2e} (problem {worst})\n"
    return text + (
        f"against {report['reference']}: MAE {report['mae']:.2e}, largest error "
        f"{report['max_error']:.2e}, relative L2 error {report['relative_l2']:.2e}\n"
        f"the reference took {report['reference_seconds']:.2f} s, "
        f"the solution {report['solution_seconds']:.2f} s without start-up and writing"
    )
