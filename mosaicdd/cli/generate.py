"""``mosaicdd generate``: draw and solve a dataset of small boundary value problems."""

import time

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import world
from mosaicdd.cli.options import CUBE, FIELD, collected, once_each, settings_options
from mosaicdd.cli.show import quiet_option, say, stage
from mosaicdd.lattice.lattice import Subdomain
from mosaicdd.storage.json_line import json_line
from mosaicdd.training.settings import GenerationSettings

_SQUARE = Subdomain()


@click.command()
@click.argument("out", type=click.Path())
@settings_options(GenerationSettings)
@click.option(
    "--cells",
    type=CUBE,
    default=str(_SQUARE.cells),
    show_default=True,
    help="Cells per side of the subdomain: a number, or 16x16x16 for a cube.",
)
@click.option(
    "--size",
    default=_SQUARE.size,
    show_default=True,
    help="Side of the subdomain, in domain length.",
)
@click.option(
    "--field",
    "fields",
    type=FIELD,
    callback=once_each,
    multiple=True,
    help="Value of a parameter of the equation; may be repeated. Where none is given and the equation "
    "says how, parameters are drawn: data for a network for the whole family.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file OUT that is there.")
@quiet_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def generate(
    ctx: click.Context,
    out: str,
    cells: tuple[int, ...],
    size: float,
    fields: tuple[tuple[str, str], ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a dataset of random boundary data and their solutions to OUT (HDF5).

    Works alone and under mpiexec or srun: the samples are the same on any number of ranks. What a
    run that was ended has made lies in OUT.parts, and the next call continues from it.
    """
    start = time.perf_counter()
    from mosaicdd.training.samples import Generation

    ranks = world()
    with bad_input():
        subdomain = Subdomain(cells[0], size, len(cells))
        values = tuple((name, float(number)) for name, number in fields)
        settings = collected(ctx, GenerationSettings, subdomain=subdomain, fields=values)
        generation = Generation(out, settings, ranks, overwrite=overwrite)
    with stage("solving samples", quiet=as_json or not ranks.is_root) as show:
        dataset = generation.run(show)
    if dataset is None:
        return
    seconds = time.perf_counter() - start
    if not as_json:
        say(f"{out}: {settings.samples} samples and {settings.windows} windows in {seconds:.1f} s")
        return
    figures = {
        "samples": settings.samples,
        "windows": settings.windows,
        "dataset": str(out),
        "ranks": ranks.size,
        "seconds": round(seconds, 3),
        "samples_per_second": round(settings.samples / seconds, 1),
        "dataset_hash": dataset.content_hash,
    }
    say(json_line(figures), asked=True)
