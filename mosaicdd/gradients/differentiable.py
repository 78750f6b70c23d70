"""A problem, or a march through time, as a function that torch differentiates through."""

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from mosaicdd.gradients.in_time import DifferentiableMarch
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.gradients.solve_function import Differentiable
from mosaicdd.problems.problem import Problem
from mosaicdd.settings import require_type
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.time.settings import TimeSettings
from mosaicdd.torch_defaults import on_processor

# Of a functional differences show what a solve leaves, of a gradient six digits are enough for all uses; it has more of
# them than the adjoint's residual (`benchmarks/gradients.py`).
_RTOL, _OF_ADJOINTS = 1e-10, 1e-6


@on_processor()
def differentiable(
    problem: Problem,
    wrt: str | Sequence[str],
    *,
    initial: Any = 0.0,
    dt: float | None = None,
    steps: int | None = None,
    method: str = TimeSettings.method,
    every: int = TimeSettings.every,
    ranks: Any = None,
    settings: SolveSettings | None = None,
    rtol: float | None = None,
    adjoint_rtol: float | None = None,
) -> Differentiable | DifferentiableMarch:
    """Return the solution of a problem as a function of tensors, with derivatives of any order.

    Parameters
    ----------
    problem
        Whose level something holds; linear or not.
    wrt
        What it is a function of: coefficients (``a``, ``axx``, ``axy``, ``ayy``, ``c``, ``bx``), the source ``f``, values or fluxes of
        sides and outlines by their names or those of parts, and ``left.alpha`` of Robin's condition; in time
        ``initial`` and ``s``, too.
    initial, dt, steps, method, every
        Of a march, as `march` has them, whose fields are the solution then.
    ranks, settings
        As `Solver` has them; on several ranks all have the whole tensors.
    rtol
        Of solves; by default that of the settings, without any 1e-10.
    adjoint_rtol
        Of adjoint solves; by default that of the settings, or ``rtol``, without any 1e-6.

    Raises
    ------
    TypeError
        If the problem is none, or ``wrt`` no name and no names.
    ValueError
        If a name is none of the problem's, or there is none, or a length of steps without a number; or what a march keeps for
        its gradient needs more memory than there is.
    Unsupported
        If the problem is of another kind.

    Examples
    --------
    >>> solve = m.differentiable(problem, wrt=("a",))
    >>> (solve(a=a) - measured).square().sum().backward()
    """
    require_type("problem", problem, Problem)
    for name, tolerance in (("rtol", rtol), ("adjoint_rtol", adjoint_rtol)):
        if tolerance is not None:
            require_type(name, tolerance, Real, "a number")
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt) if isinstance(wrt, Iterable) else (wrt,)
    for name in names:
        require_type("wrt", name, str, "a name, or several, as 'a' or ('a', 'left')")
    if not names:
        raise ValueError(
            "wrt names nothing to differentiate by: give a field or a side, as 'a' or 'left'"
        )
    if rtol is None and settings is None:
        rtol, adjoint_rtol = _RTOL, _OF_ADJOINTS if adjoint_rtol is None else adjoint_rtol
    how: dict[str, Any] = {"ranks": ranks, "settings": settings, "rtol": rtol}
    how["adjoint_rtol"] = adjoint_rtol
    if dt is not None and steps is not None:
        time = TimeSettings(steps, dt, method, every)
        return DifferentiableMarch(problem, initial, time, names, **how)
    if dt is not None or steps is not None or problem.equation.steady is not None:
        raise ValueError(
            f"steps in time of {problem.equation.name} need both dt and steps, got dt={dt} and steps={steps}"
        )
    parameters = Parameters(problem)
    parameters.require(names)
    return Differentiable(parameters, names, **how)
