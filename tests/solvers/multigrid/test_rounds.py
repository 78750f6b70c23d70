"""Multigrid on axes that come round, against sparse factorisations with neighbours all round."""

import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from products import require_symmetric_and_positive

from mosaicdd import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.conjugate_gradients import FlexibleGradients
from mosaicdd.solvers.multigrid.cycle import Cycle
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.settings import StoppingRule

# Nodes all round: powers of two; halves that are odd, once and on all levels; fewer than copies.
SHAPES = [(64, 32), (66, 70), (130, 34), (60, 2), (16, 24, 8), (18, 10, 22), (26, 6, 4)]
REACTION = 1e-3


def medium(shape, contrast=1e3):
    white = np.random.default_rng(0).standard_normal(shape)
    return contrast ** ((white - white.min()) / np.ptp(white))


def matrix_of(a, periodic):
    """Return the equations of all nodes, by their definition; natural at the ends of other axes."""
    number, resistance = np.arange(a.size).reshape(a.shape), 0.5 / a
    diagonal, entries = np.full(a.size, REACTION), []
    for axis, wraps in enumerate(periodic):
        ends = slice(None) if wraps else slice(0, -1)
        k = 1 / (resistance + np.roll(resistance, -1, axis))
        parts = [np.moveaxis(v, axis, 0)[ends].ravel() for v in (number, np.roll(number, -1, axis), k)]  # fmt: skip
        low, high, k = parts
        entries += [(low, high, -k), (high, low, -k)]
        np.add.at(diagonal, low, k)
        np.add.at(diagonal, high, k)
    entries.append((number.ravel(), number.ravel(), diagonal))
    rows, columns, values = (np.concatenate(p) for p in zip(*entries, strict=True))
    return scipy.sparse.csc_array((values, (rows, columns)), shape=(a.size,) * 2)


def system_of(a, periodic, ranks):
    """Return the same equations on this rank's nodes, and where these are."""
    ranges = []
    every = ranks.dims if ranks.size > 1 else (1,) * a.ndim
    for nodes, dims in zip(a.shape, every, strict=True):
        ends = np.linspace(0, nodes, dims + 1).astype(int)
        ranges.append([(int(low), int(high) - 1) for low, high in itertools.pairwise(ends)])
    blocks = LevelBox(ranks, LevelPartition(ranges, 2, periodic))
    held = [
        np.arange(first - 1, last + 2) if wraps else np.arange(max(first - 1, 0), min(last + 2, n))
        for (first, last), n, wraps in zip(blocks.nodes.box, a.shape, periodic, strict=True)
    ]
    around = np.ix_(*(nodes % n for nodes, n in zip(held, a.shape, strict=True)))
    resistance, along = (0.5 / a)[around], []
    for axis in range(a.ndim):
        r = np.moveaxis(resistance, axis, 0)
        along.append(np.moveaxis(1 / (r[1:] + r[:-1]), 0, axis))
    conductances = Conductances(tuple(along), np.full(resistance.shape, REACTION))
    own = tuple(slice(low, high + 1) for low, high in blocks.owned)
    return NodeEquations(blocks, conductances, [int(nodes[0]) for nodes in held]), own


def solved(a, periodic, ranks, b, rtol=1e-10):
    """Return the relative residuals of a solve, and the values at this rank's nodes."""
    system, own = system_of(a, periodic, ranks)
    box = system.nodes.box
    here = tuple(slice(o.start - low, o.stop - low) for o, (low, _) in zip(own, box, strict=True))
    values = np.zeros([high - low + 1 for low, high in box])
    values[here] = b[own]
    judge = ResidualMonitor(
        StoppingRule(rtol, 0.0, 100), None, None, None, lambda x, h: None, system.size_here
    )
    gradients, x = FlexibleGradients(system), system.vector()
    status = gradients(system.vector(values), x, float(np.linalg.norm(b)), judge)
    assert status == "converged_rtol"
    return judge.history.residual, system.values(x)[here], own


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("all_round", [True, False])
def test_values_are_those_of_a_factorisation(shape, all_round):
    a, periodic = medium(shape), (True,) + (all_round,) * (len(shape) - 1)
    b = np.random.default_rng(1).standard_normal(shape)
    expected = scipy.sparse.linalg.spsolve(matrix_of(a, periodic), b.ravel()).reshape(shape)
    history, u, _ = solved(a, periodic, Ranks.alone(), b)
    # The least eigenvalue is that of the reaction, 1e-3.
    assert np.linalg.norm(u - expected) <= 1e-10 / REACTION * np.linalg.norm(b)
    assert len(history) <= 30


@pytest.mark.parametrize("shape", [(130, 130), (254, 258), (34, 34, 34)], ids=str)
def test_nodes_between_others_cost_no_iteration(shape):
    """Halves are 65, 33, 17 on one level after another, or 127 and 129 on the first."""
    white = np.random.default_rng(0).standard_normal([n // 2 for n in shape])
    a = np.exp(np.kron(white, np.ones((2,) * len(shape))))
    b = np.random.default_rng(1).standard_normal(shape)
    ways = (True,) * len(shape), (False,) * len(shape)
    counts = [len(solved(a, way, Ranks.alone(), b, rtol=1e-8)[0]) for way in ways]
    assert counts[0] <= counts[1] + 2


@pytest.mark.parametrize("shape", [(34, 22), (64, 36), (18, 12, 10)], ids=str)
def test_the_cycle_is_symmetric_and_positive(shape):
    system, _ = system_of(medium(shape), (True,) * len(shape), Ranks.alone())
    cycle = Cycle(system.level(), system.blocks)
    owned = torch.ones_like(cycle.values)
    system.copies.clear(owned)
    places = torch.nonzero((owned * system.level().inverse).view(-1)).ravel()
    require_symmetric_and_positive(cycle, places)


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("shape", [(196, 130), (28, 44, 20)], ids=str)
def test_every_process_grid_takes_the_same_iterations_to_the_same_field(shape, make_ranks, comm):
    a = medium(shape)
    b = np.random.default_rng(1).standard_normal(shape)
    grids = [g for g in np.ndindex((comm.size + 1,) * len(shape)) if np.prod(g) == comm.size]
    for periodic in [(True,) * len(shape), (False,) * (len(shape) - 1) + (True,)]:
        alone, expected, _ = solved(a, periodic, Ranks.alone(), b, rtol=1e-8)
        for dims in grids[: 4 if len(shape) == 2 else 2]:
            history, u, own = solved(a, periodic, make_ranks(dims), b, rtol=1e-8)
            assert len(history) == len(alone)
            # As additions have another order, in float32 in the cycle; residuals are of 1e-8 of the norm.
            assert np.abs(u - expected[own]).max() <= 2e-8 / REACTION * np.linalg.norm(b)
