"""Media that conduct better along some axes, and cells that are not square: as few iterations as without."""

import numpy as np
import pytest

import mosaicdd as m


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
