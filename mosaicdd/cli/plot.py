"""``mosaicdd plot``: pictures of a solution file."""

import importlib.util
from pathlib import Path

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.reference import own_equation_option, reference_option, waiting
from mosaicdd.report.comparison import reference_field
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.solution_file import read_solution


@click.command()
@click.argument("solution_file", metavar="OUT.h5")
@click.option(
    "-o", "--output", metavar="FILE.png", help="Picture to write. [default: OUT.png beside OUT.h5]"
)
@reference_option("auto", ", or 'none'")
@own_equation_option()
@click.option(
    "--problem",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which of several problems of the file.",
)
@on_first_rank
def plot(solution_file: str, output: str | None, reference: str, problem: int) -> None:
    """Draw a solution, its estimated error and its convergence; and how it differs from a reference."""
    with bad_input():
        if importlib.util.find_spec("matplotlib") is None:
            raise ValueError("plots need matplotlib: pip install 'mosaicdd[plot]'")
        solution = read_solution(solution_file, problem)
        path = require_writable(output or Path(solution_file).with_suffix(".png"))
        if path.suffix not in (".png", ".pdf", ".svg"):
            raise ValueError(f"{path}: the name of a picture ends in .png, .pdf or .svg")
        against: tuple = ()  # a field and its name
        if reference != "none":
            with waiting(reference, solution, 1, quiet=False) as method:
                against = reference_field(method, solution)
    from mosaicdd.report.figures import figure, save_figure

    save_figure(figure(solution, *against), path)
    click.echo(f"wrote {path}")
