"""The discrete system against the stencil it stands for."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.discretisation.discrete import DirichletSystem

# Nine different weights: neither axis nor direction can be mistaken.
ANY = m.EllipticOperator(ayy=2.0, axx=3.0, axy=0.7, by=1.5, bx=-4.0, c=6.0)
LAPLACE = m.EllipticOperator()
SPACING = 0.25


@pytest.mark.parametrize("of", [LAPLACE, ANY])
def test_matrix_and_right_hand_side_together_apply_the_stencil(of):
    ny, nx = 5, 8
    field = np.random.default_rng(0).standard_normal((ny + 1, nx + 1))
    system = DirichletSystem(of, m.Domain((ny, nx), SPACING).grid())
    stencil = of.stencil(SPACING)
    expected = np.zeros((ny - 1, nx - 1))
    for j in range(1, ny):
        for i in range(1, nx):
            window = field[j - 1 : j + 2, i - 1 : i + 2]
            expected[j - 1, i - 1] = (stencil * window).sum()
    inside = field[1:-1, 1:-1].ravel()
    result = system.matrix @ inside - system.right_hand_side(field)
    # Two sums of 9 products of weights up to 50 and values up to 4, in any order.
    np.testing.assert_allclose(result, expected.ravel(), rtol=0, atol=2 * 9 * 200 * 1.2e-16)
    np.testing.assert_allclose(system.apply(field), expected, rtol=0, atol=2 * 9 * 200 * 1.2e-16)


def test_the_solution_satisfies_the_system_for_all_right_hand_sides():
    system = DirichletSystem(LAPLACE, m.Domain((9, 6), 1.0).grid())
    field = np.random.default_rng(0).standard_normal((10, 7, 3))
    b = system.right_hand_side(field)
    # A backward stable solve: a few eps |A| |u|, |A| <= 8.
    np.testing.assert_allclose(system.matrix @ system.solve(b), b, rtol=0, atol=1e-13)


def test_exact_solutions_solve_the_discrete_equation_up_to_degree_3():
    y, x = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9), indexing="ij")
    found = LAPLACE.exact_polynomials(3, y.ravel(), x.ravel()).reshape(9, 9, -1)
    assert found.shape[-1] == 7
    assert np.linalg.matrix_rank(found.reshape(81, 7)) == 7
    # Sums of five values below 4.
    np.testing.assert_allclose(
        DirichletSystem(LAPLACE, m.Domain((8, 8), 1.0).grid()).apply(found), 0, atol=1e-14
    )
