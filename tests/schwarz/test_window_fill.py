"""The fill of a window: the values of the whole fill, for the work of the window."""

import math

import numpy as np
import pytest

from mosaicdd.lattice.window import Window
from mosaicdd.schwarz.fill import Fill


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_every_rank_has_its_part_of_the_window(make_lattice, make_solver, problem, make_ranks):
    lattice, window = make_lattice((9, 12)), Window((3, 30), (14, 49))
    boundary, _ = problem(lattice)
    whole = make_solver(lattice).solve(boundary).field.numpy()
    solution = make_solver(lattice, ranks=make_ranks(), window=window).solve(boundary)
    assert solution.place == window.clip(solution.place)
    # Ranks add up in another order: units in the last place of values of order 1.
    np.testing.assert_allclose(solution.field, whole[solution.place], rtol=0, atol=1e-12)
    assert solution.residual is None
    assert solution.discrete_residual is None


def test_the_work_is_that_of_the_window(make_lattice, make_solver, problem, monkeypatch):
    lattice, filled, predict = make_lattice((32, 32)), [], Fill._predict
    boundary, _ = problem(lattice)

    def counting(self, v, tiles, target):
        filled.append(math.prod(run.count for run in tiles))
        predict(self, v, tiles, target)

    monkeypatch.setattr(Fill, "_predict", counting)
    make_solver(lattice, window=Window((40, 40), (49, 49))).solve(boundary)
    # Nodes 40..48 lie, with s = 4, in the lattice cells 10, 11 and 12, and with the nodes around in
    # the cells 9 to 12: the tiles of the cells 8 and 9, 10 and 11, 12 and 13.
    assert sum(filled) == 3 * 3
