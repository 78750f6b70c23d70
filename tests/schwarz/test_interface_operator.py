"""The interface operator of a medium against the Schur complement of the grid's own matrix."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import places
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields import Field
from mosaicdd.problems.medium import Medium, MediumSystem
from mosaicdd.schwarz.condensed_system import CondensedSystem
from mosaicdd.schwarz.stopwatch import Stopwatch

CELLS = (24, 32)
ROUNDING = 1e-9  # eps times a contrast of 1e6, of sums of some hundred numbers


@pytest.fixture(params=["noise", "channels"])
def case(request):
    """Return the system of a block, the grid's Schur complement, and where its nodes lie."""
    grid = Grid(CELLS, 1 / 64)
    block = Block.whole(Lattice(grid, Subdomain(16, 16 / 64)))
    a = MEDIA[request.param](grid.nodes, np.random.default_rng(0))
    medium = Medium({"a": Field("a", a), "c": Field("c", 50.0)})
    kind = {"device": torch.device("cpu"), "dtype": torch.float64}
    system = CondensedSystem(Ranks.alone(), block, medium, None, Stopwatch(), **kind)
    matrix = MediumSystem(medium, grid).matrix.toarray()
    y, x = np.divmod(np.arange(len(matrix)), CELLS[1] - 1) + np.array([[1], [1]])
    lines = (y % 8 == 0) | (x % 8 == 0)
    inside = matrix[np.ix_(~lines, ~lines)]
    schur = matrix[np.ix_(lines, lines)] - matrix[np.ix_(lines, ~lines)] @ np.linalg.solve(
        inside, matrix[np.ix_(~lines, lines)]
    )
    return system, schur, torch.from_numpy(places(block, y[lines], x[lines]))


def vector(system, where, values):
    v = torch.zeros(1, len(system.inside), dtype=torch.float64)
    v[0, where] = torch.from_numpy(values)
    return v


def test_it_is_the_schur_complement_of_the_grid(case):
    system, schur, where = case
    values = np.random.default_rng(1).standard_normal(len(schur))
    image = system.operator(vector(system, where, values))[0, where]
    np.testing.assert_allclose(image, schur @ values, atol=ROUNDING * abs(schur).max())


def test_stars_add_up_the_inverses_of_its_blocks(case):
    system, schur, where = case
    r = np.random.default_rng(1).standard_normal(len(schur))
    number = {int(place): i for i, place in enumerate(where)}
    expected = np.zeros(len(schur))
    for star in system.stars._places:
        own = [number[int(place)] for place in star]
        expected[own] += np.linalg.solve(schur[np.ix_(own, own)], r[own])
    found = system.stars(vector(system, where, r))[0, where]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * abs(expected).max())


def test_the_coarse_correction_leaves_nothing_in_the_coarse_space(case):
    system, schur, where = case
    r = vector(system, where, np.random.default_rng(1).standard_normal(len(schur)))
    c = system.coarse.solve(r)
    rest = system.coarse.solve(r - system.coarse.sweep(c))
    assert abs(rest).max() < 1e-7 * abs(c).max()


def test_the_swept_coarse_values_are_the_operator_of_their_prolongation(case):
    system, schur, where = case
    c = system.coarse.solve(vector(system, where, np.ones(len(schur))))
    swept = system.coarse.sweep(c)[0, where]
    image = system.operator(system.coarse.prolong(c))[0, where]
    np.testing.assert_allclose(swept, image, atol=ROUNDING * abs(schur).max() * abs(c).max())


def test_hats_reproduce_constants(case):
    system, _, where = case
    coarse = system.coarse
    c = torch.zeros(1, coarse._size, dtype=torch.float64)
    c[0, coarse._region[0].flatten()] = 1.0
    assert abs(coarse.prolong(c)[0, where] - 1.0).max() < 1e-12
