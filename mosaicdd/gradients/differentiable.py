"""Gradients of functionals of solutions: by the adjoint in numpy, through torch, and Taylor's test of both."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch

from mosaicdd.gradients.in_strips import InStrips, require_converged, require_solved
from mosaicdd.gradients.in_time import DifferentiableMarch
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.gradients.solve_function import Differentiable
from mosaicdd.grid.window import Window
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.given import real_array, require_place, usable
from mosaicdd.problems.problem import Problem
from mosaicdd.settings import require_type
from mosaicdd.solution.solution import Solution
from mosaicdd.solution.solver import Solver
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.tensors import lent
from mosaicdd.time.settings import TimeSettings
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported


@on_processor()
def adjoint(
    solution: Solution, dJ_du: Any, *, solver: Solver | None = None, rtol: float | None = None
) -> dict[str, np.ndarray]:
    """Return the gradient of a functional ``J(u)`` by all that the problem was given.

    One more solve, which on several ranks all call together. It is exact for the discrete solution, to the tolerances
    of both solves. So far each rank holds the adjoint's source and solution whole.

    Parameters
    ----------
    solution
        Of a problem that `differentiable` takes.
    dJ_du
        The derivative by the value at each node, of the shape of `Solution.local`.
    solver
        The open one by which the problem was solved, whose plan then serves the adjoint, too; else another is planned.
    rtol
        The tolerance of the adjoint; by default that of the solver's settings, or of the solution's.

    Returns
    -------
    dict
        By name: coefficients ``a``, ``axx``, ``axy``, ``ayy``, ``c``, ``bx`` per node or cell, as they were given, and the source
        ``f`` per node: on several ranks at this rank's nodes, and in the cells above and to the right of them; for a
        number the sum. Values, fluxes or what Robin's conditions have by the side or part, at all nodes of the side, and
        ``left.alpha``: on each rank all.

    Raises
    ------
    RuntimeError
        If the solution or the adjoint has not converged.
    ValueError
        If ``dJ_du`` is of another shape or not finite, or the problem's data changed since.
    Unsupported
        If the problem is of another kind, or the solution of a window.
    """
    require_type("solution", solution, Solution)
    parameters = Parameters(solution.problem)
    require_converged(solution, "solution")
    results, grid = solution.kept, parameters.grid
    if results.window != Window.whole(grid):
        raise Unsupported("gradients are of the whole field, and this solution has a window of it")
    with Ranks.of(results.given_ranks) as ranks:
        results.require_fingerprint(solution.problem, ranks)
        w = ranks.sum(ranks.run_on_all(lambda: _derivatives(solution, dJ_du, parameters)))
        u = lent(np.asarray(solution.gather(), float))
        strips = ranks.run_on_all(lambda: InStrips(parameters, results.own))
        ranks.run_on_all(lambda: strips.require_values(u))
        v = _solved(parameters, solution, solver, u, w, rtol)
        values = {name: torch.from_numpy(array) for name, array in parameters.values().items()}
        names = [*values, *parameters.shifted]
        at, tests, force = map(torch.from_numpy, (u, v, w))
        slopes, left = strips(values, names, at, tests, force, ranks.sum)
        require_solved(ranks.sum(left))
        gradient = {name: slope.numpy() for name, slope in slopes.items()}
        for name in names:
            if name not in parameters.fields or gradient[name].ndim == 0:
                gradient[name] = ranks.sum(gradient[name])
    return {name: np.asarray(gradient[name]) for name in names}


def _solved(
    parameters: Parameters,
    solution: Solution,
    solver: Solver | None,
    u: np.ndarray,
    w: np.ndarray,
    rtol: float | None,
) -> np.ndarray:
    """Return the adjoint of the whole grid, for derivatives by each value; all ranks together."""
    problem, results = parameters.problem, solution.kept
    if solver is not None:
        return solver.change(u, w, problem=problem, rtol=rtol, transposed=True)
    settings = {"ranks": results.given_ranks, "settings": results.settings}
    with Solver(problem, "exact", rtol=rtol, keep="unknowns", **settings) as planned:
        return planned.change(u, w, rtol=rtol, transposed=True)


def _derivatives(solution: Solution, dJ_du: Any, parameters: Parameters) -> np.ndarray:
    """Return the functional's derivatives on the whole grid, zero elsewhere and outside of a shape."""
    weights, local = usable(dJ_du, "dJ_du"), np.asarray(solution.local)
    if tuple(local.shape) == parameters.grid.nodes:
        require_place(weights, parameters.grid, "dJ_du")
    slopes = real_array(weights, "dJ_du")
    if slopes.shape != local.shape:
        raise ValueError(f"dJ_du has the shape {slopes.shape}, the solution {tuple(local.shape)}")
    if parameters.problem.domain.shape is not None:
        slopes = np.where(np.isfinite(local), slopes, 0.0)
    if not np.isfinite(slopes).all():
        raise ValueError("dJ_du must be finite")
    whole = np.zeros(solution.kept.grid.nodes)
    whole[solution.kept.own] = slopes
    return whole


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


# Of what the last term of an expansion adds, and of that of the gradient where another follows: what solves leave.
_EXACT, _BEFORE = 1e-6, 1e-8
_ROUNDING = 1e-15  # of a functional


class TaylorRates(NamedTuple):
    """Orders at which remainders fall with the step, between each two steps.

    Infinite where the expansion is exact to what rounding and solves leave, as that of a linear functional.
    """

    first: tuple[float, ...]
    """Of the value with the gradient: 2."""
    second: tuple[float, ...]
    """With the Hessian, too: 3; empty where it was not asked for."""


def taylor_test(
    functional: Callable[[torch.Tensor], torch.Tensor],
    at: torch.Tensor,
    direction: torch.Tensor,
    *,
    step: float = 1e-2,
    halvings: int = 3,
    hessian: bool = False,
) -> TaylorRates:
    """Return the rates at which the remainders of a functional fall.

    Parameters
    ----------
    functional
        From a tensor to a number.
    at, direction
        Where, and along what, of one shape.
    step
        The longest, times ``direction``; it is halved so many times.
    hessian
        Whether second derivatives count, too, by double backward.

    Raises
    ------
    TypeError
        If these are no tensors.
    ValueError
        If a direction is of another shape, the functional is not one number, or some remainders are at rounding: take a
        longer step.
    """
    for name, tensor in (("at", at), ("direction", direction)):
        require_type(name, tensor, torch.Tensor, "a tensor")
    if at.shape != direction.shape:
        raise ValueError(
            f"the direction has the shape {tuple(direction.shape)}, the place {tuple(at.shape)}"
        )
    at = at.detach().clone().requires_grad_()
    value = functional(at)
    if value.ndim:
        raise ValueError(
            f"a functional gives one number, this one gives the shape {tuple(value.shape)}: take its sum, "
            "or the mean of its square"
        )
    (slope,) = torch.autograd.grad(value, at, create_graph=hessian)
    along = (slope * direction).sum()
    hessian_action = torch.zeros(())
    if hessian and along.requires_grad:
        (curvature,) = torch.autograd.grad(along, at, materialize_grads=True)
        hessian_action = (curvature * direction).sum()
    first, second, noise = [], [], []
    with torch.no_grad():
        for k in range(halvings + 1):
            t = step / 2**k
            left = functional(at + t * direction) - value - t * along
            first.append(float(left.abs()))
            second.append(float((left - t**2 / 2 * hessian_action).abs()))
            slope_adds, bend_adds = (
                float((t * along).abs()),
                float((t**2 / 2 * hessian_action).abs()),
            )
            noise.append((_EXACT * slope_adds, _EXACT * bend_adds + _BEFORE * slope_adds))
    of_first, of_second = zip(*noise, strict=True)
    size = abs(float(value.detach()))
    rates = _rates(first, of_first, size, step)
    if not hessian:
        return TaylorRates(rates, ())
    # Where nothing bends, what is left of the second order is that of the first.
    bent = math.isfinite(rates[0]) if rates else True
    return TaylorRates(rates, _rates(second, of_second, size, step) if bent else rates)


def _rates(
    remainders: list[float], noise: Sequence[float], size: float, step: float
) -> tuple[float, ...]:
    """Return the orders at which remainders fall; ``noise``: what solves leave of each."""
    rounding = _ROUNDING * size
    if all(r <= max(least, rounding) for r, least in zip(remainders, noise, strict=True)):
        return (math.inf,) * (len(remainders) - 1)
    if min(remainders) <= rounding:
        raise ValueError(
            f"the remainder {min(remainders):.1e} is rounding of {size:.3g}: take a longer step than {step:g}"
        )
    return tuple(math.log2(a / b) for a, b in itertools.pairwise(remainders))
