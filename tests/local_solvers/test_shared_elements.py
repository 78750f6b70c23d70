"""Elements that share operators against the same elements with an operator each."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.elements import shared_strips
from mosaicdd.local_solvers.elements.condensed import CondensedElements, NodeSource
from mosaicdd.local_solvers.elements.element_windows import ElementWindows
from mosaicdd.local_solvers.elements.kinds import Kinds, alike, combined
from mosaicdd.local_solvers.elements.shared_elements import SharedElements, condensed
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium

SHAPE = 7, 9
PROBLEMS = 2
TENSORS = {"device": torch.device("cpu"), "dtype": torch.float64}
ROUNDING = 1e-12  # eps times the condition of an element of a few hundred nodes


def conductances_of(s, kind):
    """Return those of a medium that varies in three elements only, and half of it along two sides."""
    grid = Grid((SHAPE[0] * s, SHAPE[1] * s), 1 / 64)
    a = np.full(grid.shape, 2.0)
    rng = np.random.default_rng(s)
    for y, x in ((2, 3), (2, 4), (5, 7)):
        inside = slice(y * s + 1, (y + 1) * s - 1), slice(x * s + 1, (x + 1) * s - 1)
        a[inside] = np.exp(rng.standard_normal(a[inside].shape))
    fields = {"a": a, "c": 30.0}
    if kind == "velocity":
        fields |= {"bx": 40.0, "by": -20.0}
    medium = Medium({name: Field(name, values) for name, values in fields.items()})
    conductances = medium.conductances(grid, tuple(slice(0, n) for n in grid.nodes))
    if kind == "across":
        across = np.full((2, *grid.shape), 0.3)
        across[:, 2 * s + 1, 3 * s + 1] = 0.7
        conductances = replace(conductances, across=across)
    return conductances


@pytest.fixture(params=[(s, kind) for s in (2, 5, 12) for kind in ("", "velocity", "across")])
def case(request):
    s, kind = request.param
    conductances = conductances_of(s, kind)
    own = CondensedElements(conductances, s, **TENSORS)
    return s, conductances, condensed(conductances, s, **TENSORS), own


def test_the_complements_are_those_of_each_element(case):
    _, _, shared, own = case
    assert isinstance(shared, SharedElements)
    every = torch.arange(len(own.schur))
    expected = own.schur.of(every)
    largest = expected.abs().max()
    torch.testing.assert_close(shared.schur.of(every), expected, atol=ROUNDING * largest, rtol=0)
    sets = torch.tensor([[0, 1, 3], [2, 5, 4]])
    among = torch.stack([expected[:, nodes[:, None], nodes] for nodes in sets], dim=1)
    operators = torch.from_numpy(shared.schur.kinds.operator)
    found = shared.schur.among(operators, sets, expected.dtype)
    torch.testing.assert_close(found, among, atol=ROUNDING * largest, rtol=0)


@pytest.mark.parametrize("many", [1, 9, 40])
def test_the_products_are_those_of_each_element(case, many):
    s, _, shared, own = case
    values = torch.from_numpy(np.random.default_rng(1).standard_normal((63, many, 4 * s)))
    expected = torch.bmm(values, own.schur.of(slice(None)).mT)
    kinds = shared.schur.kinds
    pieces = kinds.pieces(shared=20, own=2)
    assert sum(piece.members.stop - piece.members.start for piece in pieces) == 63
    for piece in pieces:
        here = kinds.order[piece.members]
        given, wanted = (
            one[here].unflatten(0, (len(piece), -1)).flatten(1, 2) for one in (values, expected)
        )
        for rows in (given, given.mT.contiguous().mT):
            product = shared.schur(piece, rows)
            torch.testing.assert_close(product, wanted, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("where", ["everywhere", "in one element", "nowhere"])
@pytest.mark.parametrize("keep", [True, False])
def test_loads_and_fill_are_those_of_each_element(case, where, keep, monkeypatch):
    monkeypatch.setitem(shared_strips.GROUP, "cpu", 20)
    monkeypatch.setitem(shared_strips._STRIP, "cpu", 3 * PROBLEMS * SHAPE[1])
    s, conductances, _, own = case
    kinds = Kinds(alike(conductances.windows(s).arrays(), axes=2))
    shared = SharedElements(ElementWindows(conductances, s), s, kinds, keep=keep, **TENSORS)
    rng = np.random.default_rng(2)
    nodes = (PROBLEMS, SHAPE[0] * s + 1, SHAPE[1] * s + 1)
    f, u = rng.standard_normal((2, *nodes))
    if where == "in one element":
        f[:, : 2 * s + 1] = f[:, 3 * s :] = f[:, :, : 4 * s] = f[:, :, 5 * s + 1 :] = 0.0
    lines = torch.from_numpy(u[:, ::s].copy()), torch.from_numpy(u[:, :, ::s].swapaxes(1, 2).copy())
    source = None
    if where != "nowhere":
        source = NodeSource(torch.from_numpy(f), 0.3)
        for one, other in zip(*(loads(each, lines, source) for each in (shared, own)), strict=True):
            torch.testing.assert_close(one, other, atol=ROUNDING, rtol=ROUNDING)
    row = 0
    (_, expected), *_ = list(own.fill(lines, source))  # all in one strip
    for strip, values in shared.fill(lines, source):
        assert strip.start == row
        row = strip.stop
        here = expected[:, 1 + strip.start * s : 1 + strip.stop * s + 1]
        torch.testing.assert_close(values[:, 1:], here, atol=ROUNDING * 10, rtol=0)
    assert row == SHAPE[0]


def loads(elements, lines, source):
    """Return what sources add on lattice lines of these shapes."""
    added = [torch.zeros_like(one) for one in lines]
    elements.add_loads(added, source)
    return added


def test_kinds_are_told_apart_by_all_numbers():
    rows = np.ones((100, 3, 4))
    rows[40:80] = 2.0
    rows[90, 1, 2] += 1e-15  # lost in any sum
    rows[91:] = np.arange(3, 12)[:, None, None]
    keys = alike([rows, np.zeros((100, 2))])
    kinds = Kinds(keys)
    assert [part.stop - part.start for part in kinds.shared] == [50, 40]
    np.testing.assert_array_equal(kinds.order[kinds.own], range(90, 100))
    assert kinds.operators == 2 + 10
    np.testing.assert_array_equal(kinds.operator[:3], 0)
    np.testing.assert_array_equal(kinds.operator[kinds.examples], range(12))


def test_combined_keys_are_the_same_where_all_are():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (4, 200))
    keys = combined(*rows)
    same = (rows[:, :, None] == rows[:, None]).all(axis=0)
    np.testing.assert_array_equal(keys[:, None] == keys, same)


@pytest.mark.parametrize("shape", [(200,), (20, 10)])
def test_keys_that_are_large_are_combined_without_overflow(shape):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (4, *shape)) * (2**60 - 1)
    keys = combined(*rows)
    assert keys.shape == shape
    rows = rows.reshape(4, -1)
    same = (rows[:, :, None] == rows[:, None]).all(axis=0)
    np.testing.assert_array_equal(keys.reshape(-1, 1) == keys.ravel(), same)
