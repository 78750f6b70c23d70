"""Relaxation by means of the derivative beside Newton's method, in many squares at once."""

import numpy as np
import pytest
import torch

from mosaicdd.local_solvers.nonlinear.square_newton import SquareNewton
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.fields.gaussian_process import sample_sloped_square

CELLS, SPACING = 16, 1 / 64
CASES = {
    "minimal-surface": ({}, lambda x, y: 0.8 * np.sin(1.3 * x + 0.5 * y) * np.cos(0.7 * y)),
    "poisson-boltzmann": ({"c": 10.0}, lambda x, y: 2.0 * np.sin(1.3 * x + 0.5 * y)),
}


@pytest.fixture(params=CASES)
def squares(request):
    """Return a solver, squares with the linear solution inside, a source, fields, and Newton's solutions."""
    given, values = CASES[request.param]
    operator = any_equation(request.param).operator(given)
    newton = SquareNewton(operator, CELLS, SPACING, torch.device("cpu"))
    rng = np.random.default_rng(5)
    along = np.arange(CELLS + 1) * SPACING
    places = rng.uniform(0, 20, (40, 2))
    u = np.stack([values(along + x, along[:, None] + y) for y, x in places])
    u = torch.from_numpy(u)
    f = torch.from_numpy(rng.standard_normal((40, CELLS - 1, CELLS - 1)))
    fields = {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}
    newton.linear(u, f, torch.tensor(given.get("c", 0.0), dtype=torch.float64))
    truth = u.clone()
    assert not newton.solve(truth, f, fields, 1e-9).any()
    return newton, u, f, fields, truth


@pytest.mark.parametrize("tolerance", [1e-3, 1e-4])
def test_it_leaves_a_tenth_of_its_last_step(squares, tolerance):
    newton, u, f, fields, truth = squares
    assert newton.relax(u, f, fields, newton.means(u, fields), tolerance).all()
    size = truth.abs().amax(dim=(1, 2))
    assert float(((u - truth).abs().amax(dim=(1, 2)) / size).max()) <= 0.2 * tolerance


def test_no_square_depends_on_those_beside_it(squares):
    newton, u, f, fields, _ = squares
    together, alone = u.clone(), u.clone()
    newton.relax(together, f, fields, newton.means(u, fields), 1e-4)
    for i in range(0, len(u), 7):
        means = newton.means(u[i : i + 1], fields)
        newton.relax(alone[i : i + 1], f[i : i + 1], fields, means, 1e-4)
        # Sums of float32 in another order; a step more or less would be a thousand times that.
        assert float((alone[i] - together[i]).abs().max()) <= 1e-7 * float(u.abs().max())


def test_what_is_not_finite_is_said_not_to_have_converged(squares):
    newton, u, f, fields, _ = squares
    u[3, 0, 5] = torch.nan
    done = newton.relax(u, f, fields, newton.means(u, fields), 1e-4)
    assert not done[3]
    assert done[torch.arange(40) != 3].all()


def test_sloped_squares_are_as_steep_as_asked_for():
    rng = np.random.default_rng(1)
    curves = np.stack([sample_sloped_square(rng, 32, 0.5, 2.0) for _ in range(300)])
    slopes = np.abs(curves - np.roll(curves, 1, axis=1)).max(axis=1) * 64
    assert slopes.max() <= 2.0 + 1e-12
    assert (slopes > 1.99).mean() > 0.02
    assert np.abs(curves.mean(axis=1)).max() < 1e-12
