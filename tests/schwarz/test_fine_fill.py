"""Fills between coarse nodes: what they leave of the equation is on the lines, and is measured there."""

import numpy as np
import pytest
import torch

from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.upscaled.cell_solves import CellValues
from mosaicdd.schwarz.upscaled.fine_fill import Band

COARSE = 7, 9
FINE = tuple(4 * (n - 1) + 1 for n in COARSE)
INNER = slice(1, -1), slice(1, -1)


@pytest.fixture
def band():
    rng = np.random.default_rng(0)
    up, right = (
        np.exp(rng.standard_normal(shape))
        for shape in ((FINE[0] - 1, FINE[1]), (FINE[0], FINE[1] - 1))
    )
    given = Conductances((up, right), rng.random(FINE))
    edge = torch.from_numpy(rng.standard_normal((2, FINE[1])))
    source = torch.from_numpy(rng.standard_normal((2, *FINE)))
    return Band(given, source, [((0, slice(None)), edge)])


@pytest.fixture
def filled(band):
    coarse = np.random.default_rng(1).standard_normal((2, *COARSE))
    return band.fill(torch.from_numpy(coarse))


def residual_of(band, filled):
    """Return ``b - A u`` at the fine nodes inside."""
    applied = band.conductances.apply(filled.values().numpy())
    return band.source.numpy()[:, *INNER] - applied


def test_inside_the_cells_the_equation_is_solved(band, filled):
    residual = residual_of(band, filled)
    for y in range(1, 4):
        for x in range(1, 4):
            assert abs(residual[:, y - 1 :: 4, x - 1 :: 4]).max() < 1e-12


def test_what_is_left_on_the_lines_is_the_residual(band, filled):
    residual, left = residual_of(band, filled), filled.residual
    assert abs(left.nodes.numpy() - residual[:, 3::4, 3::4]).max() < 1e-12
    for i in range(3):
        assert abs(left.along_x[i].numpy() - residual[:, 3::4, i::4]).max() < 1e-12
        assert abs(left.along_y[i].numpy() - residual[:, i::4, 3::4]).max() < 1e-12


def test_it_is_shared_out_by_the_transpose_of_the_interpolation(band, filled):
    hats = np.zeros((2, *COARSE))
    hats[:, 1:-1, 1:-1] = np.random.default_rng(2).standard_normal([n - 2 for n in COARSE])
    smooth = CellValues(torch.from_numpy(hats))
    smooth.interpolate(*band.heights)
    shared = filled.restricted().numpy()
    expected = (smooth.joined().numpy()[:, *INNER] * residual_of(band, filled)).sum()
    assert (hats * shared).sum() == pytest.approx(expected, rel=1e-10)


def test_squares_are_those_of_all_nodes(band, filled):
    inner = slice(1, 20), slice(8, 32)
    here = tuple(slice(p.start - 1, p.stop - 1) for p in inner)
    residual = residual_of(band, filled)[:, *here]
    diagonal = band.conductances.diagonal()[inner]
    given = band.source.numpy()[:, *inner].copy()
    edge = band.edges[0][1].numpy()
    given[:, 0] += edge[:, inner[1]] * band.conductances.along[0][0, inner[1]]
    expected = [np.square(one).sum(axis=(1, 2)) for one in (residual, given, residual / diagonal)]
    np.testing.assert_allclose(filled.squares(inner), expected, rtol=1e-10)
