"""Periodic sides of boxes: against a matrix of wrapped neighbours, a formula, and alike on all ranks."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.exact import Exact

PAIRS = ("back", "front"), ("bottom", "top"), ("left", "right")
AROUND = [(True, False, False), (False, True, True), (True, True, True)]


def periodic(around):
    return {
        side: m.Periodic()
        for pair, wraps in zip(PAIRS, around, strict=True)
        for side in pair * wraps
    }


def wrapped(a, c, h, around):
    """Return the matrix of a medium of values per voxel, and its nodes; on sides that are no pair values are zero."""
    numbers, entries = np.arange(a.size).reshape(a.shape), []
    diagonal = np.full(a.shape, c * h * h)
    for axis in range(3):
        k = a
        for other in {0, 1, 2} - {axis}:
            k = (k + np.roll(k, 1, other)) / 2
        there = np.roll(numbers, -1, axis)
        diagonal += k + np.roll(k, 1, axis)
        entries += [(numbers, there, -k), (there, numbers, -k)]
    entries.append((numbers, numbers, diagonal))
    rows, columns, values = (
        np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries, strict=True)
    )
    matrix = scipy.sparse.csr_array((values, (rows, columns)))
    nodes = tuple(slice(0 if wraps else 1, None) for wraps in around)
    inner = numbers[nodes].ravel()
    return matrix[inner][:, inner].tocsc(), nodes


@pytest.mark.parametrize("cells", [(9, 12, 10), (17, 9, 11)], ids=str)
@pytest.mark.parametrize("around", AROUND)
def test_fields_are_those_of_a_matrix_of_wrapped_neighbours(around, cells):
    rng = np.random.default_rng(0)
    a, f, h = np.exp(rng.standard_normal(cells)), rng.standard_normal(cells), 0.1
    source = np.pad(f, ((0, 1),) * 3, mode="wrap")
    problem = m.Problem(
        m.Domain(cells, h), "diffusion", {"a": a, "c": 2.0, "f": source}, periodic(around)
    )
    matrix, nodes = wrapped(a, 2.0, h, around)
    u = scipy.sparse.linalg.spsolve(matrix, h * h * f[nodes].ravel()).reshape(f[nodes].shape)
    solution = m.solve(problem, rtol=1e-11)
    assert solution.converged
    error = np.abs(solution.field[:-1, :-1, :-1][nodes] - u)
    assert error.max() < 1e-9 * np.abs(u).max()
    assert np.sqrt(np.mean(error**2)) <= max(solution.error_estimate, 1e-13 * np.abs(u).max())
    for axis, wraps in enumerate(around):
        first, last = (solution.field.take(end, axis) for end in (0, -1))
        assert not wraps or np.array_equal(first, last)


def test_what_is_periodic_all_round_is_known_up_to_a_constant():
    cells, h = (10, 9, 16), 0.5
    x = h * np.arange(17)
    wave = np.broadcast_to(np.sin(2 * np.pi * x / 8), [n + 1 for n in cells])
    problem = m.Problem(m.Domain(cells, h), "poisson", {"f": wave}, m.Periodic())
    solution = m.solve(problem, rtol=1e-10)
    # Of the differences of this wave.
    eigenvalue = (2 / h * np.sin(np.pi * h / 8)) ** 2
    np.testing.assert_allclose(solution.field, wave / eigenvalue, atol=1e-8)
    with pytest.raises(ValueError, match=r"100\.0% of the sources and fluxes are left over"):
        m.solve(problem.with_fields(f=1.0))


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("around", AROUND[1:])
def test_every_number_of_ranks_gives_the_same_field(around, comm, known_by_one):
    cells = (13, 18, 25)
    a = np.exp(np.random.default_rng(5).normal(size=cells))
    sides = periodic(around) | ({} if around[0] else {"front": m.Robin(1.0, "x")})
    problem = m.Problem(m.Domain(cells, 0.1), "diffusion", {"a": a, "c": 1.0, "f": "x + z"}, sides)
    alone = known_by_one(m.solve, problem, Exact(16), rtol=1e-13)
    together = m.solve(problem, Exact(16), rtol=1e-13, ranks=comm)
    difference = np.abs(together.gather() - alone.field).max()
    assert difference <= 1e-12 * np.abs(alone.field).max()
    assert together.converged
