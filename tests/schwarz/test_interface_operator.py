"""The interface operator of a medium against the Schur complement of the grid's own matrix."""

import itertools
import math

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import places, star_places
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.discrete import MediumSystem
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.stopwatch import Stopwatch

CELLS = (24, 32)
ROUNDING = 1e-9  # eps times a contrast of 1e6, of sums of some hundred numbers


def inclusion(nodes, rng):
    """Return a medium most of whose elements are alike."""
    a = np.ones(nodes)
    a[9:12, 17:20] = 7.0
    return a


@pytest.fixture(params=[("noise", 8), ("channels", 8), ("inclusion", 4)], ids=lambda one: one[0])
def case(request):
    name, s = request.param
    found = made(name, s)
    assert (len(found[0].elements.schur.kinds.shared) > 0) == (name == "inclusion")
    return found


def made(name, s, *, contrast=1.0, unit=1.0):
    """Return the system of a block, the grid's Schur complement, where its nodes and its stars lie.

    Coefficients are those of the medium to the power of ``contrast``, times ``unit``.
    """
    grid = Grid(CELLS, 1 / 64)
    block = Block.whole(Lattice(grid, Subdomain(2 * s, 2 * s / 64)))
    a = ({"inclusion": inclusion} | MEDIA)[name](grid.nodes, np.random.default_rng(0))
    medium = Medium({"a": Field("a", unit * a**contrast), "c": Field("c", unit * 50.0)})
    kind = {"device": torch.device("cpu"), "dtype": torch.float64}
    system = CondensedSystem(Ranks.alone(), block, medium, None, Stopwatch(), **kind)
    matrix = MediumSystem(medium, grid).matrix.toarray()
    y, x = np.divmod(np.arange(len(matrix)), CELLS[1] - 1) + np.array([[1], [1]])
    lines = (y % s == 0) | (x % s == 0)
    inside = matrix[np.ix_(~lines, ~lines)]
    schur = matrix[np.ix_(lines, lines)] - matrix[np.ix_(lines, ~lines)] @ np.linalg.solve(
        inside, matrix[np.ix_(~lines, lines)]
    )
    where = torch.from_numpy(places(block, y[lines], x[lines]))
    return system, schur, where, star_places(block)


def vector(system, where, values):
    v = torch.zeros(1, len(system.inside), dtype=torch.float64)
    v[0, where] = torch.from_numpy(values)
    return v


def test_it_is_the_schur_complement_of_the_grid(case):
    system, schur, where, _ = case
    values = np.random.default_rng(1).standard_normal(len(schur))
    image = system.operator(vector(system, where, values))[0, where]
    np.testing.assert_allclose(image, schur @ values, atol=ROUNDING * abs(schur).max())


@pytest.mark.parametrize("unit", [1.0, 1e-60, 1e60])
def test_the_preconditioner_inverts_the_blocks_of_stars_and_counts_each_edge_once(unit):
    found, expected = corrected(*made("noise", 8, unit=unit), unit=unit)
    assert_alike(found, expected)


@pytest.mark.parametrize("name", ["channels", "inclusion"])
def test_so_it_does_where_others_have_the_same_and_elements_are_small(name):
    assert_alike(*corrected(*made(name, 4)))


# In float32 alone the first two would be wrong by 8e-4 and 9e-2 of the largest, the last not definite.
@pytest.mark.parametrize("contrast", [1.0, 1.5, 2.0])
def test_blocks_that_float32_is_too_little_for_are_factorised_in_float64(contrast):
    found, expected = corrected(*made("inclusions", 4, contrast=contrast))
    assert_alike(found, expected, contrast=1e6**contrast)


def assert_alike(found, expected, contrast=1.0):
    """Compare to the rounding of float32, in which they are kept, and of the blocks, which are float64's.

    What is added up of the largest conductances is known to their last digit, the smallest to as much: at 1e12
    corrections by the operator's block and by the grid's own differ by 5e-7, on one processor.
    """
    rounding = 1e-6 + np.finfo(float).eps * contrast
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding * abs(expected).max())


def corrected(system, schur, where, stars, *, unit=1.0):
    """Return what the preconditioner makes of a residual, and what it should."""
    r = unit * np.random.default_rng(1).standard_normal(len(schur))
    number = {int(place): i for i, place in enumerate(where)}
    expected = np.zeros(len(schur))
    own = [{number[int(place)] for place in star} for star in stars]
    edges = [a & b for a, b in itertools.combinations(own, 2) if a & b]
    for part, sign in [(star, 1) for star in own] + [(edge, -1) for edge in edges]:
        at = sorted(part)
        expected[at] += sign * solved(schur[np.ix_(at, at)], r[at])
    given = vector(system, where, r)
    out, room = (torch.empty_like(given) for _ in range(2))
    found = system.stars(given, out, room, norms=np.array([np.linalg.norm(r)]))
    return found[0, where].numpy(), expected


def solved(matrix, b):
    """Return the solution, refined by residuals in long double: alone it is off by 4e-6 at a contrast of 1e12."""
    x = np.zeros(len(b), np.longdouble)
    for _ in range(4):
        x += np.linalg.solve(matrix, (b - matrix.astype(np.longdouble) @ x).astype(float))
    return x.astype(float)


def test_the_coarse_correction_leaves_nothing_in_the_coarse_space(case):
    system, schur, where, _ = case
    r = vector(system, where, np.random.default_rng(1).standard_normal(len(schur)))
    c = system.coarse.solve(r)
    rest = system.coarse.solve(r - system.operator(system.coarse.prolong(c)))
    assert abs(rest).max() < 1e-7 * abs(c).max()


def test_what_is_kept_of_the_operator_takes_it_off_the_residual(case):
    system, schur, where, _ = case
    z, r = (
        vector(system, where, np.random.default_rng(i).standard_normal(len(schur))) for i in (1, 2)
    )
    kept, made = system.coarse.solve(r, z), system.coarse.solve(r - system.operator(z))
    assert abs(kept - made).max() < ROUNDING * abs(made).max()


def test_hats_reproduce_constants(case):
    system, _, where, _ = case
    coarse = system.coarse
    c = torch.zeros(1, coarse._size, dtype=torch.float64)
    c[0, : math.prod(coarse._block.lattice.lines)] = 1.0  # the hats come first
    assert abs(coarse.prolong(c)[0, where] - 1.0).max() < 1e-12
