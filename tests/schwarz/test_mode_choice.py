"""Which modes of edges reach far, by elements whose energies are known."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd import Domain, Problem, SolveSettings, solve
from mosaicdd.schwarz.condensed.mode_choice import far_modes

BOTTOM, TOP = 4, 4 + 2 * 2  # where the modes of these sides begin, two each


def element(coupled):
    """Return the coarse matrix of an element whose second modes at the bottom and the top are coupled."""
    matrix = torch.eye(12, dtype=torch.float64)
    matrix[:4, :4] -= 0.25  # hats have no energy as a constant
    matrix[BOTTOM + 1, TOP + 1] = matrix[TOP + 1, BOTTOM + 1] = -coupled
    return matrix


@pytest.mark.parametrize(
    ("below", "above", "far"),
    [
        (0.9, 0.9, True),  # 0.19 of the energy is left
        (0.9, 0.0, True),  # 0.19 of one half, all of the other
        (0.0, 0.0, False),
        (0.5, 0.5, False),  # 0.75
    ],
)
def test_a_mode_reaches_far_where_little_of_its_energy_is_left(below, above, far):
    products = torch.stack([element(below), element(above)])
    rows, columns = far_modes(products, np.array([[0], [1]]))
    np.testing.assert_array_equal(rows[1, 0], [True, far])
    assert rows.shape == (3, 1, 2)
    assert columns.shape == (2, 2, 2)


def test_it_does_not_depend_on_the_scale_of_a_medium():
    products = torch.stack([element(0.9), 1e-9 * element(0.9)])
    rows, _ = far_modes(products, np.array([[0, 1], [0, 1]]))
    np.testing.assert_array_equal(rows[1], [[True, True], [True, True]])


def test_edges_without_a_mode_have_none():
    none = element(0.0)
    none[4:] = none[:, 4:] = 0.0
    rows, columns = far_modes(none[None], np.zeros((2, 2), int))
    assert not rows.any()
    assert not columns.any()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("name", ["channels", "checkerboard"])
def test_any_number_of_ranks_takes_the_same_modes(alone_and_together, name, rows_alike):
    nodes = 129, 97
    a = MEDIA[name](nodes, np.random.default_rng(0))
    problem = Problem(Domain((128, 96)), "diffusion", {"a": a, "f": 1.0})
    alone, together = alone_and_together(solve, problem, settings=SolveSettings(rtol=1e-11))
    # Where rounding ends it and products round by the batch, it may do so one iteration sooner.
    by_rounding = not rows_alike and "converged_rounding" in (together.status, alone.status)
    assert abs(together.iterations - alone.iterations) <= by_rounding
    scale = abs(alone.field).max()
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-10 * scale)
