"""``mosaicdd generate``: draw and solve a dataset of small boundary value problems."""

import time

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import world
from mosaicdd.cli.settings_options import collected, settings_options
from mosaicdd.cli.show import quiet_option, say, stage
from mosaicdd.cli.types import FIELD, once_each
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.json_line import json_line
from mosaicdd.training.settings import GenerationSettings, MediaSettings, SquareSettings

_SQUARE = Subdomain()


@click.command()
@click.argument("out", type=click.Path())
@settings_options(GenerationSettings)
@click.option(
    "--cells", default=_SQUARE.cells, show_default=True, help="Cells per side of the subdomain."
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
    help="Random media of diffusion instead, for conductances and operator; of the settings, --samples, "
    "--validation and --seed count.",
)
@click.option(
    "--labels/--no-labels",
    default=True,
    help="Of a nonlinear equation: solve all problems, or those alone that are held out, for training "
    "with --no-labels.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file OUT that is there.")
@quiet_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def generate(
    ctx: click.Context,
    out: str,
    cells: int,
    size: float,
    fields: tuple[tuple[str, str], ...],
    media: bool,
    labels: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a dataset of random boundary data and their solutions to OUT (HDF5).

    Works alone and under mpiexec or srun: the samples are the same on any number of ranks. What a
    run that was ended has made lies in OUT.parts, and the next call continues from it.
    """
    start = time.perf_counter()
    from mosaicdd.training.generation import prepared

    ranks = world()
    if media:
        _require_labels(labels)
        _media(ctx, out, overwrite, as_json, start)
        return
    with bad_input():
        subdomain = Subdomain(cells, size)
    if _squares(ctx, out, subdomain, fields, labels, overwrite, as_json, start):
        return
    _require_labels(labels)
    with bad_input():
        chosen = {
            "subdomain": subdomain,
            "fields": tuple((name, float(number)) for name, number in fields),
        }
        settings = collected(ctx, GenerationSettings, **chosen)
        generation = prepared(out, settings, ranks, overwrite=overwrite)
    quiet = as_json or not ranks.is_root
    with stage("solving samples", quiet=quiet) as show:
        dataset = generation.run(show)
    if dataset is None:
        return
    seconds = time.perf_counter() - start
    if not as_json:
        say(f"{out}: {settings.samples} samples and {settings.windows} windows in {seconds:.1f} s")
        return
    figures = {
        "dataset": str(out),
        "samples": settings.samples,
        "ranks": ranks.size,
        "windows": settings.windows,
        "seconds": round(seconds, 3),
        "samples_per_second": round(settings.samples / seconds, 1),
        "dataset_hash": dataset.content_hash,
    }
    say(json_line(figures), asked=True)


def _squares(
    ctx: click.Context,
    out: str,
    subdomain: Subdomain,
    fields: tuple[tuple[str, str], ...],
    labels: bool,
    overwrite: bool,
    as_json: bool,
    start: float,
) -> bool:
    """Write squares of a nonlinear equation, and say whether the equation is one."""
    from mosaicdd.problems.equations import find_any_equation
    from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
    from mosaicdd.training.squares import prepared_squares

    ranks = world()
    with bad_input():
        pde = find_any_equation(collected(ctx, GenerationSettings).pde)
        if not isinstance(pde, NonlinearEquation):
            return False
        if fields:
            raise ValueError(f"the parameters of {pde.name} are drawn: leave out --field")
        chosen = {"pde": pde.name, "subdomain": subdomain, "labels": labels}
        settings = collected(ctx, SquareSettings, **chosen)
        generation = prepared_squares(out, settings, ranks, overwrite=overwrite)
    with stage("solving squares", quiet=as_json or not ranks.is_root) as show:
        dataset = generation.run(show)
    if dataset is not None:
        seconds = time.perf_counter() - start
        figures = {
            "dataset": str(out),
            "squares": settings.samples,
            "ranks": ranks.size,
            "seconds": round(seconds, 3),
            "dataset_hash": dataset.content_hash,
        }
        text = f"{out}: {settings.samples} squares in {seconds:.1f} s"
        say(json_line(figures) if as_json else text, asked=as_json)
    return True


def _require_labels(labels: bool) -> None:
    """Check that solutions are not left out of other data than squares."""
    with bad_input("--no-labels"):
        if not labels:
            raise ValueError(
                "other data than those of nonlinear equations are always solved; leave it out"
            )


def _media(ctx: click.Context, out: str, overwrite: bool, as_json: bool, start: float) -> None:
    """Write random media and solutions in them; on one rank."""
    from mosaicdd.storage.atomic import require_new
    from mosaicdd.training.media import generate_media

    if world().size > 1:
        raise click.ClickException("--media draws on one rank; start it without mpiexec")
    with bad_input():
        if (pde := collected(ctx, GenerationSettings).pde) != "diffusion":
            raise ValueError(f"--media are of diffusion, got --pde {pde}: add --pde diffusion")
        settings = collected(ctx, MediaSettings)
        require_new(out, overwrite=overwrite)
    with stage("solving in media", quiet=as_json) as show:
        dataset = generate_media(out, settings, overwrite=overwrite, progress=show)
    seconds = time.perf_counter() - start
    figures = {
        "dataset": str(out),
        "media": settings.samples,
        "seconds": round(seconds, 3),
        "dataset_hash": dataset.content_hash,
    }
    text = f"{out}: {settings.samples} media in {seconds:.1f} s"
    say(json_line(figures) if as_json else text, asked=as_json)
