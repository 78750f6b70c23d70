"""The distributed sine solve against scipy's transforms of the whole array."""

import tracemalloc

import numpy as np
import pytest
import scipy.fft
from movements import CountedMovements

from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.sine_solve import SineSolve

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


def by_scipy(right):
    transformed = scipy.fft.dstn(right, type=1)
    transformed /= laplace(right.shape)(*(slice(0, n) for n in right.shape))
    return scipy.fft.idstn(transformed, type=1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_solution_with_its_halos_is_that_of_the_whole_array(ranks, all_dims, shape):
    for dims in all_dims:
        source = Layout(shape, dims, (Shard(0), Shard(1)))
        target = Layout(shape, dims, (Halo(0, 1), Halo(1, 1)))
        solve = SineSolve(source, target, laplace(shape), ranks)
        for seed in range(2):
            right = np.random.default_rng(seed).standard_normal(shape)
            solution = by_scipy(right)
            mine = solve(source.cut(right, ranks.rank))
            # Rounding of the right-hand side, through the inverse: eps times the condition of A,
            # at most 4 (n + 1)^2 / pi^2, and a few for the transforms.
            tolerance = 10 * np.finfo(float).eps * (max(shape) + 1) ** 2 * abs(right).max()
            np.testing.assert_allclose(
                mine, target.cut(solution, ranks.rank), rtol=0, atol=tolerance
            )


def test_the_solution_satisfies_the_equation_in_the_halos_of_every_rank(ranks, all_dims):
    shape = (12, 14)
    right = np.random.default_rng(0).standard_normal(shape)
    for dims in all_dims:
        source = Layout(shape, dims, (Shard(0), Shard(1)))
        target = Layout(shape, dims, (Halo(0, 1), Halo(1, 1)))
        out = np.empty(target.local_shape(ranks.rank))
        solve = SineSolve(source, target, laplace(shape), ranks)
        assert solve(source.cut(right, ranks.rank), out) is out
        (box,) = target.owned(ranks.rank)
        padded = np.pad(out, 1)  # the zero values beyond the domain, where there is no halo
        y, x = (slice(part.start + 1, part.stop + 1) for part in box.local)
        north, south = (slice(y.start + d, y.stop + d) for d in (1, -1))
        east, west = (slice(x.start + d, x.stop + d) for d in (1, -1))
        applied = 4 * padded[y, x] - padded[north, x] - padded[south, x]
        applied -= padded[y, east] + padded[y, west]
        # The solution's entries are below 10 and have a relative error of some eps.
        np.testing.assert_allclose(applied, right[box.whole], rtol=0, atol=1e-12)


def test_a_rank_holds_rows_columns_and_symbol(ranks):
    shape = (120, 120)  # divisible by all numbers of ranks: a share is the same everywhere
    share = 8 * shape[0] * shape[1] // ranks.size
    rows = Layout(shape, (ranks.size,), (Shard(0),))  # what the solve needs: two transpositions
    mine = np.ones(rows.local_shape(ranks.rank))
    tracemalloc.start()
    solve = SineSolve(rows, rows, laplace(shape), ranks)
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
    alone = SineSolve(source, target, laplace(shape), ranks)
    expected = [alone(each) for each in mine]
    if ranks.size > 1:
        monkeypatch.setattr(type(ranks), "comm", CountedMovements(ranks.comm))
    solve = SineSolve(source, target, laplace(shape), ranks, problems)
    CountedMovements.calls = 0
    np.testing.assert_array_equal(solve(mine), expected)
    assert CountedMovements.calls == (4 if ranks.size > 1 else 0)


def test_an_array_with_another_number_of_axes_is_refused(ranks):
    layout = Layout((5,), (ranks.size,), (Shard(0),))
    with pytest.raises(ValueError, match=r"two axes at least, its shape is \(5,\)"):
        SineSolve(layout, layout, laplace((5,)), ranks)
