"""The factors of coarse matrices against a general sparse solver."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.schwarz.condensed import coarse_factors
from mosaicdd.schwarz.condensed.coarse_factors import CoarseFactors
from mosaicdd.schwarz.condensed.coarse_numbering import Numbering, of_elements

CPU = torch.device("cpu")
ROUNDING = 2e-14  # three times eps times the condition of these matrices


def numbering_of(cells, periodic, modes, rng):
    """Return numbers of hats at all nodes and of modes on some edges."""
    grid = Grid(tuple(8 * count for count in cells), 1 / 64)
    lattice = Lattice(grid, Subdomain(16, 16 / 64), periodic=periodic)
    lines = [count if around else count - 1 for count, around in zip(cells, periodic, strict=True)]
    shapes = (lines[0], cells[1], modes), (lines[1], cells[0], modes)
    rows, columns = (rng.random(shape) < 0.6 for shape in shapes)
    return Numbering(lattice, rows, columns, None)


def matrix_of(numbering, cells, rng, *, symmetric):
    """Return a matrix that is put together of elements', definite."""
    order = numbering.order[of_elements(numbering.between((0, 0), cells))]
    size, triplets = len(numbering.unknowns), []
    for element in order:
        here = element[element >= 0]
        part = rng.standard_normal((len(here), len(here)))
        part = part @ part.T + (0 if symmetric else 0.3) * (part - part.T)
        y, x = np.meshgrid(here, here, indexing="ij")
        triplets.append((part.ravel(), y.ravel(), x.ravel()))
    values, y, x = (np.concatenate(one) for one in zip(*triplets, strict=True))
    matrix = scipy.sparse.coo_array((values, (y, x)), shape=(size, size)).tocsc()
    return matrix + 0.1 * scipy.sparse.eye_array(size, format="csc")


def later_rows(matrix, fronts):
    """Return what columns have in rows of their own front and those after it."""
    entries = matrix.tocoo()
    y, x = entries.coords
    kept = fronts[y] >= fronts[x]
    return scipy.sparse.coo_array((entries.data[kept], (y[kept], x[kept])), matrix.shape).tocsc()


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("kind", ["symmetric", "half of a symmetric", "any"])
@pytest.mark.parametrize("modes", [0, 1, 3])
@pytest.mark.parametrize(
    ("cells", "periodic"),
    [
        ((2, 2), (False, False)),
        ((2, 9), (False, False)),
        ((16, 16), (False, False)),
        ((37, 21), (False, False)),
        ((12, 10), (True, False)),
        ((9, 16), (True, True)),
    ],
)
def test_solutions_are_those_of_a_general_solver(
    cells, periodic, modes, kind, problems, monkeypatch
):
    monkeypatch.setitem(coarse_factors._BATCH, "cpu", (5, 2**20))
    rng = np.random.default_rng(0)
    numbering = numbering_of(cells, periodic, modes, rng)
    symmetric = kind != "any"
    matrix = matrix_of(numbering, cells, rng, symmetric=symmetric)
    given = matrix if kind != "half of a symmetric" else later_rows(matrix, numbering.fronts)
    solve = CoarseFactors(
        given, numbering.fronts, numbering.levels, symmetric=symmetric, device=CPU
    )
    given = rng.standard_normal((problems, matrix.shape[0]))
    expected = scipy.sparse.linalg.splu(matrix).solve(given.T).T
    found = solve(torch.from_numpy(given)).numpy()
    assert abs(found - expected).max() < ROUNDING * abs(expected).max()


def test_fronts_are_lines_and_small_rectangles():
    numbering = numbering_of((32, 32), (False, False), 1, np.random.default_rng(0))
    assert (np.diff(numbering.fronts) >= 0).all()
    sizes = np.bincount(numbering.fronts)
    assert (
        len(sizes) == len(numbering.levels) == 2 * 64 - 1
    )  # rectangles of 4 by 4, and what halves them
    assert numbering.levels[-1] == numbering.levels.min() == 1  # the line that halves all


def test_fronts_may_be_indefinite():
    rng = np.random.default_rng(0)
    numbering = numbering_of((8, 8), (False, False), 1, rng)
    matrix = matrix_of(numbering, (8, 8), rng, symmetric=True)
    matrix -= 5 * scipy.sparse.eye_array(matrix.shape[0], format="csc")
    solve = CoarseFactors(matrix, numbering.fronts, numbering.levels, symmetric=True, device=CPU)
    given = rng.standard_normal((1, matrix.shape[0]))
    found = solve(torch.from_numpy(given)).numpy()[0]
    rounding = np.finfo(float).eps * abs(matrix).sum(axis=1).max() * abs(found).max()
    assert abs(matrix @ found - given[0]).max() < rounding


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_what_is_singular_has_solutions_that_are_not_finite(value):
    numbering = numbering_of((8, 8), (False, False), 1, np.random.default_rng(0))
    size = len(numbering.unknowns)
    matrix = value * scipy.sparse.eye_array(size, format="csc")
    solve = CoarseFactors(matrix, numbering.fronts, numbering.levels, symmetric=True, device=CPU)
    assert not solve(torch.ones(1, size, dtype=torch.float64)).isfinite().all()
