"""``mosaicdd demo``: a first problem, solved, compared, and shown, by the commands that one types for that."""

import importlib.util
import shlex
import sys
from pathlib import Path

import click

from mosaicdd.axes import times
from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import overwrite_option
from mosaicdd.cli.options import CELLS
from mosaicdd.parallel.launcher import launcher_rank

_TRUE = "expr:exp(x/4)*sin(y/4)"  # it solves Laplace's equation, so that the error is known


@click.command()
@click.option(
    "--cells", type=CELLS, default="512", show_default=True, help="Grid cells along x and y."
)
@click.option(
    "-o",
    "--output",
    default="mosaicdd-demo",
    metavar="FOLDER",
    show_default=True,
    help="Where the files go.",
)
@overwrite_option()
def demo(cells: tuple[int, ...], output: str, overwrite: bool) -> None:
    """Solve a first problem, compare it with the true solution, and draw it: the commands, and what they say.

    Files go to a folder, for you to look at.
    """
    from mosaicdd.cli.main import cli

    folder = Path(output)
    solution = str(folder / "out.h5")
    replacing = ["--overwrite"] * overwrite
    steps = [
        ["solve", "-o", solution, "--cells", times(cells), "--boundary", _TRUE, *replacing],
        ["compare", solution, "--reference", _TRUE],
        ["quantities", solution],
    ]
    if importlib.util.find_spec("matplotlib") is not None:
        steps += [
            ["plot", solution, "--reference", "dst", *replacing],
            ["report", solution, *replacing],
        ]
    with bad_input("--output"):
        folder.mkdir(parents=True, exist_ok=True)
    for words in steps:
        sys.argv = ["mosaicdd", *words]  # by which the file says it was made
        if launcher_rank() == 0:
            click.echo(f"$ {shlex.join(sys.argv)}")
        if code := cli.main(words, standalone_mode=False):
            sys.exit(code)
