"""Multigrid by operator-made hats, against sparse factorisations of the same equations."""

import itertools
from collections import namedtuple

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
import scipy.sparse.linalg
import torch
from products import require_symmetric_and_positive

from mosaicdd import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.coarsening import LevelTransfer
from mosaicdd.solvers.multigrid.colour_layout import CoarseningPattern, ColourLayout
from mosaicdd.solvers.multigrid.conjugate_gradients import FlexibleGradients
from mosaicdd.solvers.multigrid.cycle import Cycle
from mosaicdd.solvers.multigrid.galerkin import coarser, interpolation
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.settings import StoppingRule

SHAPES = [(41, 30), (32, 32), (67, 19), (12, 9, 14)]


def medium(shape, *, contrast=1e3, reaction=0.0, scale=1.0, seed=0, stretched=1.0):
    """Return conductances between independent lognormal values at the nodes, so many times larger along the last axis."""
    rng = np.random.default_rng(seed)
    white = rng.standard_normal(shape)
    resistance = 0.5 / (scale * contrast ** ((white - white.min()) / np.ptp(white)))
    along = []
    for axis in range(len(shape)):
        low = np.take(resistance, np.arange(shape[axis] - 1), axis)
        high = np.take(resistance, np.arange(1, shape[axis]), axis)
        along.append(1 / (low + high))
    along[-1] *= stretched
    return Conductances(tuple(along), np.full(shape, scale * reaction))


def inside(shape):
    return tuple(slice(1, n - 1) for n in shape)


def everywhere(shape):
    return tuple(slice(0, n) for n in shape)


def matrix_of(conductances, unknown):
    """Return the equations of the nodes of a box as a sparse matrix, by their definition."""
    shape = conductances.reaction.shape
    number = np.full(shape, -1)
    number[unknown] = np.arange(number[unknown].size).reshape(number[unknown].shape)
    count = number.max() + 1
    diagonal = conductances.reaction[unknown].ravel().astype(float).copy()
    entries = []
    for axis, k in enumerate(conductances.along):
        low = np.take(number, np.arange(shape[axis] - 1), axis).ravel()
        high = np.take(number, np.arange(1, shape[axis]), axis).ravel()
        k = k.ravel()
        for here, there in ((low, high), (high, low)):
            np.add.at(diagonal, here[here >= 0], k[here >= 0])
            both = (here >= 0) & (there >= 0)
            entries.append((here[both], there[both], -k[both]))
    entries.append((np.arange(count), np.arange(count), diagonal))
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return scipy.sparse.csc_array((values, (rows, columns)), shape=(count, count))


def equations_of(conductances, unknown):
    """Return them on one rank."""
    ranges = [[(one.start, one.stop - 1)] for one in unknown]
    return NodeEquations(
        LevelBox(Ranks.alone(), LevelPartition(ranges, 2)), conductances, (0,) * len(unknown)
    )


Found = namedtuple("Found", "status energy history")


def solved_by(system, b, rtol=1e-8):
    """Solve a system for a right-hand side at the nodes of its box; return how it ended, and the vector."""
    rule = StoppingRule(rtol, 0.0, 200)
    judge = ResidualMonitor(rule, None, None, None, lambda x, history: None, system.size_here)
    solve, x = FlexibleGradients(system), system.vector()
    size = system.rms(system.vector(b)) * np.sqrt(system.unknowns)
    status = solve(system.vector(b), x, size or 1.0, judge)
    _, _, energy = solve.error()
    return Found(status, energy, judge.history.residual), x


def solved(conductances, unknown, b, rtol=1e-8):
    system = equations_of(conductances, unknown)
    found, x = solved_by(system, b, rtol)
    return found, system.values(x)


@pytest.mark.parametrize("start", [0, 1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_nodes_come_back_from_their_classes(shape, start):
    nodes = ColourLayout([start] * len(shape), [start + n - 1 for n in shape])
    array = torch.arange(float(np.prod(shape))).reshape(shape)
    vector = nodes.take(array, nodes.new())
    assert torch.equal(nodes.give(vector, torch.empty(shape)), array)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_neighbour_in_any_direction_is_the_node_there(shape):
    nodes = ColourLayout([3] * len(shape), [2 + n for n in shape])
    array = torch.arange(1.0, np.prod(shape) + 1).reshape(shape)
    vector = nodes.take(array, nodes.new())
    middle = tuple(n // 2 for n in shape)
    for step in np.ndindex((3,) * len(shape)):
        step = tuple(s - 1 for s in step)
        for index in (middle, tuple(i + 1 for i in middle)):
            of = tuple((i + 3) & 1 for i in index)
            (place,) = torch.nonzero(vector[nodes.number[of]] == array[index]).tolist()
            there, distance = nodes.neighbours[of, step]
            value = vector[nodes.number[there], place[0] + distance]
            assert value == array[tuple(i + s for i, s in zip(index, step, strict=True))]


def interpolation_matrix(level, by, transfer, below):
    """Return the interpolation as a dense matrix, rows and columns as those of `LevelOperator.matrix`."""
    fine, coarse = level.matrix()[1], below.matrix()[1]
    columns = below.nodes.new() - 1
    columns.view(-1)[coarse] = torch.arange(float(len(coarse)))
    at_slots = torch.full((len(by.to.classes), level.nodes.size), -1.0)
    transfer.way_up(columns, at_slots)()
    matrix = torch.zeros(len(fine), len(coarse), dtype=torch.float64)
    for row, place in enumerate(fine.tolist()):
        number, slot = divmod(place, level.nodes.size)
        of = level.nodes.classes[number]
        for corner, weight in by.of(of).items():
            there, distance = level.nodes.neighbours[of, corner]
            column = int(at_slots[by.to.number[there], slot + distance])
            if column >= 0:
                matrix[row, column] = 1.0 if weight is None else weight[slot].double()
            else:
                assert weight[slot] == 0
    return matrix


HALVED = [(1, 1), (0, 1), (1, 0), (1, 1, 1), (1, 0, 0), (0, 1, 1)]


@pytest.mark.parametrize("unknown", [inside, everywhere])
@pytest.mark.parametrize("halved", HALVED)
def test_coarse_operators_are_those_of_interpolated_values(halved, unknown):
    shape, to = ((14, 17) if len(halved) == 2 else (9, 7, 8)), CoarseningPattern(halved)
    equations = equations_of(medium(shape, reaction=0.1), unknown(shape))
    level, blocks = equations.level(), equations.blocks
    for _ in range(2):
        by, transfer = interpolation(level, to), LevelTransfer(blocks, to)
        below = coarser(level, by, transfer)
        p = interpolation_matrix(level, by, transfer, below)
        a = torch.from_numpy(level.matrix()[0].toarray())
        galerkin = p.T @ a @ p
        # Some 27 sums of products of float32 numbers, each of at most the largest.
        error = (
            torch.from_numpy(below.matrix()[0].toarray()) - galerkin
        ).abs().max() / galerkin.abs().max()
        assert error < 100 * torch.finfo(torch.float32).eps
        level, blocks = below, transfer.below


@pytest.mark.parametrize("halved", HALVED)
def test_weights_add_up_to_one_where_no_value_is_given(halved):
    shape, to = ((14, 17) if len(halved) == 2 else (9, 7, 8)), CoarseningPattern(halved)
    equations = equations_of(medium(shape, contrast=1e12), everywhere(shape))
    level, transfer = equations.level(), LevelTransfer(equations.blocks, to)
    by = interpolation(level, to)
    p = interpolation_matrix(level, by, transfer, coarser(level, by, transfer))
    assert torch.allclose(p.sum(1), torch.ones(len(p), dtype=torch.float64), atol=1e-6)
    assert not any(bool(missing.any()) for missing in by.missing.values())


@pytest.mark.parametrize("stretched", [1.0, 50.0])
@pytest.mark.parametrize("shape", [(35, 28), (11, 9, 10)])
def test_the_cycle_is_symmetric_and_positive(shape, stretched):
    equations = equations_of(medium(shape, stretched=stretched), inside(shape))
    level = equations.level()
    places = level.matrix()[1]
    require_symmetric_and_positive(Cycle(level, equations.blocks), places)


@pytest.mark.parametrize("unknown", [inside, everywhere])
@pytest.mark.parametrize("shape", SHAPES)
def test_solutions_are_those_of_a_factorisation(shape, unknown):
    conductances = medium(shape, contrast=1e4, reaction=1e-3)
    place = unknown(shape)
    b = np.random.default_rng(1).standard_normal(conductances.reaction[place].shape)
    expected = scipy.sparse.linalg.spsolve(matrix_of(conductances, place), b.ravel())
    found, u = solved(conductances, place, b, rtol=1e-10)
    assert found.status == "converged_rtol"
    # The least eigenvalue is that of the reaction at least, 1e-3.
    assert np.linalg.norm(u.ravel() - expected) <= 1e-7 * np.linalg.norm(b)
    assert len(found.history) <= 40


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_scaling_all_coefficients_changes_no_iteration(scale):
    shape = (70, 61)
    b = np.random.default_rng(1).standard_normal([n - 2 for n in shape])
    plain, u = solved(medium(shape), inside(shape), b)
    found, v = solved(medium(shape, scale=scale), inside(shape), b)
    assert len(found.history) == len(plain.history)
    assert np.allclose(scale * v, u, rtol=1e-6, atol=1e-6 * np.abs(u).max())


@pytest.mark.parametrize("contrast", [1e-12, 1e12])
def test_inclusions_of_any_contrast_are_solved(contrast):
    """Beside conductors that are one node each, and insulators that are none: exact to the contrast."""
    shape, rng = (97, 97), np.random.default_rng(2)
    hard = np.zeros(shape, bool)
    for y, x, r in zip(*rng.integers(5, 90, (2, 25)), rng.integers(1, 5, 25), strict=True):
        hard[y - r : y + r, x - r : x + r] = True
    resistance = np.where(hard, 0.5 / contrast, 0.5)
    along = 1 / (resistance[1:] + resistance[:-1]), 1 / (resistance[:, 1:] + resistance[:, :-1])
    conductances = Conductances(along, np.zeros(shape))
    inner = inside(shape)
    b = np.where(hard[inner], 0.0, rng.standard_normal((95, 95)))
    labels, count = scipy.ndimage.label(hard[inner])
    free = labels == 0
    own = np.cumsum(free) - 1  # of nodes that are merged with no other
    if contrast > 1:
        column, kept = np.where(free.ravel(), own + count, labels.ravel() - 1), np.ones(free.size)
    else:  # nothing flows into insulators
        column, kept = own * free.ravel(), free.ravel().astype(float)
    merge = scipy.sparse.csc_array((kept, (np.arange(free.size), column)))
    plain = [np.where(k > 3, 0.0, k) if contrast > 1 else np.where(k < 0.5, 0.0, k) for k in along]
    matrix = matrix_of(Conductances(tuple(plain), np.zeros(shape)), inner)
    merged = scipy.sparse.linalg.spsolve((merge.T @ matrix @ merge).tocsc(), merge.T @ b.ravel())
    expected = (merge @ merged).reshape(b.shape)
    found, u = solved(conductances, inner, b)
    error = np.abs(u - expected)[free].max() / np.abs(expected).max()
    assert len(found.history) < 60
    assert error < 1e-6


def test_the_bound_of_the_energy_is_one():
    for seed in range(10):
        shape = (45, 38)
        conductances = medium(shape, contrast=10.0 ** (seed - 3), seed=seed)
        b = np.random.default_rng(seed).standard_normal([n - 2 for n in shape])
        matrix = matrix_of(conductances, inside(shape))
        expected = scipy.sparse.linalg.spsolve(matrix, b.ravel())
        found, u = solved(conductances, inside(shape), b, rtol=1e-5)
        error = u.ravel() - expected
        energy = np.sqrt(error @ (matrix @ error))
        assert 1 <= found.energy / energy < 10


def test_iterations_hardly_grow_with_the_domain():
    counts = []
    for cells in (64, 128, 256):
        shape = (cells + 1, cells + 1)
        b = np.random.default_rng(1).standard_normal([n - 2 for n in shape])
        found, _ = solved(medium(shape, contrast=2e6), inside(shape), b)
        counts.append(len(found.history))
    assert max(counts) <= 20
    assert counts[-1] <= 1.25 * counts[0] + 1


def test_no_right_hand_side_needs_no_iteration():
    found, u = solved(medium((20, 20)), inside((20, 20)), np.zeros((18, 18)))
    assert found.status == "converged_rtol"
    assert found.history == [0.0]
    assert not u.any()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(("unknown", "stretched"), [(inside, 1.0), (everywhere, 30.0)])
@pytest.mark.parametrize("shape", [(211, 198), (26, 31, 29)])
def test_every_process_grid_takes_the_same_iterations_to_the_same_field(
    shape, unknown, stretched, make_ranks, comm
):
    conductances = medium(shape, contrast=1e4, reaction=1e-3, stretched=stretched)
    place = unknown(shape)
    b = np.random.default_rng(1).standard_normal(conductances.reaction[place].shape)
    alone, expected = solved(conductances, place, b)
    for dims in dims_of(comm.size, len(shape)):
        ranks = make_ranks(dims)
        ranges = [
            [(one.start + a, one.start + z - 1) for a, z in shares(one.stop - one.start, n)]
            for one, n in zip(place, dims, strict=True)
        ]
        blocks = LevelBox(ranks, LevelPartition(ranges, 2))
        beyond = tuple(
            slice(max(first - 1, 0), min(last + 2, nodes))
            for (first, last), nodes in zip(blocks.nodes.box, shape, strict=True)
        )
        equations = NodeEquations(blocks, conductances.part(*beyond), [one.start for one in beyond])
        here = tuple(
            slice(first - one.start, last + 1 - one.start)
            for (first, last), one in zip(blocks.nodes.box, place, strict=True)
        )
        found, x = solved_by(equations, np.ascontiguousarray(b[here]))
        assert found.status == alone.status
        assert len(found.history) == len(alone.history)
        # Additions in another order, in float32 in the cycle: what that changes the residual takes back.
        difference = np.abs(equations.values(x) - expected[here]).max()
        assert difference <= 1e-7 * np.abs(expected).max()


def dims_of(size, axes):
    """Return all process grids of so many ranks."""
    grids = [grid for grid in np.ndindex((size + 1,) * axes) if np.prod(grid) == size]
    return grids if axes == 2 else grids[:2]


def shares(count, parts):
    ends = np.linspace(0, count, parts + 1).astype(int).tolist()
    return list(itertools.pairwise(ends))


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("reaction", [0.0, 1e-3])
def test_couplings_in_two_parts_leave_what_those_in_float64_do(scale, reaction):
    conductances = medium((19, 24), scale=scale, reaction=reaction)
    box = inside((19, 24))
    system = equations_of(conductances, box)
    assert all(k.dtype == torch.float32 for k in system.couplings.values())
    b, u = np.random.default_rng(0).standard_normal((2, 17, 22))
    x, r = system.vector(u), system.vector()
    system.residual(system.vector(scale * b), x, r)(2.0 * scale)
    matrix = matrix_of(conductances, box) / scale
    expected = (b.ravel() - matrix @ u.ravel()) / 2
    terms = abs(b.ravel()) + abs(matrix) @ abs(u.ravel())
    assert (abs(system.values(r).ravel() - expected) <= 2.0**-48 * terms).all()


def test_numbers_in_float32_whose_largest_is_1_are_not_copied():
    conductances = medium((9, 8, 10), reaction=1e-3)
    largest = max(k.max() for k in conductances.along)
    single = conductances.each(lambda k: (k / largest).astype(np.float32))
    box = inside((9, 8, 10))
    system = equations_of(single, box)
    assert system.scale == 1
    level = system.level()
    assert all(level.couplings[step] is k for step, k in system.couplings.items())
    b = np.random.default_rng(0).random([8 - 1, 8 - 2, 10 - 2])
    found, x = solved_by(system, b, rtol=1e-11)  # below what float32 resolves
    assert found.status == "converged_rtol"
    u = scipy.sparse.linalg.spsolve(matrix_of(single, box), b.ravel())
    np.testing.assert_allclose(system.values(x).ravel(), u, rtol=1e-9)
