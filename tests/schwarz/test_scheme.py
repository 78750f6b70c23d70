"""The scheme that follows from the measured spectrum of an operator's iteration."""

import numpy as np
import pytest

from mosaicdd import EllipticOperator
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import tensor
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.method import measure_spectrum, scheme_of

SQUARE = Subdomain()
STRONG = EllipticOperator(**tensor(100.0, 0.3))


def test_laplaces_recorded_interval_is_what_is_measured():
    found = measure_spectrum(EllipticOperator(), SQUARE, 1, cells=16, steps=16)
    assert np.abs(found.imag).max() < 0.05  # of steps that have not converged
    assert 0.20 < found.real.max() <= 0.235
    assert -0.14 <= found.real.min() < -0.08


@pytest.mark.parametrize(
    ("operator", "points", "acceleration"),
    [
        (EllipticOperator(), 1, "chebyshev"),
        (EllipticOperator(ayy=7.0, axx=7.0), 1, "chebyshev"),
        (EllipticOperator(c=50.0), 1, "chebyshev"),
        (EllipticOperator(bx=2.0, by=1.0), 1, "chebyshev"),
        (STRONG, 2, "gmres"),
        (EllipticOperator(bx=100.0), 2, "gmres"),
    ],
)
def test_slow_spectra_get_more_coarse_nodes_and_a_krylov_method(operator, points, acceleration):
    scheme = scheme_of(operator, SQUARE)
    assert (scheme.points, scheme.acceleration) == (points, acceleration)
    assert scheme.safety >= 1.5


@pytest.mark.parametrize(
    ("operator", "settings", "expected"),
    [
        (EllipticOperator(), {}, "chebyshev"),
        (EllipticOperator(), {"levels": 1}, "none"),
        (EllipticOperator(), {"dtype": "float32", "rtol": 1e-5}, "none"),
        (EllipticOperator(), {"accelerate": "none"}, "none"),
        (EllipticOperator(), {"accelerate": "anderson"}, "anderson"),
        (STRONG, {}, "gmres"),
        (STRONG, {"levels": 1}, "none"),
        (STRONG, {"dtype": "float32", "rtol": 1e-5}, "gmres"),
        (STRONG, {"accelerate": "none"}, "none"),
    ],
)
def test_the_acceleration_by_default_depends_on_operator_and_method(
    operator, settings, expected, make_lattice, make_solver
):
    lattice = make_lattice((6, 6), m=32)
    solver = make_solver(lattice, local_solver=ExactSolver(operator, SQUARE), **settings)
    assert solver.acceleration == expected
