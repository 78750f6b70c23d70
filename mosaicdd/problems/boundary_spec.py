"""The text by which a command line asks for boundary data: ``gp:...``, ``expr:...`` or a file."""

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary

_GP_SETTINGS = {"seed": int, "length": float, "amplitude": float, "noise": float}


def is_file(spec: str) -> bool:
    """Say whether ``spec`` names a file."""
    return not spec.startswith(("gp:", "expr:")) and spec != "gp"


def boundary_of_spec(spec: str, grid: Grid) -> Boundary:
    """Make boundary data from ``gp:seed=0,length=1.5`` or ``expr:sin(2*pi*x)``.

    Raises
    ------
    ValueError
        If the text is malformed or a value is out of range.
    """
    kind, _, text = spec.partition(":")
    if kind == "expr":
        return Boundary.of_expression(text, grid)
    return Boundary.of_gaussian_process(grid, **_gp_settings(text))


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
