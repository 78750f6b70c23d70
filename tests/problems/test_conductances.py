"""Conductances between the nodes of a line, a plane and a space: one code, checked against whole matrices."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from mosaicdd.problems.operators.conductances import Conductances

SHAPES = [(7,), (5, 6), (4, 5, 6)]
ROUNDING = 1e-13  # of sums of at most 8 numbers below 50, beside numbers above 1


def edges(shape, seed):
    """Return conductances along each axis, from 1 to 2."""
    rng = np.random.default_rng(seed)
    axes = range(len(shape))
    return tuple(rng.uniform(1, 2, [n - (i == axis) for i, n in enumerate(shape)]) for axis in axes)


def made(shape, *, velocity):
    reaction = np.random.default_rng(2).uniform(1, 2, shape)
    return Conductances(edges(shape, 0), reaction, edges(shape, 1) if velocity else ())


def dense(conductances):
    """Return the matrix of all nodes, edge by edge."""
    shape = conductances.reaction.shape
    matrix = np.diag(conductances.reaction.ravel())
    for axis, (along, against) in enumerate(
        zip(conductances.along, conductances.against, strict=True)
    ):
        for low in itertools.product(*map(range, along.shape)):
            high = tuple(n + (i == axis) for i, n in enumerate(low))
            a, b = (np.ravel_multi_index(place, shape) for place in (low, high))
            matrix[a, [a, b]] += along[low] * np.array([1, -1])
            matrix[b, [b, a]] += against[low] * np.array([1, -1])
    return matrix


def inner(values):
    return values[(..., *(slice(1, -1),) * values.ndim)]


@pytest.mark.parametrize("velocity", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_operator_is_the_sum_over_the_edges_of_all_axes(shape, velocity):
    conductances = made(shape, velocity=velocity)
    matrix, u = dense(conductances), np.random.default_rng(3).standard_normal(shape)
    size = {"rtol": ROUNDING, "atol": 8 * ROUNDING}
    applied = inner((matrix @ u.ravel()).reshape(shape))
    np.testing.assert_allclose(conductances.apply(u), applied, **size)
    np.testing.assert_allclose(conductances.diagonal().ravel(), matrix.diagonal(), **size)
    rows = np.array([0, 2, shape[0] - 1])
    np.testing.assert_allclose(
        conductances.diagonal_of_rows(rows), conductances.diagonal()[rows], **size
    )
    nodes = np.arange(0, u.size, 2)
    around = matrix.diagonal() - conductances.reaction.ravel()
    np.testing.assert_allclose(conductances.around(nodes), around[nodes], **size)
    numbers = inner(np.arange(u.size).reshape(shape)).ravel()
    inside = conductances.matrix().toarray()
    np.testing.assert_allclose(inside, matrix[np.ix_(numbers, numbers)], **size)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_constant_operator_is_a_kronecker_sum(axes):
    shape = (5, 6, 7)[-axes:]
    weights = (1.0, 2.0, 3.0)[-axes:]  # a of each axis
    ones = [np.ones([n - (i == axis) for i, n in enumerate(shape)]) for axis in range(axes)]
    along = tuple(a * k for a, k in zip(weights, ones, strict=True))
    expected = 0
    for axis, a in enumerate(weights):
        count = shape[axis] - 2
        line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(count, count))
        before = int(np.prod([n - 2 for n in shape[:axis]]))
        after = int(np.prod([n - 2 for n in shape[axis + 1 :]]))
        eye = scipy.sparse.eye_array
        expected = expected + a * scipy.sparse.kron(
            scipy.sparse.kron(eye(before), line), eye(after)
        )
    found = Conductances(along, np.zeros(shape)).matrix()
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


def test_without_a_velocity_both_ways_of_an_edge_share_memory():
    conductances = made((5, 6), velocity=False)
    assert conductances.symmetric
    assert conductances.against is conductances.along
    assert conductances.part(slice(0, 3), slice(1, 4)).symmetric


@pytest.mark.parametrize("shape", SHAPES)
def test_the_nodes_inside_may_come_round(shape):
    """A constant has the image of the reaction where all axes come round, along all edges inside."""
    ones = tuple(np.ones(k.shape) for k in edges(shape, 0))
    periodic = Conductances(ones, np.ones(shape)).matrix(periodic=(True,) * len(shape))
    np.testing.assert_allclose(periodic.sum(axis=1), 1.0, rtol=ROUNDING)
    flat = Conductances(ones, np.zeros(shape)).matrix()
    assert flat.sum() > 0
