"""The distributed solve by sines and other waves, against transforms of the whole array and matrices."""

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.fft
from movements import CountedMovements

from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.solvers.transforms.sine_solve import SineSolve, SineTransform

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)

# Uneven on every number of ranks; fewer rows, or columns, than ranks.
SHAPES = [(13, 17), (3, 40), (29, 2), (1, 1)]


def laplace(shape):
    """Return the symbol of the 5-point stencil for a part of the modes."""

    def symbol(rows, columns):
        y, x = (
            4 * np.sin(np.pi * np.arange(part.start + 1, part.stop + 1) / (2 * (n + 1))) ** 2
            for part, n in zip((rows, columns), shape, strict=True)
        )
        return y[:, None] + x

    return symbol


def solver(source, target, symbol, ranks, **options):
    """Return the solve by transforms along all axes."""
    transforms = SineSolve(source, target, ranks, **options)
    inverse = transforms.inverse(symbol)
    return lambda right, out=None: transforms(right, inverse, out)


def by_scipy(right):
    transformed = scipy.fft.dstn(right, type=1)
    transformed /= laplace(right.shape)(*(slice(0, n) for n in right.shape))
    return scipy.fft.idstn(transformed, type=1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_solution_with_its_halos_is_that_of_the_whole_array(ranks, all_dims, shape):
    for dims in all_dims:
        source = Layout(shape, dims, (Shard(0), Shard(1)))
        target = Layout(shape, dims, (Halo(0, 1), Halo(1, 1)))
        solve = solver(source, target, laplace(shape), ranks)
        for seed in range(2):
            right = np.random.default_rng(seed).standard_normal(shape)
            solution = by_scipy(right)
            out = np.empty(target.local_shape(ranks.rank))
            mine = solve(source.cut(right, ranks.rank), out)
            assert mine is out
            # Rounding of the right-hand side, through the inverse: eps times the condition of A,
            # at most 4 (n + 1)^2 / pi^2, and a few for the transforms.
            tolerance = 10 * np.finfo(float).eps * (max(shape) + 1) ** 2 * abs(right).max()
            np.testing.assert_allclose(
                mine, target.cut(solution, ranks.rank), rtol=0, atol=tolerance
            )


def test_a_rank_holds_rows_columns_and_symbol(ranks):
    shape = (120, 120)  # divisible by all numbers of ranks: a share is the same everywhere
    share = 8 * shape[0] * shape[1] // ranks.size
    rows = Layout(shape, (ranks.size,), (Shard(0),))  # what the solve needs: two transpositions
    mine = np.ones(rows.local_shape(ranks.rank))
    tracemalloc.start()
    solve = solver(rows, rows, laplace(shape), ranks)
    arrays = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
    )
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    solve(mine)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    # One rank alone transforms rows in their place, which are its columns, too.
    held = (3 if ranks.size > 1 else 2) * share
    assert 0 <= sum(trace.size for trace in arrays.traces) - held <= 64
    assert peak <= share + 10_000  # the solution, and the interpreter's small objects


def test_several_problems_are_solved_as_each_alone_in_four_calls(ranks, monkeypatch):
    shape, problems = (13, 17), 5
    source = Layout(shape, (1, ranks.size), (Shard(0), Shard(1)))
    target = Layout(shape, (1, ranks.size), (Halo(0, 1), Halo(1, 1)))
    right = np.random.default_rng(0).standard_normal((problems, *shape))
    mine = np.stack([source.cut(each, ranks.rank) for each in right])
    alone = solver(source, target, laplace(shape), ranks)
    expected = [alone(each) for each in mine]
    if ranks.size > 1:
        monkeypatch.setattr(type(ranks), "comm", CountedMovements(ranks.comm))
    solve = solver(source, target, laplace(shape), ranks, problems=problems)
    CountedMovements.calls = 0
    np.testing.assert_array_equal(solve(mine), expected)
    assert CountedMovements.calls == (4 if ranks.size > 1 else 0)


def test_an_array_with_another_number_of_axes_is_refused(ranks):
    layout = Layout((5,), (ranks.size,), (Shard(0),))
    with pytest.raises(ValueError, match=r"two axes at least, its shape is \(5,\)"):
        SineSolve(layout, layout, ranks)


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


@pytest.mark.ranks(1)
@pytest.mark.parametrize("count", [3, 8, 17])
@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_second_differences_of_waves_are_their_eigenvalues_times_these(given, count):
    waves = SineTransform(count, given)
    heights = np.eye(count)
    modes = waves.values(heights.copy(), 0)
    matrix = second_differences(waves)
    np.testing.assert_allclose(matrix @ modes, modes * waves.eigenvalues, atol=1e-13 * count)
    np.testing.assert_allclose(waves.heights(modes.copy(), 0), heights, atol=1e-13)


@pytest.mark.parametrize("shape", [(7, 12), (5, 4, 9)], ids=str)
def test_a_solve_by_any_waves_is_that_of_one_process(ranks, all_dims, shape):
    every = list(itertools.product(GIVEN, repeat=len(shape)))
    right = np.random.default_rng(0).standard_normal(shape)
    for which in every[:: 1 if len(shape) == 2 else 17]:
        waves = [SineTransform(n, given) for n, given in zip(shape, which, strict=True)]

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
        solve = solver(layout, layout, symbol, ranks, waves=waves)
        mine = solve(layout.cut(right, ranks.rank))
        # Eigenvalues are 0.5 at least: rounding is that of some transforms.
        np.testing.assert_allclose(mine, layout.cut(whole, ranks.rank), atol=1e-13)
