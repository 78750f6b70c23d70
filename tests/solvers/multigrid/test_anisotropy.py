"""Media that conduct better along some axes, and cells that are not square: as few iterations as without."""

import itertools

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd import Ranks
from mosaicdd.solvers.multigrid.coarsening import halving
from mosaicdd.solvers.multigrid.colour_layout import CoarseningPattern, ColourLayout
from mosaicdd.solvers.multigrid.level_operator import LevelOperator
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition


def iterations(shape, spacing, *, decades, rtol=1e-8, **settings):
    """Solve with independent values between 1 and a power of ten; return the iterations, all checked."""
    rng = np.random.default_rng(0)
    nodes = [n + 1 for n in shape]
    a, f = 10 ** (decades * rng.random(nodes)), rng.standard_normal(nodes)
    problem = m.Problem(m.Domain(shape, spacing), "diffusion", {"a": a, "f": f})
    solution = m.solve(problem, rtol=rtol, **settings)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= rtol
    return solution.iterations


@pytest.mark.parametrize("decades", [0, 3])
@pytest.mark.parametrize(
    ("shape", "spacings"),
    [
        ((192, 160), [(1.0, 1.0), (1.0, 3.0), (1.0, 10.0), (10.0, 1.0), (1.0, 100.0)]),
        ((40, 36, 44), [(1.0, 1.0, 1.0), (1.0, 10.0, 10.0), (10.0, 1.0, 1.0), (1.0, 30.0, 3.0)]),
    ],
)
def test_stretched_cells_take_no_more_iterations_than_square_ones(shape, spacings, decades):
    square, *stretched = (iterations(shape, spacing, decades=decades) for spacing in spacings)
    assert max(stretched) <= square + 2


@pytest.mark.parametrize(
    ("shape", "spacing"),
    [
        ((2, 512), (10.0, 1.0)),
        ((512, 3), (1.0, 0.1)),
        ((3, 4, 300), (1.0, 1.0, 1.0)),
        ((4, 64, 64), (0.1, 1.0, 1.0)),
    ],
)
def test_domains_of_few_nodes_along_an_axis_take_few_iterations(shape, spacing):
    assert iterations(shape, spacing, decades=1) <= 12


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("periodic", [(), ("left", "right"), ("bottom", "top")])
@pytest.mark.parametrize("spacing", [(1.0, 7.0), (7.0, 1.0, 7.0)])
def test_stretched_cells_on_ranks_take_the_same_iterations_to_the_same_field(
    spacing, periodic, alone_and_together
):
    shape = (98, 94) if len(spacing) == 2 else (22, 26, 18)
    nodes, rng = [n + 1 for n in shape], np.random.default_rng(1)
    a, f = 10 ** rng.random(nodes), rng.standard_normal(nodes)
    for values in (a, f):  # the last nodes are the first ones
        values[..., -1] = values[..., 0]
        values[..., -1, :] = values[..., 0, :]
    sides = dict.fromkeys(periodic, m.Periodic())
    problem = m.Problem(m.Domain(shape, spacing), "diffusion", {"a": a, "f": f}, sides=sides)
    alone, solution = alone_and_together(m.solve, problem, rtol=1e-10)
    assert solution.converged
    assert solution.iterations == alone.iterations <= 20
    distance = np.abs(solution.local - alone.field[solution.place]).max()
    assert distance <= 1e-8 * np.ptp(alone.field)


@pytest.mark.parametrize("axes", [2, 3])
def test_an_axis_is_halved_if_couplings_along_it_are_about_as_strong_as_any(axes):
    nodes = ColourLayout((0,) * axes, (9,) * axes)
    for strengths in itertools.product((1.0, 2.0, 50.0), repeat=axes):
        couplings = {}
        for axis, strength in enumerate(strengths):
            step = tuple(int(other == axis) for other in range(axes))
            couplings[step] = nodes.take(torch.full((10,) * axes, strength), nodes.new())
        level = LevelOperator(nodes, couplings, nodes.new())
        blocks = LevelBox(Ranks.alone(), LevelPartition([[(0, 9)]] * axes, 2))
        expected = tuple(2.9 * strength >= max(strengths) for strength in strengths)
        assert halving(level, blocks).axes == expected


def test_coarse_nodes_are_of_classes_whose_indices_are_even_along_halved_axes():
    to = CoarseningPattern((True, False))
    assert to.classes == [(0, 0), (0, 1)]
    assert to.coarse([(1, 6), (1, 6)]) == [(1, 3), (1, 6)]
    assert [to.number_of[below] for below in [(0, 0), (0, 1), (1, 0), (1, 1)]] == [0, 1, 0, 1]
    assert to.odd[1, 1] == (1, 0)
