"""``mosaicdd report``: a page about runs, to be kept or sent."""

import importlib.util
from pathlib import Path

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.compare import own_equation_option
from mosaicdd.cli.launch import on_first_rank, overwrite_option
from mosaicdd.cli.show import quiet_option, say
from mosaicdd.report.stored import read
from mosaicdd.storage.atomic import atomic_file, require_replaceable
from mosaicdd.storage.hdf5 import decoded


@click.command()
@click.argument("solution_files", metavar="OUT.h5...", type=click.Path(), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE.html",
    type=click.Path(),
    help="Page to write. [default: OUT.html beside the first OUT.h5]",
)
@own_equation_option()
@overwrite_option()
@quiet_option()
@on_first_rank
def report(solution_files: tuple[str, ...], output: str | None, overwrite: bool) -> None:
    """Write one page of HTML about solutions, side by side: pictures, convergence, time, how they were made.

    It needs nothing beside it, and fields of any size are read in portions.
    """
    with bad_input():
        if importlib.util.find_spec("matplotlib") is None:
            raise ValueError("pictures need matplotlib: pip install 'mosaicdd[plot]'")
        solutions = [read(file) for file in solution_files]
        path = require_replaceable(
            output or Path(solution_files[0]).with_suffix(".html"),
            overwrite=overwrite,
            suffix=".html",
            inputs=solution_files,
        )
    from mosaicdd.report.page import page

    text = page(solutions)
    with atomic_file(path) as temporary:
        temporary.write_text(decoded(text), encoding="utf-8")
    say(f"wrote {path}: {len(text) / 2**20:.2g} MiB")
