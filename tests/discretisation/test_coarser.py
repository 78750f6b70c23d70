"""The same problem on fewer nodes, and values between these."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.discretisation.coarser import coarser, extrapolated, refined
from mosaicdd.problems.fields.evaluated import Sliced


@pytest.mark.parametrize("apart", [1, 2, 4])
def test_polynomials_of_degree_5_are_refined_exactly(apart):
    def powers(x):
        return np.stack([x**degree for degree in range(6)])

    values, expected = (powers(np.arange(8 * n + 1) / (8 * n)) for n in (1, apart))
    np.testing.assert_allclose(refined(values, apart), expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(refined(values.T, apart, 0), expected.T, rtol=0, atol=1e-13)


def test_what_is_of_second_order_on_two_grids_is_taken_to_a_third():
    y, x = np.meshgrid(np.arange(9) / 8, np.arange(13) / 12, indexing="ij")
    fine, coarse, coarser_yet = (np.sin(x) + h**2 * (1 + x - y * x) for h in (0.1, 0.2, 0.4))
    promised = extrapolated(coarse, coarser_yet[::2, ::2])
    np.testing.assert_allclose(promised, fine, rtol=0, atol=1e-12)


def test_the_nodes_that_are_there_keep_their_values():
    values = np.random.default_rng(0).standard_normal((3, 6))
    np.testing.assert_allclose(refined(values, 4)[:, ::4], values, rtol=0, atol=1e-14)


def test_two_nodes_are_refined_too():
    np.testing.assert_allclose(refined(np.array([[0.0, 1.0]]), 2), [[0.0, 0.5, 1.0]], atol=0.2)


def test_a_coarser_problem_has_the_same_values_at_its_nodes():
    rng = np.random.default_rng(0)
    c, f = rng.uniform(1, 2, (9, 17)), rng.standard_normal((2, 9, 17))
    fine = m.Problem(
        m.Domain((8, 16)), "poisson-boltzmann", {"c": c, "f": f}, m.Dirichlet("x + y*y")
    )
    grid = fine.domain.grid()
    one = coarser(fine, grid, fine.boundaries(grid)[1], 1, 2)
    coarse = one.domain.grid()
    assert (coarse.shape, coarse.spacing) == ((4, 8), 2 * grid.spacing)
    whole = tuple(slice(0, n) for n in coarse.nodes)
    np.testing.assert_array_equal(one.source_at(coarse, whole)[0], f[1, ::2, ::2])
    np.testing.assert_array_equal(one.arrays["c"].sample(coarse, whole)[0], c[::2, ::2])
    (edges,) = one.boundaries(coarse)
    right = (1, 1)  # the high end of x
    expected = fine.boundaries(grid)[1].edges[right][::2]
    np.testing.assert_array_equal(edges.edges[right], expected)


def test_what_no_rank_knows_as_a_whole_makes_no_coarser_problem():
    fine = m.Problem(m.Domain((8, 8)), "poisson-boltzmann", {}, m.Dirichlet("x"))
    grid = fine.domain.grid()
    part = Sliced.on_part(grid.nodes, np.ones((9, 5)), (slice(0, 9), slice(0, 5)))
    one = fine.with_fields(f=part)
    assert coarser(one, grid, fine.boundaries(grid)[0], 0, 2) is None
