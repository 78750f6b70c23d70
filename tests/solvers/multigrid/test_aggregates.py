"""The second coarse space: the same aggregates on any number of ranks, and what solving for them leaves."""

import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
import torch

import mosaicdd as m
from mosaicdd.solvers.multigrid import aggregates
from mosaicdd.solvers.multigrid import conjugate_gradients as flexible_gradients
from mosaicdd.solvers.multigrid import cycle as balancing
from mosaicdd.solvers.multigrid.aggregates import CoarseAggregates
from mosaicdd.solvers.multigrid.cycle import Cycle
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.multigrid.strong_components import squares_of
from mosaicdd.solvers.references import solve_directly

AROUND = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet(0.0)}


def problem_of(kind):
    """Return one with conductors of 1e5 that hold few coarse nodes."""
    shape = (30, 27, 29) if kind == "a box" else (91, 83)
    rng = np.random.default_rng(3)
    smooth = scipy.ndimage.gaussian_filter(rng.standard_normal([n + 1 for n in shape]), 1.5)
    fields = {"a": np.where(smooth > 0, 1e5, 1.0), "f": rng.standard_normal(smooth.shape)}
    sides = {
        "a box": m.Dirichlet(0.0),
        "values": m.Dirichlet(0.0),
        "around": AROUND | {"top": m.Neumann("x")},
        "insulated": m.Neumann(0.0),
    }[kind]
    if kind == "insulated":
        weights = np.ones([n + 1 for n in shape])
        weights[[0, -1]] /= 2
        weights[:, [0, -1]] /= 2
        fields["f"] -= (weights * fields["f"]).sum() / weights.sum()
    return m.Problem(m.Domain(shape, 1 / 90), "diffusion", fields, sides)


def system_of(problem, ranks):
    (planned,) = m.Solver(problem, ranks=ranks)._setup.bound.planned.values()
    return planned.nodes


def numbers(system):
    """Return, of this rank's unknowns, their places in the domain and the aggregates that they are in."""
    made, nodes = CoarseAggregates(system), system.nodes
    constants = np.arange(1.0, made.count + 1)
    vector = system.vector()
    made.prolong_add(constants, vector)
    where = tuple(
        slice(low - first, high + 1 - first)
        for (low, high), first in zip(system.blocks.owned, nodes.first, strict=True)
    )
    at = np.indices([p.stop - p.start for p in where]).reshape(len(where), -1)
    at += np.array([low for low, _ in system.blocks.owned])[:, None]
    return made, at, system.values(vector)[where].ravel()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["values", "around", "a box"])
def test_aggregates_do_not_depend_on_ranks_and_hold_every_unknown_once(
    comm, make_ranks, kind, monkeypatch
):
    monkeypatch.setitem(NodeEquations.squares, 2, 60)  # of 16 nodes along an axis
    problem = problem_of(kind)
    expected, at, of = numbers(system_of(problem, make_ranks(alone=True)))
    whole = np.zeros(problem.fields["f"].shape)
    whole[tuple(at)] = of
    assert len(np.unique(of)) in (expected.count, expected.count + 1)  # or 0, of no unknown
    made, at, of = numbers(system_of(problem, comm))
    assert made.count == expected.count
    assert np.array_equal(whole[tuple(at)], of)


@pytest.mark.parametrize(("most", "widest", "side"), [(60, 32, 12), (60, 10, 10), (10**4, 10, 8)])
def test_squares_grow_with_the_grid_until_they_are_wide(most, widest, side, monkeypatch):
    system = system_of(problem_of("values"), None)
    monkeypatch.setitem(NodeEquations.squares, 2, most)
    monkeypatch.setitem(NodeEquations.widest, 2, widest)
    nodes = [last - first + 1 for first, last in system.blocks.shares.domain]
    assert squares_of(system) == (side, math.prod(-(-count // side) for count in nodes))


def turning():
    """Return a problem with a tensor whose couplings across cells are negative here and there."""
    rng = np.random.default_rng(0)
    angle, ratio = rng.uniform(0, np.pi, (91, 83)), 300.0
    c, s = np.cos(angle), np.sin(angle)
    fields = {
        "axx": ratio * c * c + s * s,
        "axy": (ratio - 1) * c * s,
        "ayy": ratio * s * s + c * c,
        "f": 1.0,
    }
    return m.Problem(m.Domain((91, 83), 1 / 90), "diffusion", fields)


@pytest.mark.parametrize("problem", [problem_of("values"), turning()], ids=["values", "a tensor"])
def test_what_solving_for_them_leaves_has_no_sum_over_any(problem):
    system = system_of(problem, None)
    made, level = CoarseAggregates(system), system.level()
    matrix, places = level.matrix()
    labels = made._labels.ravel()[places.numpy()]
    sums = scipy.sparse.csr_array(
        (np.ones(len(labels)), (labels, np.arange(len(labels)))), (made.count, len(labels))
    )
    r = system.vector()
    r.view(-1)[places] = torch.from_numpy(np.random.default_rng(0).standard_normal(len(places)))
    x = system.vector()
    made.prolong_add(made.coarse_solve(r), x)
    left = r.view(-1)[places].numpy() - matrix @ x.view(-1)[places].numpy()
    assert abs(sums @ left).max() < 1e-6 * abs(sums @ r.view(-1)[places].numpy()).max()


def test_without_memory_for_them_iterations_go_on_as_they_are(monkeypatch):
    problem, settings = problem_of("values"), m.SolveSettings(rtol=1e-8)
    with monkeypatch.context() as patched:
        patched.setattr(flexible_gradients, "_CONTRACTION", np.inf)
        expected = m.solve(problem, settings=settings)
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", 0.2)
    monkeypatch.setattr(flexible_gradients, "fits_beside", lambda ranks, needed: False)
    solution = m.solve(problem, settings=settings)
    assert solution.converged
    assert solution.iterations >= expected.iterations
    error = np.sqrt(np.mean((solution.field - solve_directly(problem)) ** 2))
    assert error <= solution.error_estimate


def test_more_than_there_may_be_join_until_they_are_few(monkeypatch):
    system = system_of(problem_of("values"), None)
    many = CoarseAggregates(system).count
    monkeypatch.setattr(aggregates, "_MOST", many // 3)
    monkeypatch.setattr(aggregates, "squares_of", lambda system: (system.side, 1))
    assert 1 < CoarseAggregates(system).count <= many // 3


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["values", "around", "insulated", "a box"])
def test_with_them_iterations_are_few_and_alike_on_all_ranks(
    comm, known_by_one, by_one, kind, monkeypatch
):
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", 0.2)
    problem, settings = problem_of(kind), m.SolveSettings(rtol=1e-8)
    solution = m.solve(problem, ranks=comm, settings=settings)
    alone = known_by_one(m.solve, problem, settings=settings)
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", np.inf)
    without = m.solve(problem, ranks=comm, settings=settings)
    assert solution.converged
    assert abs(solution.iterations - alone.iterations) <= 1  # as rounding decides about the last
    assert solution.iterations <= without.iterations
    field, expected = solution.gather(), by_one(solve_directly, problem)
    if kind == "insulated":  # a constant is left open
        field, expected = field - field.mean(), expected - expected.mean()
    assert abs(field - expected).max() < 1e-6 * np.ptp(expected)


def cycle_of(kind):
    """Return a cycle that knows aggregates of its second level, of the first equations, and what applies it to numbers."""
    system = system_of(problem_of(kind), None)
    cycle = Cycle(system.level(), system.blocks)
    assert cycle.balance()
    assert not cycle.balance()  # twice
    inside = system.nodes.take(torch.from_numpy(system.ones), system.nodes.new(torch.int8))
    if system.copies is not None:
        system.copies.clear(inside)
    places = torch.nonzero(inside.view(-1)).ravel()

    def apply(values):
        cycle.right_hand_side.zero_()
        cycle.right_hand_side.view(-1)[places] = torch.from_numpy(values).float()
        cycle()
        return cycle.values.view(-1)[places].double().numpy()

    return cycle, apply, len(places)


@pytest.mark.parametrize("kind", ["values", "around", "insulated", "a box"])
def test_a_cycle_that_knows_them_is_symmetric_and_positive_and_has_no_memory(kind):
    """Around, levels have an odd number of nodes, and one more, of which no right-hand side is kept."""
    _, apply, count = cycle_of(kind)
    rng = np.random.default_rng(1)
    u, v = rng.standard_normal((2, count))
    if kind == "insulated":
        u, v = u - u.mean(), v - v.mean()
    first, other = apply(u), apply(v)
    size = np.sqrt((first @ u) * (other @ v))
    assert first @ u > 0
    assert other @ v > 0
    assert abs(first @ v - other @ u) < 1e-5 * size
    assert np.array_equal(apply(u), first)


@pytest.mark.parametrize("kind", ["values", "a box"])
def test_the_second_level_leaves_no_sum_over_any(kind):
    cycle, _, _ = cycle_of(kind)
    level, _ = cycle._second
    matrix, places = level.matrix()
    labels = cycle._balancing._aggregates._labels.ravel()[places.numpy()]
    count = cycle._balancing._aggregates.count
    entries = np.ones(len(labels)), (labels, np.arange(len(labels)))
    sums = scipy.sparse.csr_array(entries, (count, len(labels)))
    b, x = cycle._of_second
    right = np.random.default_rng(0).standard_normal(len(places))
    b.view(-1)[places] = torch.from_numpy(right).float()
    cycle._go(1)
    values = x.view(-1)[places].double().numpy()
    left = abs(sums @ (right - matrix @ values))
    rounding = torch.finfo(torch.float32).eps * abs(values).max()  # of what each row multiplies
    assert (left <= rounding * (sums @ abs(matrix).sum(axis=1))).all()
    assert (left < 1e-2 * (sums @ abs(right))).all()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["values", "around", "a box"])
def test_where_the_second_level_does_not_contract_its_cycle_knows_them_from_the_start(
    comm, known_by_one, by_one, kind, monkeypatch
):
    """On all ranks alike; the directions themselves need none."""
    monkeypatch.setitem(balancing._LEFT, 2, 1e-3)
    monkeypatch.setitem(balancing._LEFT, 3, 1e-3)
    problem, settings = problem_of(kind), m.SolveSettings(rtol=1e-6)
    with m.Solver(problem, settings=settings, ranks=comm) as solver:
        solution = solver()
        (planned,) = solver._setup.bound.planned.values()
        assert planned.gradients._cycle._balancing is not None
        assert planned.gradients._aggregates is None
    alone = known_by_one(m.solve, problem, settings=settings)
    assert solution.converged
    assert abs(solution.iterations - alone.iterations) <= 1  # as rounding decides about the last
    field, expected = solution.gather(), by_one(solve_directly, problem)
    assert abs(field - expected).max() < 1e-5 * np.ptp(expected)
    error = np.sqrt(np.mean((field - expected) ** 2))
    assert error <= solution.error_estimate
