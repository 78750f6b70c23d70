"""The gradient of a functional of a solution, in numpy, on ranks each its own part."""

from typing import Any

import numpy as np
import torch

from mosaicdd.gradients.lagrangian import Lagrangian, volumes_of
from mosaicdd.gradients.nonlinear import lagrangian_of, linearised_adjoint
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.lattice.axes import within
from mosaicdd.lattice.window import Window
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.results.solution import Solution
from mosaicdd.schwarz.solver import Solver
from mosaicdd.unsupported import Unsupported


def adjoint(
    solution: Solution, dJ_du: Any, *, solver: Solver | None = None, rtol: float | None = None
) -> dict[str, np.ndarray]:
    """Return the gradient of a functional ``J(u)`` by all that the problem was given.

    One more solve, which on several ranks all call together. It is exact for the discrete solution, to the tolerances
    of both solves. So far each rank holds the adjoint's source and solution whole.

    Parameters
    ----------
    solution
        Of a linear self-adjoint problem on a rectangle.
    dJ_du
        The derivative by the value at each node, of the shape of `Solution.local`.
    solver
        The open one by which the problem was solved, whose plan then serves the adjoint, too; else another is planned.
    rtol
        The tolerance of the adjoint where it is planned here; by default that of the solution.

    Returns
    -------
    dict
        By name: coefficients ``a``, ``axx``, ``axy``, ``ayy``, ``c`` per node or cell, as they were given, and the source
        ``f`` per node: on several ranks at this rank's nodes, and in the cells above and to the right of them; for a
        number the sum. Values, fluxes or what Robin's conditions have by the side or part, at all nodes of the side, and
        ``left.alpha``: on each rank all.

    Raises
    ------
    RuntimeError
        If the solution or the adjoint has not converged.
    ValueError
        If ``dJ_du`` is of another shape or not finite.
    Unsupported
        If the problem is of another kind, or the solution of a window.
    """
    parameters = Parameters(solution.problem)
    require_converged(solution, "solution")
    kept, grid = solution.kept, parameters.grid
    if kept.window != Window.whole(grid):
        raise Unsupported("gradients are of the whole field, and this solution has a window of it")
    with Ranks.of(kept.given_ranks) as ranks:
        w = ranks.agree(lambda: _derivatives(solution, dJ_du, parameters))
        wide = ranks.sum(w)
        u = np.asarray(solution.gather(), float)
        around, reach, kind = [], Lagrangian.reach(parameters), lagrangian_of(parameters)
        for p, n in zip(kept.own, grid.nodes, strict=True):
            around.append(slice(max(p.start - reach, 0), min(p.stop + reach, n)))
        part = tuple(around)
        numbers = [name for name, field in parameters.fields.items() if field.number is not None]
        lagrangian = ranks.agree(lambda: kind(parameters, kept.own, part, numbers))
        ranks.agree(lambda: lagrangian.require_values(u[part]))
        ranks.agree(lambda: lagrangian.require_driven(torch.from_numpy(wide[part])))
        whole = lagrangian if part == parameters.whole else None
        v = solved_adjoint(parameters, wide, u, solver, solution, rtol, whole)
        gradient = _of_part(lagrangian, parameters, kept.own, part, u[part], v[part], wide[part])
        for name in parameters.names:
            if name not in parameters.fields or gradient[name].ndim == 0:
                gradient[name] = ranks.sum(gradient[name])
    return gradient


def _derivatives(solution: Solution, dJ_du: Any, parameters: Parameters) -> np.ndarray:
    """Return them of the whole grid, zero at the nodes of others and outside of a shape."""
    slopes, local = np.asarray(dJ_du, float), np.asarray(solution.local)
    if slopes.shape != local.shape:
        raise ValueError(f"dJ_du has the shape {slopes.shape}, the solution {tuple(local.shape)}")
    if parameters.problem.domain.shape is not None:
        slopes = np.where(np.isfinite(local), slopes, 0.0)
    if not np.isfinite(slopes).all():
        raise ValueError("dJ_du must be finite")
    whole = np.zeros(solution.kept.lattice.grid.nodes)
    whole[solution.kept.own] = slopes
    return whole


def require_converged(solution: Solution, what: str) -> None:
    """Raise `RuntimeError` unless it has."""
    if not solution.converged:
        raise RuntimeError(
            f"the {what} has not converged ({solution.status}): its gradient would be wrong; "
            "give more iterations or a larger tolerance"
        )


def solved_adjoint(
    parameters: Parameters,
    w: np.ndarray,
    u: np.ndarray,
    solver: Solver | None,
    solution: Solution,
    rtol: float | None,
    lagrangian: Lagrangian | None,
) -> np.ndarray:
    """Return the adjoint of the whole grid, for derivatives by each value; all ranks together.

    ``lagrangian``: of the whole grid, if there is one already.
    """

    def solved(by: Solver) -> np.ndarray:
        if parameters.linear:
            return whole_field(by, problem, "adjoint")
        nodes = parameters.whole
        whole = lagrangian or lagrangian_of(parameters)(parameters, nodes, nodes)
        named = {name: torch.from_numpy(values) for name, values in parameters.values().items()}
        return linearised_adjoint(by, whole, named, u, w)

    problem = parameters.problem
    if parameters.linear:
        problem = parameters.with_source_only(source_of(w, parameters))
    if solver is not None:
        return solved(solver)
    kept = solution.kept
    settings = {"ranks": kept.given_ranks, "settings": kept.settings, "rtol": rtol}
    with Solver(problem, "exact", keep="unknowns", **settings) as planned:
        return solved(planned)


def whole_field(solver: Solver, problem: Problem, what: str) -> np.ndarray:
    """Return a solution on each rank, converged."""
    solution = solver(problem)
    require_converged(solution, what)
    return np.array(solution.gather(), float)


def source_of(w: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return the source that drives each node's equation by so much; zero at nodes without a volume."""
    volumes = volumes_of(parameters)
    return np.divide(w, volumes, out=np.zeros(w.shape), where=volumes > 0)


def _of_part(
    lagrangian: Lagrangian, parameters: Parameters, own: Part, wide: Part, *fields: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the gradient at a process's nodes; of numbers and sides its share of it.

    ``fields``: the solution, the adjoint, and the derivatives by each value, at the wide nodes.
    """
    nodes = parameters.grid.nodes
    cells = tuple(slice(p.start, p.stop - 1) for p in wide)
    values, named = parameters.values(), {}
    for name, value in values.items():
        if name in parameters.fields:
            if value.ndim == 0:
                value = np.broadcast_to(value, [p.stop - p.start for p in wide])
            else:
                value = value[wide if value.shape == nodes else cells]
        named[name] = torch.tensor(value, requires_grad=True)
    before = {name: value.detach() for name, value in named.items()}
    rises = {
        name: torch.zeros((), dtype=torch.float64, requires_grad=True)
        for name in parameters.shifted
    }
    u, v, w = (torch.from_numpy(np.ascontiguousarray(field)) for field in fields)
    total = lagrangian(named, before, u, v, w, rises)
    named |= rises
    slopes = torch.autograd.grad(total, list(named.values()), materialize_grads=True)
    gradient = {}
    for name, slope in zip(named, slopes, strict=True):
        mine = slope.numpy()
        if name in parameters.fields:
            mine = mine[within(own, wide)]  # of cells as of their lower left nodes
            if values[name].ndim == 0:
                mine = mine.sum()
        gradient[name] = np.asarray(mine)
    return gradient
