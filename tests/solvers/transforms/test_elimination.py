"""Elimination along one axis: against a direct solution of the same equations."""

import itertools

import numpy as np
import pytest

from mosaicdd.solvers.transforms.sine_system import elimination

BOTH = (True, False)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("given", list(itertools.product(BOTH, BOTH)))
def test_it_solves_for_every_wave_of_the_other_axes(count, given):
    """To some roundings times the condition, at most ``4 / 0.01``."""
    if count == 1 and given != (True, True):
        return  # no axis of one unknown has another end
    rng, k = np.random.default_rng(0), 0.25
    diagonal = 2.01 + rng.random((5, 3))
    f = rng.random((count, 5, 3))
    solution = f.copy()
    elimination(solution, k, diagonal, given)()
    for at in np.ndindex(diagonal.shape):
        matrix = diagonal[at] * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
        if not given[0]:
            matrix[0, 1] = -2.0
        if not given[1]:
            matrix[-1, -2] = -2.0
        exact = np.linalg.solve(k * matrix, f[:, *at])
        np.testing.assert_allclose(solution[:, *at], exact, rtol=1e-12)
