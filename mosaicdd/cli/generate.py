"""``mosaicdd generate``: draw and solve a dataset of small boundary value problems."""

import time

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import world
from mosaicdd.cli.options import CUBE, FIELD, collected, once_each, settings_options
from mosaicdd.cli.show import quiet_option, say, stage
from mosaicdd.lattice.axes import times
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.json_line import json_line
from mosaicdd.training.settings import GenerationSettings, MediaSettings

_SQUARE = Subdomain()
_NAMES = {GenerationSettings: "samples", MediaSettings: "media"}


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
@click.option(
    "--media",
    is_flag=True,
    help="Random media of diffusion instead, for conductances; of the settings, --samples, "
    "--validation, --seed and --cells count: more than 32 make whole media, as 1024, for train --dims.",
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
    media: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a dataset of random boundary data and their solutions to OUT (HDF5).

    Works alone and under mpiexec or srun: the samples are the same on any number of ranks. What a
    run that was ended has made lies in OUT.parts, and the next call continues from it.
    """
    start = time.perf_counter()
    from mosaicdd.training.data import Generation

    ranks = world()
    with bad_input():
        subdomain = Subdomain(cells[0], size, len(cells))
        settings = _settings(ctx, subdomain, fields, media=media)
        generation = Generation(out, settings, ranks, overwrite=overwrite)
    what = _NAMES[type(settings)]
    with stage(f"solving {what}", quiet=as_json or not ranks.is_root) as show:
        dataset = generation.run(show)
    if dataset is None:
        return
    seconds = time.perf_counter() - start
    windows = {"windows": settings.windows} if isinstance(settings, GenerationSettings) else {}
    counts = {what: settings.samples} | windows
    if not as_json:
        words = " and ".join(f"{count} {name}" for name, count in counts.items())
        say(f"{out}: {words} in {seconds:.1f} s")
        return
    figures = {
        "dataset": str(out),
        "ranks": ranks.size,
        "seconds": round(seconds, 3),
        "samples_per_second": round(settings.samples / seconds, 1),
        "dataset_hash": dataset.content_hash,
    }
    say(json_line(counts | figures), asked=True)


def _settings(
    ctx: click.Context,
    subdomain: Subdomain,
    fields: tuple[tuple[str, str], ...],
    *,
    media: bool,
) -> GenerationSettings | MediaSettings:
    """Return what is to be drawn, by the options."""
    spec = collected(ctx, GenerationSettings).pde
    if media and spec != "diffusion":
        raise ValueError(f"--media are of diffusion, got --pde {spec}: add --pde diffusion")
    if subdomain.axes != 2 and media:
        raise ValueError(
            f"--cells {times(subdomain.shape)}: of cubes there are data of linear equations with constant "
            "coefficients alone, media are of squares: give one number of cells"
        )
    if media:
        return collected(ctx, MediaSettings, cells=subdomain.cells)
    values = tuple((name, float(number)) for name, number in fields)
    return collected(ctx, GenerationSettings, subdomain=subdomain, fields=values)
