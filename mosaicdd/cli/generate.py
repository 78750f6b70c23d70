"""``mosaicdd generate``: draw and solve a dataset of small boundary value problems."""

import time
from typing import Any

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import world
from mosaicdd.cli.options import (
    CUBE,
    EACH,
    FIELD,
    collected,
    declared,
    json_option,
    row,
    settings_options,
    with_options,
)
from mosaicdd.cli.show import quiet_option, say, stage
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.storage.metrics_file import json_line
from mosaicdd.training.settings import GenerationSettings

_SQUARE = Subdomain()
_GENERATE = declared(
    cells=row(
        "Cells per side of the subdomain: a number, or 16x16x16 for a cube.",
        type=CUBE,
        default=str(_SQUARE.cells),
        show_default=True,
    ),
    size=row("Side of the subdomain, in domain length.", default=_SQUARE.size, show_default=True),
    field=row(
        "Value of a parameter of the equation; may be repeated. Where none is given and the equation "
        "says how, parameters are drawn: data for a network for the whole family.",
        type=FIELD,
        **EACH,
    ),
    overwrite=row("Replace a file OUT that is there.", is_flag=True),
)


@click.command()
@click.argument("out", type=click.Path())
@with_options(settings_options(GenerationSettings), _GENERATE)
@quiet_option()
@json_option()
def generate(out: str, as_json: bool, **options: Any) -> None:
    """Write a dataset of random boundary data and their solutions to OUT (HDF5).

    Works alone and under mpiexec or srun: the samples are the same on any number of ranks. What a
    run that was ended has made lies in OUT.parts, and the next call continues from it.
    """
    start = time.perf_counter()
    from mosaicdd.training.generation import Generation

    ranks = world()
    with bad_input():
        cells = options["cells"]
        subdomain = Subdomain(cells[0], options["size"], len(cells))
        values = tuple((name, float(number)) for name, number in options["field"])
        settings = collected(GenerationSettings, options, subdomain=subdomain, fields=values)
        generation = Generation(out, settings, ranks, overwrite=options["overwrite"])
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
