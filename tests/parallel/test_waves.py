"""Waves along an axis against the matrix of second differences, and the distributed solve by all of them."""

import itertools

import numpy as np
import pytest

from mosaicdd.parallel.layouts.layout import Layout, Shard
from mosaicdd.parallel.sine_solve import SineSolve, Waves

GIVEN = [(True, True), (True, False), (False, True), (False, False), None]


def second_differences(waves):
    """Return their matrix; beside an end with fluxes values are those on the other side."""
    n = waves.count
    matrix = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    if waves.given is None:
        matrix[0, -1] -= 1
        matrix[-1, 0] -= 1
        return matrix
    if not waves.given[0]:
        matrix[0, 1] -= 1
    if not waves.given[1]:
        matrix[-1, -2] -= 1
    return matrix


@pytest.mark.parametrize("count", [3, 8, 17])
@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_second_differences_of_waves_are_their_eigenvalues_times_these(given, count):
    waves = Waves(count, given)
    heights = np.eye(count)
    modes = waves.values(heights.copy(), 0)
    matrix = second_differences(waves)
    np.testing.assert_allclose(matrix @ modes, modes * waves.eigenvalues, atol=1e-13 * count)
    np.testing.assert_allclose(waves.heights(modes.copy(), 0), heights, atol=1e-13)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("shape", [(7, 12), (5, 4, 9)], ids=str)
def test_a_solve_by_any_waves_is_that_of_one_process(ranks, all_dims, shape):
    every = list(itertools.product(GIVEN, repeat=len(shape)))
    right = np.random.default_rng(0).standard_normal(shape)
    for which in every[:: 1 if len(shape) == 2 else 17]:
        waves = [Waves(n, given) for n, given in zip(shape, which, strict=True)]

        def symbol(*parts, waves=waves):
            along = (w.eigenvalues[part] for w, part in zip(waves, parts, strict=True))
            return 0.5 + sum(np.meshgrid(*along, indexing="ij"))

        whole = right.copy()
        for axis, each in enumerate(waves):
            whole = each.heights(whole, axis)
        whole /= symbol(*(slice(0, n) for n in shape))
        for axis, each in enumerate(waves):
            whole = each.values(whole, axis)
        dims = all_dims[-1] + (1,) * (len(shape) - 2)
        layout = Layout(shape, dims, tuple(Shard(axis) for axis in range(len(shape))))
        solve = SineSolve(layout, layout, symbol, ranks, waves=waves)
        mine = solve(layout.cut(right, ranks.rank))
        # Eigenvalues are 0.5 at least: rounding is that of some transforms.
        np.testing.assert_allclose(mine, layout.cut(whole, ranks.rank), atol=1e-13)
