"""The text by which a command line asks for boundary data: ``gp:...``, ``expr:...`` or a file."""

import re

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary

_SEEDS = re.compile(r"(?:^|(?<=,))seed=([^,]*?)\.\.([^,]*)(?:,|$)")
_MOST_SEEDS = 10**6
_GP_SETTINGS = {"seed": int, "length": float, "amplitude": float, "noise": float}


def is_file(spec: str) -> bool:
    """Say whether ``spec`` names a file."""
    return not spec.startswith(("gp:", "expr:")) and spec != "gp"


def boundaries_of_spec(spec: str, grid: Grid) -> list[Boundary]:
    """Make boundary data from ``gp:seed=0,length=1.5`` or ``expr:sin(2*pi*x)``.

    ``gp:seed=0..63`` are 64 problems, one for each seed from the first to the last.

    Raises
    ------
    ValueError
        If the text is malformed or a value is out of range.
    """
    kind, _, text = spec.partition(":")
    if kind == "expr":
        return [Boundary.of_expression(text, grid)]
    seeds = _SEEDS.search(text)
    if seeds is None:
        return [Boundary.of_gaussian_process(grid, **_gp_settings(text))]
    settings = _gp_settings(text[: seeds.start()] + text[seeds.end() :])
    if "seed" in settings:
        raise ValueError("gp:seed is given twice")
    return [
        Boundary.of_gaussian_process(grid, seed=seed, **settings)
        for seed in _range_of_seeds(*seeds.groups())
    ]


def _range_of_seeds(first: str, last: str) -> range:
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise ValueError(
            f"gp:seed must be a number or a range as 0..63, from low to high, got '{first}..{last}'"
        )
    seeds = range(int(first), int(last) + 1)
    if seeds.stop > _MOST_SEEDS:
        raise ValueError(f"gp:seed={first}..{last}: at most {_MOST_SEEDS} in a range")
    return seeds


def _gp_settings(text: str) -> dict[str, float]:
    settings = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name not in _GP_SETTINGS:
            raise ValueError(f"gp: has no setting {name!r}; known: {', '.join(_GP_SETTINGS)}")
        try:
            settings[name] = _GP_SETTINGS[name](value)
        except ValueError:
            raise ValueError(f"gp:{name} must be a number, got {value!r}") from None
        low = 1e-12 if name == "length" else 0
        if not low <= settings[name] < 1e12:
            raise ValueError(f"gp:{name} must be in [{low:g}, 1e12), got {value}")
    return settings
