"""Settings of ``train`` from a TOML file, as defaults that flags override, and of its network."""

import json
import tomllib
from pathlib import Path

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.settings import meant

_NETWORK = "settings"


def read_config(ctx: click.Context, param: click.Parameter, path: str | None) -> dict:
    """Take up ``option = value`` pairs as defaults; return the table of the network's settings.

    Raises
    ------
    click.ClickException
        If the file is not TOML, or names an option that ``train`` has not.
    """
    if path is None:
        return {}
    with bad_input("--config"):
        values = _load(Path(path))
        network = values.pop(_NETWORK, {})
        if not isinstance(network, dict):
            raise TypeError(f"{path}: {_NETWORK} must be a table, as in [{_NETWORK}]")
        options = {key.replace("-", "_"): value for key, value in values.items()}
        known = {p.name for p in ctx.command.params} - {"config", "data", "pairs", "help"}
        if unknown := sorted(options.keys() - known):
            raise ValueError(
                f"{path}: train has no option {unknown[0]!r}{meant(unknown[0], known)}; known: {', '.join(sorted(known))} and "
                f"the table [{_NETWORK}]"
            )
    ctx.default_map = {**(ctx.default_map or {}), **options}
    return network


def network_settings(pairs: tuple[str, ...]) -> dict:
    """Parse ``name=value`` pairs; values are JSON (numbers, true, false)."""
    settings = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError(
                f"--set {pair}: needs NAME=VALUE with a number, true or false, e.g. width=96"
            ) from None
    return settings


def _load(path: Path) -> dict:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from error
