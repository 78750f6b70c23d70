"""The residual in few passes against the operator of conductances."""

import numpy as np
import pytest
import torch

from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.field_residual import Stencil

ROWS, COLUMNS = 9, 12


def made(*, velocity=False, across=False, reaction=True):
    rng = np.random.default_rng(0)
    up, down = rng.uniform(1, 2, (2, ROWS - 1, COLUMNS))
    right, left = rng.uniform(1, 2, (2, ROWS, COLUMNS - 1))
    c = rng.uniform(1, 2, (ROWS, COLUMNS)) * reaction
    if velocity:
        return Conductances((up, right), c, (down, left))
    diagonals = rng.uniform(1, 2, (2, ROWS - 1, COLUMNS - 1)) if across else None
    return Conductances((up, right), c, across=diagonals)


@pytest.mark.parametrize(
    "kind", [{}, {"velocity": True}, {"across": True}, {"reaction": False}], ids=str
)
def test_it_is_what_conductances_make_less_the_source(kind):
    conductances, rng = made(**kind), np.random.default_rng(1)
    stencil = Stencil(conductances)
    for _ in range(2):
        u, f = rng.standard_normal((ROWS, COLUMNS)), rng.standard_normal((ROWS - 2, COLUMNS - 2))
        expected = conductances.apply(u)
        found = stencil.residual(torch.from_numpy(u))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
        found = stencil.residual(torch.from_numpy(u), torch.from_numpy(f), 0.25)
        np.testing.assert_allclose(found, expected - 0.25 * f, rtol=0, atol=1e-13)


@pytest.mark.filterwarnings("error")
def test_it_takes_arrays_that_may_not_be_written_to():
    conductances = made()
    for one in conductances.arrays():
        one.flags.writeable = False
    u = np.random.default_rng(1).standard_normal((ROWS, COLUMNS))
    found = Stencil(conductances).residual(torch.from_numpy(u))
    np.testing.assert_allclose(found, conductances.apply(u), rtol=0, atol=1e-13)
