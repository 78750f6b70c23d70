"""Condensed elements against dense elimination of each element by itself."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.perimeter import square_perimeter
from mosaicdd.local_solvers.elements.condensed import CondensedElements, NodeSource
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium

ROWS, COLUMNS, PROBLEMS = 2, 3, 2
SPACINGS = [1, 2, 3, 4, 6, 8, 10, 16]  # odd, of one level and of several
ROUNDING = 1e-11  # eps times the condition of an element of contrast 1e5, in its own scale


@pytest.fixture(
    params=itertools.product(SPACINGS, ["", "velocity", "across"]), ids=lambda p: f"{p[0]}{p[1]}"
)
def case(request):
    """Return elements, their spacing, conductances and a source.

    Also with a velocity, and with conductances across cells.
    """
    s, kind = request.param
    grid = Grid((ROWS * s, COLUMNS * s), 1 / 64)
    rng = np.random.default_rng(s)
    a = np.exp(2.0 * rng.standard_normal(grid.nodes))
    fields = {"a": a, "c": 100 * rng.uniform(size=grid.nodes)}
    if kind == "velocity":  # cell Peclet numbers up to some 100
        fields |= {"bx": 100 * rng.standard_normal(grid.nodes), "by": "40*sin(9*x)"}
    medium = Medium({name: Field(name, values) for name, values in fields.items()})
    conductances = medium.conductances(grid, tuple(slice(0, n) for n in grid.nodes))
    if kind == "across":
        across = np.exp(2.0 * rng.standard_normal((2, *grid.shape)))
        conductances = replace(conductances, across=across)
    elements = CondensedElements(conductances, s, device=torch.device("cpu"), dtype=torch.float64)
    return elements, s, conductances, rng.standard_normal((PROBLEMS, *grid.nodes))


def dense(conductances, s, row, column):
    """Return the element's own matrix over all of its nodes, and which are on its perimeter."""
    rows, columns = slice(row * s, row * s + s + 1), slice(column * s, column * s + s + 1)
    part = conductances.part(rows, columns)
    share = np.ones(s + 1)
    share[[0, -1]] = 0.5
    numbers = np.arange((s + 1) ** 2).reshape(s + 1, s + 1)
    matrix = np.diag((part.reaction * share * share[:, None]).ravel())
    pairs = [
        (part.along[0] * share, numbers[:-1], numbers[1:]),
        (part.against[0] * share, numbers[1:], numbers[:-1]),
        (part.along[1] * share[:, None], numbers[:, :-1], numbers[:, 1:]),
        (part.against[1] * share[:, None], numbers[:, 1:], numbers[:, :-1]),
    ]
    if part.across is not None:
        rising = numbers[:-1, :-1], numbers[1:, 1:]
        falling = numbers[1:, :-1], numbers[:-1, 1:]
        for k, (i, j) in zip(part.across, (rising, falling), strict=True):
            pairs += [(k, i, j), (k, j, i)]
    for k, i, j in pairs:
        np.add.at(matrix, (i, i), k)
        np.add.at(matrix, (i, j), -k)
    ring = square_perimeter(s)
    return matrix, numbers[ring[:, 0], ring[:, 1]], numbers[1:-1, 1:-1].ravel(), (rows, columns)


def each(case):
    _, s, conductances, _ = case
    for number in range(ROWS * COLUMNS):
        yield number, *dense(conductances, s, *divmod(number, COLUMNS))


def test_schur_complements_and_loads_are_those_of_dense_elimination(case):
    elements, s, _, source = case
    expected, complements = np.zeros_like(source), elements.schur.of(slice(None))
    for number, matrix, edge, inner, place in each(case):
        inside = matrix[np.ix_(inner, inner)]
        schur = matrix[np.ix_(edge, edge)]
        schur = schur - matrix[np.ix_(edge, inner)] @ np.linalg.solve(
            inside, matrix[np.ix_(inner, edge)]
        )
        np.testing.assert_allclose(
            complements[number], schur, atol=ROUNDING * abs(schur).max(), rtol=0
        )
        f = source[:, *place].reshape(PROBLEMS, -1)[:, inner].T
        load = np.zeros((len(matrix), PROBLEMS))
        load[edge] = -matrix[np.ix_(edge, inner)] @ np.linalg.solve(inside, f)
        expected[:, *place] += load.T.reshape(PROBLEMS, s + 1, s + 1)
    on_lines = expected[:, ::s], expected[:, :, ::s].swapaxes(1, 2)
    found = lines_of(np.zeros_like(source), s)
    elements.add_loads(found, NodeSource(torch.from_numpy(source)))
    for lines, load in zip(found, on_lines, strict=True):
        np.testing.assert_allclose(lines, load, atol=ROUNDING * (1 + abs(load).max()))


@pytest.mark.parametrize("with_source", [False, True])
def test_the_fill_solves_for_the_nodes_inside(case, with_source):
    elements, s, _, source = case
    if not with_source:
        source = np.zeros_like(source)
    u = np.random.default_rng(1).standard_normal(source.shape)
    for _, matrix, edge, inner, place in each(case):
        part = u[:, *place]
        values, f = part.reshape(PROBLEMS, -1).T, source[:, *place].reshape(PROBLEMS, -1).T
        force = f[inner] - matrix[np.ix_(inner, edge)] @ values[edge]
        solved = np.linalg.solve(matrix[np.ix_(inner, inner)], force)
        part[:, 1:-1, 1:-1] = solved.T.reshape(PROBLEMS, s - 1, s - 1)
    strips = elements.fill(
        lines_of(u, s), NodeSource(torch.from_numpy(source) / 3, 3.0) if with_source else None
    )
    for strip, values in strips:
        expected = u[:, strip.start * s : strip.stop * s + 1]
        np.testing.assert_allclose(values[:, 1:], expected, atol=ROUNDING * abs(u).max())


def lines_of(u, s):
    """Return values at all nodes on the lattice lines of each axis."""
    return torch.from_numpy(u[:, ::s].copy()), torch.from_numpy(u[:, :, ::s].swapaxes(1, 2).copy())


def test_what_is_not_kept_is_made_again(case):
    kept, s, conductances, source = case
    tensors = {"device": torch.device("cpu"), "dtype": torch.float64}
    elements = CondensedElements(conductances, s, keep=False, **tensors)
    assert torch.equal(elements.schur.of(slice(None)), kept.schur.of(slice(None)))
    u, f = (
        np.random.default_rng(1).standard_normal(source.shape),
        NodeSource(torch.from_numpy(source)),
    )
    answers = []
    for one in (elements, kept):
        filled = (values[:, 1:] for _, values in one.fill(lines_of(u, s), f))
        loads = lines_of(np.zeros_like(u), s)
        one.add_loads(loads, f)
        answers.append([*loads, *filled])
    for again, once in zip(*answers, strict=True):
        assert torch.equal(again, once)
