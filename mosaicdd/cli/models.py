"""``mosaicdd models``: which networks are shipped, and for what."""

import json
from dataclasses import asdict

import click

from mosaicdd.axes import times
from mosaicdd.cli.launch import on_first_rank

_MB = 10**6


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@on_first_rank
def models(as_json: bool) -> None:
    """List the shipped models: equation, ranges of its parameters, errors, size.

    Any of them may be named by --local-solver. Errors are root mean squares on held-out problems with
    boundary data of unit size.
    """
    from mosaicdd.schwarz.local_solvers.loading import SHIPPED, shipped_models
    from mosaicdd.storage.model_file import read_model

    paths = {name: SHIPPED / f"{name}.h5" for name in shipped_models()}
    cards = {name: read_model(path)[0] for name, path in paths.items()}
    if as_json:
        figures = {
            name: asdict(card) | {"bytes": paths[name].stat().st_size}
            for name, card in cards.items()
        }
        click.echo(json.dumps(figures))
        return
    for name, card in cards.items():
        click.echo(
            f"{name}: {card.network} for {card.pde} on {times(card.subdomain.shape)} cells, "
            f"{paths[name].stat().st_size / _MB:.1f} MB"
        )
        limits = [
            f"{limit} {least:g} to {most:g}"
            for limit, (least, most) in card.ranges.items()
            if least < most
        ]
        if limits:
            click.echo(f"  for {'; '.join(limits)}")
        click.echo(f"  {_errors(card.validation)}")


def _errors(validation: dict) -> str:
    errors = [validation[key] ** 0.5 for key in ("mse", "window_mse")]
    return f"errors {errors[0]:.1e}, and {errors[1]:.1e} on windows of larger solutions"
