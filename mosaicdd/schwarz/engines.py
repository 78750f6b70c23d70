"""Which engine runs which local solver, by the method that this names, and what those of all nodes have not."""

import pkgutil

from mosaicdd.schwarz.base_engine import BaseEngine
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.unsupported import Unsupported

_ENGINES = {
    "shared": "engine:Engine",
    "multigrid": "multigrid.multigrid_engine:MultigridEngine",
    "sines": "sines.sine_engine:SineEngine",
    "newton": "nonlinear.newton_engine:NewtonEngine",
}


def engine_of(method: str) -> type[BaseEngine]:
    """Return what runs bound local solvers of a method (`BoundSolver.method`).

    It is imported where it is chosen: most solves start sooner without the others.

    `ValueError` if there is no such method.
    """
    if method not in _ENGINES:
        raise ValueError(f"no engine runs local solvers by the method {method!r}")
    engine: type[BaseEngine] = pkgutil.resolve_name(f"mosaicdd.schwarz.{_ENGINES[method]}")
    return engine


def asks_for_subdomains(settings: SolveSettings) -> str:
    """Return what is asked for that only an iteration on subdomains has; nothing if nothing is."""
    unlike = {
        "levels=1": settings.levels == 1,
        "sweep='phases'": settings.sweep == "phases",
        f"accelerate={settings.accelerate!r}": settings.accelerate is not None,
        "coarse_points": settings.coarse_points is not None,
        "until_mae": settings.until_mae is not None,
        f"halo_depth={settings.halo_depth}": settings.halo_depth > 1,
        "dtype='float32'": settings.dtype == "float32",
    }
    return next((name for name, is_given in unlike.items() if is_given), "")


def require_method(settings: SolveSettings) -> None:
    """Check that nothing is asked for that is of the other method.

    `Unsupported` if something is.
    """
    if name := asks_for_subdomains(settings):
        raise Unsupported(
            f"{name} is not for coefficients that are fields, natural or periodic sides, shapes, "
            "nonlinear equations and anisotropies above 100, which are solved in float64 by multigrid: "
            "leave it out"
        )
