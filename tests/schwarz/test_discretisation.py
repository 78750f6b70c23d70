"""The discretisation error, and no more, on a domain that is no square.

For harmonic ``u`` the five-point residual is at most ``h**2 / 12 (|u_xxxx| + |u_yyyy|) = h**2 / 6
max |u_xxxx|``. The comparison function ``x (L - x) / 2 <= L**2 / 8``, exact for the five-point
operator, turns it into an error of at most ``L**2 h**2 / 48 max |u_xxxx|``.
"""

import numpy as np
import pytest

from mosaicdd.problems.sides.boundary import Boundary

WIDTH, HEIGHT = 2.0, 1.5
# Expression, function and the greatest fourth derivative on the domain.
SOLUTIONS = {
    "x**2 - y**2": (lambda x, y: x**2 - y**2, 0.0),
    "exp(x)*sin(y)": (lambda x, y: np.exp(x) * np.sin(y), np.exp(WIDTH) * np.sin(HEIGHT)),
    # 2 Re log(z + 1 + i): the fourth derivative is 12 / |z + 1 + i|**4, greatest at the origin.
    "log((x+1)**2 + (y+1)**2)": (lambda x, y: np.log((x + 1) ** 2 + (y + 1) ** 2), 3.0),
}
RTOL = 1e-11


def error(text, m, make_lattice, make_solver, **settings):
    """Return the greatest error for subdomains of ``m`` cells and side 1/2, and the spacing."""
    lattice = make_lattice((round(HEIGHT * 4), round(WIDTH * 4)), m)
    solver = make_solver(lattice, rtol=RTOL, **settings)
    field = solver.solve(Boundary.of_expression(text, lattice.grid)).field
    y, x = (
        np.linspace(0, s, n) for s, n in zip(lattice.grid.size, lattice.grid.nodes, strict=True)
    )
    return np.abs(field.numpy() - SOLUTIONS[text][0](x, y[:, None])).max(), lattice.grid.spacing


@pytest.mark.parametrize("text", SOLUTIONS)
def test_it_is_within_its_bound(text, make_lattice, make_solver):
    for m in (8, 16, 32):
        found, h = error(text, m, make_lattice, make_solver)
        bound = min(WIDTH, HEIGHT) ** 2 * h**2 / 48 * SOLUTIONS[text][1]
        # The iteration leaves less than its last update, RTOL of values below 8, in the mean
        # square; at one node at most sqrt(unknowns) < 100 times that.
        assert found <= bound + 100 * 8 * RTOL


@pytest.mark.parametrize("text", [text for text in SOLUTIONS if SOLUTIONS[text][1]])
def test_it_falls_with_the_square_of_the_spacing(text, make_lattice, make_solver):
    (coarse, _), (fine, h) = (error(text, m, make_lattice, make_solver) for m in (16, 32))
    # The next term of the residual is h**2 / 30 u_6 / u_4 <= 3e-4 of the first for h = 1/32 and
    # sixth derivatives of at most 10 times the fourth; and the node of the greatest error moves by
    # less than h = 1/32, which changes a parabola over the domain by (1/32)**2 / (3/4)**2 = 2e-3.
    assert h == 1 / 64
    assert coarse / fine == pytest.approx(4.0, rel=0.01)


def test_quadratic_data_are_reproduced_to_rounding(make_lattice, make_solver):
    found, _ = error("x**2 - y**2", 32, make_lattice, make_solver, accelerate="gmres")
    assert found <= 100 * 8 * RTOL
