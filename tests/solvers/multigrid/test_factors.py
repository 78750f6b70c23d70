"""Sparse factors of symmetric positive matrices, against dense solves."""

import numpy as np
import pytest
import scipy.sparse

from mosaicdd.solvers.multigrid import aggregates as factors
from mosaicdd.solvers.multigrid.aggregates import Factors


def network(count, seed=0):
    """Return couplings of 12 decades between random nodes, a chain among them, with one held."""
    rng = np.random.default_rng(seed)
    chain = np.arange(count - 1)
    a = np.concatenate([chain, rng.integers(0, count, 2 * count)])
    b = np.concatenate([chain + 1, rng.integers(0, count, 2 * count)])
    a, b = a[a != b], b[a != b]
    k = 10.0 ** rng.uniform(-6, 6, len(a))
    matrix = scipy.sparse.coo_array((-k, (a, b)), (count, count)).tocsc()
    matrix = matrix + matrix.T
    excess = np.zeros(count)
    excess[0] = 1.0
    return scipy.sparse.csc_array(matrix + scipy.sparse.diags_array(excess - matrix.sum(axis=0)))


@pytest.mark.parametrize("by_code", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_they_solve_to_rounding(count, by_code, monkeypatch):
    if by_code:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(factors, "kernels", lambda: None)
    matrix = network(count)
    made, b = Factors(matrix), np.random.default_rng(1).standard_normal(count)
    assert hasattr(made._solve, "__code__") == by_code  # that of SuperLU is no function of Python
    x = made.solve(b)
    # Of a backward stable solve: what is left is rounding of the terms, at most so many in a row.
    rounding = count * np.finfo(float).eps * (abs(matrix) @ abs(x) + abs(b))
    assert (abs(matrix @ x - b) <= rounding).all()


def test_half_of_the_factors_is_kept():
    """SuperLU's are held by whatever array of theirs is."""
    pytest.importorskip("numba")
    solve = Factors(network(50))._solve
    held = [cell.cell_contents for cell in solve.__closure__]
    arrays = [of for of in held if isinstance(of, np.ndarray)]
    assert len(arrays) >= 4
    assert all(of.base is None or isinstance(of.base, np.ndarray) for of in arrays)
