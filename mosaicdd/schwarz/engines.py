"""Which engine runs which local solver, by the method that this names."""

from mosaicdd.schwarz.base_engine import BaseEngine


def engine_of(method: str) -> type[BaseEngine]:
    """Return what runs bound local solvers of a method (`BoundSolver.method`).

    It is imported where it is chosen: most solves start sooner without the others.

    Raises
    ------
    ValueError
        If there is no such method.
    """
    if method == "shared":
        from mosaicdd.schwarz.engine import Engine

        return Engine
    if method == "multigrid":
        from mosaicdd.schwarz.multigrid.multigrid_engine import MultigridEngine

        return MultigridEngine
    if method == "newton":
        from mosaicdd.schwarz.nonlinear.newton_engine import NewtonEngine

        return NewtonEngine
    if method == "nonlinear":
        from mosaicdd.schwarz.nonlinear.nonlinear_engine import NonlinearEngine

        return NonlinearEngine
    if method == "upscaled":
        from mosaicdd.schwarz.upscaled.upscaled_engine import UpscaledEngine

        return UpscaledEngine
    if method == "operators":
        from mosaicdd.schwarz.upscaled.operator_engine import OperatorEngine

        return OperatorEngine
    raise ValueError(f"no engine runs local solvers by the method {method!r}")
