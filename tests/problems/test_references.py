"""The two reference solvers against each other, exact solutions and a factorisation."""

import dataclasses

import numpy as np
import pytest

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.references import REFERENCES, solve_by_multigrid, solve_by_sine_transform

GRID = Grid((48, 80), 1 / 64)


def test_multigrid_and_sine_transform_agree_on_a_domain_that_is_no_square():
    boundary = Boundary.of_gaussian_process(GRID, seed=1, noise=0.1)
    one = solve_by_multigrid(LAPLACE, boundary)
    other = solve_by_sine_transform(LAPLACE, boundary)
    # The bound of issue 2. A relative residual of 1e-10 with |b| about 20 and |A^-1| = 1 /
    # (pi**2 (1/48**2 + 1/80**2)) = 172 guarantees 3e-7 in the norm of 3713 nodes: 6e-9 in the mean
    # square.
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("number", range(7))
def test_harmonic_polynomials_up_to_degree_3_are_reproduced(name, number):
    y, x = (np.linspace(0, s, n) for s, n in zip(GRID.size, GRID.nodes, strict=True))
    points = [p.ravel() for p in np.meshgrid(y, x, indexing="ij")]
    exact = LAPLACE.exact_solutions(3, *points)[:, number].reshape(GRID.nodes)
    found = REFERENCES[name](LAPLACE, Boundary.of_field(exact))
    # Sine transform: |A^-1| = 172 times rounding of sums of O(1). Multigrid: 172 times its relative
    # residual of 1e-10 times |b| = 4 sqrt(256 edge nodes), in the worst case all at one node.
    atol = {"dst": 172 * 16 * 2.3e-16, "pyamg": 172 * 1e-10 * 4 * 16}[name]
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)


@pytest.mark.parametrize(
    "stencil",
    [
        ((0.0, 1.0, 0.0), (3.0, -8.0, 3.0), (0.0, 1.0, 0.0)),
        ((1.0, 4.0, 1.0), (4.0, -20.0, 4.0), (1.0, 4.0, 1.0)),
        ((1.0, 2.0, 1.0), (5.0, -18.0, 5.0), (1.0, 2.0, 1.0)),
    ],
)
def test_the_sine_transform_knows_both_axes_and_the_corners_of_a_stencil(stencil):
    other = dataclasses.replace(LAPLACE, stencil=stencil)
    boundary = Boundary.of_gaussian_process(GRID, seed=2)
    system = DirichletSystem(other, boundary.shape)
    field = boundary.impose(np.zeros(GRID.nodes))
    field[1:-1, 1:-1] = system.solve(system.right_hand_side(field)).reshape(47, 79)
    # Two direct methods: condition 1e3 to 1e4 times rounding.
    np.testing.assert_allclose(solve_by_sine_transform(other, boundary), field, rtol=0, atol=1e-11)


def test_a_stencil_without_symmetry_is_refused_with_the_way_out():
    advection = dataclasses.replace(
        LAPLACE, stencil=((0.0, 1.0, 0.0), (2.0, -4.0, 0.0), (0.0, 1.0, 0.0))
    )
    with pytest.raises(ValueError, match="not symmetric; use reference='pyamg'"):
        solve_by_sine_transform(advection, Boundary.of_gaussian_process(GRID))
