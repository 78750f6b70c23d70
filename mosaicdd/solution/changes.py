"""Changes of a solution that the derivative of its equations turns into a force: steps, and adjoints."""

from collections.abc import Callable, Iterator

import numpy as np

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.solution.solution import Solution
from mosaicdd.solution.work import SolveJob
from mosaicdd.solvers.settings import CONVERGED


def change_of(
    world: Ranks,
    work: SolveJob,
    solve: Callable[[Problem], Solution],
    values: np.ndarray,
    force: np.ndarray,
    rtol: float,
    *,
    transposed: bool,
) -> np.ndarray:
    """Return the change of values that the derivative of a problem's equations there turns into a force.

    Of the whole grid, on all ranks, which call it together; see `BaseEngine.change`. Of a linear problem it is the
    same at all values: what the equations without data make of the force.

    `RuntimeError` if the solve has not converged.

    Parameters
    ----------
    world
        All ranks.
    work
        The problem, and what solves it.
    solve
        Solves another problem of the same kind.
    values
        Of the problem at all nodes, in the order of arrays.
    force
        The same shape, times the squared spacing; of a periodic axis both ends count.
    rtol
        Of the residual, relative to the force.
    transposed
        Whether it is the derivative transposed that does, as of adjoints; without a velocity it is the same.
    """
    if not force.any():
        return np.zeros(values.shape)
    engine = work.first_engine
    own, periodic = engine.owned, engine.partition.periodic
    force = np.array(force) if any(periodic) else force
    for ends in _around(force, periodic):
        ends[0] += ends[-1]
    changed = engine.change(values[own], force[own], rtol, transposed=transposed)
    if changed is None:
        # With constant coefficients the transposed equations are those seen from the opposite corner.
        turned = (slice(None, None, -1 if transposed else 1),) * force.ndim
        source = force[turned] / engine.grid.spacing**2
        solution = solve(work.problem.with_fields(f=source).with_sides(Dirichlet(0.0)))
        _require_converged(solution.status)
        return np.array(solution.gather(), float)[turned].copy()
    change, status = changed
    _require_converged(status)
    whole = np.zeros(values.shape)
    whole[own] = change
    whole = world.sum(whole)
    for ends in _around(whole, periodic):
        ends[-1] = ends[0]
    return whole


def _around(values: np.ndarray, periodic: tuple[bool, ...]) -> Iterator[np.ndarray]:
    """Yield values of the whole grid by the nodes along each periodic axis: at the last are copies of the first."""
    for axis, around in enumerate(periodic):
        if around:
            yield np.moveaxis(values, axis, 0)


def _require_converged(status: str) -> None:
    """Raise `RuntimeError` unless a solve of a change has."""
    if status not in CONVERGED:
        raise RuntimeError(
            f"the adjoint has not converged ({status}): its gradient would be wrong; give more iterations or a "
            "larger tolerance"
        )
