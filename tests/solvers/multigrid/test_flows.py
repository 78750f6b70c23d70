"""Flows of all kinds, however fast they are for the grid: few iterations to the field of a factorisation."""

import itertools

import numpy as np
import pytest
import torch
from media import FLOWS, flow

import mosaicdd as m
from mosaicdd import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.edge_means import fitted
from mosaicdd.solvers.multigrid import cycle
from mosaicdd.solvers.multigrid import smoothing as lines
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.multigrid.smoothing import LineSweeps, earlier, orders
from mosaicdd.solvers.references import solve_directly


def flowing(kind, cells, peclet, *, contrast=1e4):
    """Return a problem in a random medium with a reaction."""
    nodes = tuple(n + 1 for n in cells)
    domain = m.Domain(cells, 1 / cells[0])
    white = np.random.default_rng(0).standard_normal(nodes)
    fields = flow(kind, nodes, peclet, domain.grid().spacing)
    fields |= {"a": contrast ** ((white - white.min()) / np.ptp(white) - 0.5), "c": 1.0}
    fields["f"] = cells[0] * np.random.default_rng(1).standard_normal(nodes)
    return m.Problem(domain, "advection-diffusion", fields, m.Dirichlet("sin(5*x) + y"))


@pytest.mark.parametrize("peclet", [10.0, 1000.0])
@pytest.mark.parametrize("kind", FLOWS)
def test_flows_take_few_iterations_to_the_field_of_a_factorisation(kind, peclet):
    problem = flowing(kind, (128, 128), peclet)
    solution = m.solve(problem, rtol=1e-9)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1.001e-9
    assert solution.iterations <= (30 if kind == "4 x 4 cells" else 22)
    expected = solve_directly(problem)
    assert np.abs(solution.field - expected).max() <= 1e-6 * np.ptp(expected)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["along y", "4 x 4 cells"])
def test_fast_flows_are_the_same_field_on_every_number_of_ranks(comm, known_by_one, kind):
    problem, settings = flowing(kind, (150, 160), 300.0), m.SolveSettings(rtol=1e-10)
    solution = m.solve(problem, ranks=comm, settings=settings)
    alone = known_by_one(m.solve, problem, settings=settings)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 1.5 * alone.iterations + 2
    assert np.abs(solution.gather() - alone.field).max() <= 1e-7 * np.ptp(alone.field)


def system_of(shape, peclet):
    """Return the system of a flow through independent conductances in random directions."""
    rng, ways = np.random.default_rng(0), []
    for axis in range(len(shape)):
        k = np.exp(rng.standard_normal([n - (axis == other) for other, n in enumerate(shape)]))
        ways.append(fitted(k, peclet * rng.standard_normal(k.shape)))
    along, against = zip(*ways, strict=True)
    ranges = [[(1, n - 2)] for n in shape]
    blocks = LevelBox(Ranks.alone(), LevelPartition(ranges, 2))
    conductances = Conductances(along, rng.random(shape), against)
    return NodeEquations(blocks, conductances, [0] * len(shape)), conductances.matrix().toarray()


@pytest.mark.parametrize("by_code", [True, False])
@pytest.mark.parametrize("shape", [(9, 12), (6, 7, 8), (3, 3)])
def test_a_sweep_from_every_corner_solves_node_after_node(shape, by_code, monkeypatch):
    if by_code:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(lines, "kernels", lambda: None)
    system, matrix = system_of(shape, 3.0)
    nodes, level = system.nodes, system.level()
    inner = [n - 2 for n in shape]
    b, start = np.random.default_rng(1).standard_normal((2, *inner))
    for order in orders(len(shape)):
        place = np.arange(b.size).reshape(inner)[tuple(slice(None, None, way) for way in order)]
        place = place.ravel()
        turned = matrix[np.ix_(place, place)] / system.scale
        expected = np.linalg.solve(
            np.tril(turned), b.ravel()[place] - np.triu(turned, 1) @ start.ravel()[place]
        )
        right, x = (nodes.take(torch.from_numpy(of).float(), nodes.new()) for of in (b, start))
        LineSweeps(level, nodes.box).sweep(order, level.steps, right, x)()
        found = system.values(x).ravel()[place]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("axes", [2, 3])
def test_every_sweep_has_one_that_goes_the_other_way_and_half_of_the_neighbours_first(axes):
    every = list(orders(axes))
    assert len(set(every)) == 2**axes
    assert {tuple(-way for way in order) for order in every} == set(every)
    steps = [s for s in itertools.product((-1, 0, 1), repeat=axes) if any(s)]
    for order in every:
        assert sum(earlier(step, order) for step in steps) == len(steps) // 2


def test_a_flow_that_is_too_fast_for_coarser_grids_is_taken_from_upstream_there(monkeypatch):
    made, coarser = [], cycle.coarser

    def kept(level, by, transfer):
        below = coarser(level, by, transfer)
        made.append(below)
        return below

    monkeypatch.setattr(cycle, "coarser", kept)
    m.solve(flowing("recirculating", (96, 96), 100.0), settings=m.SolveSettings(max_iterations=3))
    assert made
    assert all(level.directed and level.positive for level in made)
