"""The two reference solvers against each other, exact solutions and a factorisation."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Problem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.references import (
    REFERENCES,
    solve_by_multigrid,
    solve_by_sine_transform,
    solve_directly,
)

GRID = Grid((48, 80), 1 / 64)


def test_multigrid_and_sine_transform_agree_on_a_domain_that_is_no_square():
    boundary = Boundary.of_gaussian_process(GRID, seed=1, noise=0.1)
    one = solve_by_multigrid(Problem(boundary.shape, LAPLACE, sides=boundary))
    other = solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
    # The bound of issue 2. A relative residual of 1e-10 with |b| about 20 and |A^-1| = 1 /
    # (pi**2 (1/48**2 + 1/80**2)) = 172 guarantees 3e-7 in the norm of 3713 nodes: 6e-9 in the mean
    # square.
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("number", range(7))
def test_harmonic_polynomials_up_to_degree_3_are_reproduced(name, number):
    y, x = (np.linspace(0, s, n) for s, n in zip(GRID.size, GRID.nodes, strict=True))
    points = [p.ravel() for p in np.meshgrid(y, x, indexing="ij")]
    exact = LAPLACE.at().exact_polynomials(3, *points)[:, number].reshape(GRID.nodes)
    found = REFERENCES[name](Problem(GRID.shape, LAPLACE, sides=Boundary.of_field(exact)))
    # Sine transform: |A^-1| = 172 times rounding of sums of O(1). Multigrid: 172 times its relative
    # residual of 1e-10 times |b| = 4 sqrt(256 edge nodes), in the worst case all at one node.
    atol = {"dst": 172 * 16 * 2.3e-16, "direct": 172 * 16 * 2.3e-16, "pyamg": 172 * 1e-10 * 4 * 16}[
        name
    ]
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize(
    "fields",
    [{"axx": 3.0, "ayy": 1.0}, {"c": 40.0}, {"bx": 60.0, "by": -20.0}, {"axx": 2.0, "axy": 0.5}],
)
def test_the_references_agree_with_each_other_for_every_operator_that_they_take(name, fields):
    pde = "screened-poisson" if "c" in fields else "advection-diffusion" if "bx" in fields else ""
    pde = pde or "anisotropic-diffusion"
    source = {"f": lambda x, y: np.sin(7 * x) * np.exp(y)}
    problem = Problem(GRID.shape, pde, fields | source, sides={"top": Dirichlet("sin(3*x)")})
    direct = solve_directly(problem)
    if name == "dst" and not problem.operator.reflective:
        with pytest.raises(ValueError, match=r"not symmetric in both axes.*pyamg or direct"):
            REFERENCES[name](problem)
        return
    # A relative residual of 1e-10 of |b| below 60, and |A^-1| at most 172 (above).
    np.testing.assert_allclose(REFERENCES[name](problem), direct, rtol=0, atol=172 * 60 * 1e-10)
