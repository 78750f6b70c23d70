"""The gradient of a functional of a solution by the adjoint method, in numpy."""

from typing import Any

import numpy as np
import torch

from mosaicdd.gradients.in_strips import InStrips
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.grid.window import Window
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.given import real_array, require_place, usable
from mosaicdd.settings import require_type
from mosaicdd.solution.solution import Solution
from mosaicdd.solution.solver import Solver
from mosaicdd.tensors import lent
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

_LEFT = 1e-5  # of the functional's derivatives that an adjoint may leave, at most


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


def require_converged(solution: Solution, what: str) -> None:
    """Raise `RuntimeError` unless it has."""
    if not solution.converged:
        raise RuntimeError(
            f"the {what} has not converged ({solution.status}): its gradient would be wrong; "
            "give more iterations or a larger tolerance"
        )


def require_solved(left: np.ndarray) -> None:
    """Raise `RuntimeError` if an adjoint contradicts its equations, by two sums of squares; see `InStrips`."""
    remains, asked = np.sqrt(left)
    if not remains <= _LEFT * asked:
        raise RuntimeError(
            f"the adjoint leaves {remains:.1e} of the functional's derivatives, more than {_LEFT * asked:.1e}: the "
            "solution is where the equation has no derivative, or rtol is too large; give smoother data, or a smaller one"
        )
