"""Gradients by the adjoint: against central differences in all that a problem was given, and on ranks against one."""

import numpy as np
from central_differences import central_difference

import mosaicdd as m
from mosaicdd.gradients.parameters import Parameters

TIGHT = m.SolveSettings(rtol=1e-12)
_STEP = 1e-4


def drawn(shape, seed=0):
    return np.array(np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape))


def _functional(problem):
    field = m.solve(problem, "exact", settings=TIGHT).field
    return np.nan_to_num(drawn(field.shape, 5) * field**2)


def beside_differences(problem):
    """Return the parts of a directional derivative by what each is by, and the central difference."""
    shown = np.isfinite(m.solve(problem, "exact").field)
    with m.Solver(problem, "exact", settings=TIGHT, keep="unknowns") as solver:
        solution = solver()
        slope = np.where(shown, 2 * drawn(shown.shape, 5) * solution.field, 0.0)
        by = m.adjoint(solution, slope, solver=solver)
    known = Parameters(problem)
    values = known.values()
    assert by.keys() == values.keys()
    along = {n: drawn(held.shape, 7) for n, held in values.items()}
    along |= {n: 0.01 * along[n] for n in known.of_shape}  # an outline passes no node

    def moved(s):
        return _functional(known.with_values({n: v + s * along[n] for n, v in values.items()}))

    parts = {n: float((by[n] * along[n]).sum()) for n in values}
    return parts, central_difference(moved, _STEP)


def require_alike(problem, comm, by_one):
    """Check that ranks have their parts of the gradients that one has, per node or per cell."""
    w = drawn(problem.domain.grid().nodes, 9)
    expected = by_one(lambda: m.adjoint(m.solve(problem, "exact", settings=TIGHT), w))
    with m.Solver(problem, "exact", settings=TIGHT, ranks=comm) as solver:
        solution = solver()
        by = m.adjoint(solution, w[solution.place], solver=solver)
    for of, values in expected.items():
        mine = values[solution.place] if values.ndim == 2 else values  # of cells those there are
        np.testing.assert_allclose(by[of], mine, rtol=1e-7, atol=1e-9 * abs(values).max())
