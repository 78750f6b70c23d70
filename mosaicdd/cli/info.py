"""``mosaicdd info``: what a file holds and how it was made."""

import json

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.storage.hdf5 import inspect_file, reseal
from mosaicdd.storage.metrics_file import json_line

_WIDTH = 100  # characters of a value that people are shown


@click.command()
@click.argument("file", metavar="FILE.h5", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option(
    "--reseal",
    "renew",
    is_flag=True,
    help="Give a file that another program has written to a new checksum. Its values are taken as "
    "they are now.",
)
@on_first_rank
def info(file: str, as_json: bool, renew: bool) -> None:
    """Show what a solution, model, dataset or checkpoint holds and how it was made.

    Of a solution this includes its layout: how the field lay over the ranks that solved it.
    """
    with bad_input():
        if renew:
            size = reseal(file)
            click.echo(
                f"{file}: new checksum. HDF5 reads all {size:,} bytes of its arrays; that they are "
                "the values that were once computed is from now on trusted, not known",
                err=True,
            )
        kind, attributes, arrays = inspect_file(file)
    if as_json:
        described = {name: {"shape": shape, "dtype": dtype} for name, shape, dtype in arrays}
        click.echo(json_line(attributes | {"kind": kind, "arrays": described}))
        return
    lines = [f"{file}: {kind}"]
    for name, shape, dtype in arrays:
        lines.append(f"  {name:28} {'x'.join(map(str, shape)) or 'one value':>14}  {dtype}")
    width = max(map(len, attributes), default=0)
    for name, value in attributes.items():
        text = value if isinstance(value, str) else json.dumps(value)
        shown = text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
        lines.append(f"  {name:{width}}  {shown}")
    click.echo("\n".join(lines))
