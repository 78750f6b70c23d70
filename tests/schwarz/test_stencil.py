"""The operator of conductances, and the residual in few passes, against couplings one by one."""

import numpy as np
import pytest
import torch

from mosaicdd.axes import steps_across, steps_along
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.solvers.field_residual import Stencil

PLANE, SPACE = (9, 12), (6, 5, 7)


def made(shape=PLANE, *, velocity=False, across=False, reaction=True):
    rng, axes = np.random.default_rng(0), len(shape)

    def drawn(steps):
        sizes = ([n - abs(s) for n, s in zip(shape, step, strict=True)] for step in steps)
        return tuple(rng.uniform(1, 2, size) for size in sizes)

    along, against = drawn(steps_along(axes)), drawn(steps_along(axes)) if velocity else ()
    diagonals = drawn(steps_across(axes)) if across else ()
    return Conductances(along, rng.uniform(1, 2, shape) * reaction, against, diagonals)


def two_point_flux(conductances):
    """Return the matrix of all nodes, entry by entry."""
    shape = conductances.reaction.shape
    numbers = np.arange(np.prod(shape)).reshape(shape)
    matrix = np.diag(conductances.reaction.ravel())
    for step, forth, back in conductances.edges():
        for place in np.ndindex(*forth.shape):
            first = numbers[tuple(n + (s < 0) for n, s in zip(place, step, strict=True))]
            last = numbers[tuple(n + (s > 0) for n, s in zip(place, step, strict=True))]
            for row, column, k in ((first, last, forth[place]), (last, first, back[place])):
                matrix[row, row] += k
                matrix[row, column] -= k
    return matrix


@pytest.mark.parametrize("shape", [PLANE, SPACE], ids=str)
@pytest.mark.parametrize(
    "kind", [{}, {"velocity": True}, {"across": True}, {"reaction": False}], ids=str
)
def test_every_way_to_the_operator_is_that_of_its_couplings_one_by_one(shape, kind):
    conductances, rng = made(shape, **kind), np.random.default_rng(1)
    matrix, u = two_point_flux(conductances), rng.standard_normal(shape)
    inner = tuple(slice(1, -1) for _ in shape)
    inside = np.zeros(shape, bool)
    inside[inner] = True
    within, close = inside.ravel(), {"rtol": 0, "atol": 1e-12}
    expected = (matrix @ u.ravel()).reshape(shape)[inner]
    np.testing.assert_allclose(conductances.apply(u), expected, **close)
    np.testing.assert_allclose(conductances.matrix().toarray(), matrix[within][:, within], **close)
    diagonal = np.diag(matrix).reshape(shape)
    np.testing.assert_allclose(conductances.diagonal(), diagonal, **close)
    for rows in ([0], [1, 2, 4], [*range(shape[0])]):
        np.testing.assert_allclose(conductances.diagonal_of_rows(np.array(rows)), diagonal[rows])
    around = conductances.around(np.arange(u.size)).reshape(shape)
    np.testing.assert_allclose(around, diagonal - conductances.reaction, **close)
    f = rng.standard_normal(expected.shape)
    stencil = Stencil(conductances)
    for _ in range(2):
        residual = stencil.residual(torch.from_numpy(u))
        np.testing.assert_allclose(residual, expected, **close)
        residual = stencil.residual(torch.from_numpy(u), torch.from_numpy(f), 0.25)
        np.testing.assert_allclose(residual, expected - 0.25 * f, **close)


@pytest.mark.filterwarnings("error")
def test_it_takes_arrays_that_may_not_be_written_to():
    conductances = made()
    for one in conductances.arrays():
        one.flags.writeable = False
    u = np.random.default_rng(1).standard_normal(PLANE)
    found = Stencil(conductances).residual(torch.from_numpy(u))
    np.testing.assert_allclose(found, conductances.apply(u), rtol=0, atol=1e-13)
