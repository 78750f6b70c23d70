"""Several problems strip by strip: the same as one by one, however the strips are cut."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.schwarz.condensed import strips
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.condensed.strip_sums import StripSums
from mosaicdd.schwarz.layouts import block_of
from mosaicdd.schwarz.stopwatch import Stopwatch

CELLS = 64, 48
ROUNDING = 1e-12
SINGLE = 1e-5  # stars keep float32


def tiles(nodes, rng):
    """Return a medium of many kinds of elements, most of which many have."""
    y, x = np.indices(nodes) // 6
    return np.where((x + y) % 2, 100.0, 1.0)


def alike(nodes, rng):
    """Return a medium most of whose elements are alike, and some a few times."""
    a = np.ones(nodes)
    for y, x in ((9, 9), (9, 25), (25, 9), (41, 33)):
        a[y : y + 3, x : x + 4] = 1e3
    a[30:33, 20:30] = 7.0
    return a


def flow(nodes, rng):
    return np.ones(nodes)


@pytest.fixture(params=["noise", "tiles", "alike", "flow"])
def system(request, ranks):
    grid = Grid(CELLS, 1 / 64)
    block = block_of(ranks, Lattice(grid, Subdomain(8, 8 / 64)), ranks.rank)
    make = {"tiles": tiles, "alike": alike, "flow": flow} | MEDIA
    fields = {"a": make[request.param](grid.nodes, np.random.default_rng(0))}
    if request.param == "flow":
        fields |= {"bx": np.full(grid.nodes, 300.0), "by": np.full(grid.nodes, 100.0)}
    medium = Medium({key: Field(key, values) for key, values in fields.items()})
    kind = {"device": torch.device("cpu"), "dtype": torch.float64}
    return CondensedSystem(ranks, block, medium, None, Stopwatch(), **kind)


def some(system, problems, seed=0):
    """Return vectors, with all problems side by side in memory."""
    values = np.random.default_rng(seed).standard_normal((len(system.inside), problems))
    return (torch.from_numpy(values) * system.inside[:, None]).T


def corrections(system, r):
    out, room = (torch.empty_like(r) for _ in range(2))
    return system.stars(r, out, room, norms=np.ones(len(r)))


def assert_alike(found, expected, rounding):
    assert abs(found - expected).max() <= rounding * abs(expected).max()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("size", [1, 2**14, 2**21])
def test_several_problems_are_the_same_as_one_by_one(system, monkeypatch, size):
    monkeypatch.setitem(strips._STRIP, "cpu", size)
    monkeypatch.setitem(strips._PIECE, "cpu", 7)
    for problems in (2, 17, 3):  # with other strips each time
        v = some(system, problems)
        image, corrected, c = system.operator(v), corrections(system, v), system.coarse.solve(v, v)
        for i in range(problems):
            one = v[i : i + 1].contiguous()
            # The places of lattice nodes that do not count have anything.
            assert_alike(
                image[i] * system.inside, system.operator(one)[0] * system.inside, ROUNDING
            )
            assert_alike(corrected[i], corrections(system, one)[0], SINGLE)
            assert_alike(c[i], system.coarse.solve(one, one)[0], 1e-9)


@pytest.mark.parametrize(
    "keys", [[1] * 60, list(range(60)), [0] * 30 + list(range(30)), [2, 3] * 30]
)
def test_pieces_have_each_member_once_with_its_operator(keys, monkeypatch):
    monkeypatch.setitem(strips._PIECE, "cpu", 8)
    kinds = Kinds(np.array(keys))
    places = torch.arange(60, dtype=torch.int32)[:, None]
    seen = []
    for numbers in (slice(0, 24), slice(24, 60)):
        strip = strips.MemberStrip(kinds, numbers, places)
        for piece in strip.pieces:
            members = strip.order[piece.members].reshape(len(piece), -1)
            operators = np.arange(piece.operators.start, piece.operators.stop)
            np.testing.assert_array_equal(kinds.operator[members].T, [operators] * members.shape[1])
            assert (operators < len(kinds.shared)).all() == piece.shared
            assert members.size <= 8
            seen += members.ravel().tolist()
        np.testing.assert_array_equal(strip.places, strip.order)
    assert sorted(seen) == list(range(60))


def test_idle_members_are_left_out():
    kinds = Kinds(np.array([0] * 30 + [1] * 30))
    kinds.leave_out(lambda member: member < 30)
    places = torch.arange(60, dtype=torch.int32)[:, None]
    assert strips.MemberStrip(kinds, slice(0, 20), places).pieces == []
    assert strips.MemberStrip(kinds, slice(20, 60), places).order.tolist() == list(range(30, 60))


def test_sums_are_zero_where_nothing_is_added():
    shapes = [
        (4, 7),
        (3, 10),
    ]  # two strips, the first of which adds nothing, the second one number twice
    places = [torch.empty(0, dtype=torch.int32), torch.tensor([8, 8, 28 + 13], dtype=torch.int32)]
    total = torch.full((58, 2), np.nan, dtype=torch.float64)
    added = [torch.empty(0, 2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64)]
    StripSums(places, shapes, torch.float64)(total, iter(added))
    expected = np.zeros((58, 2))
    expected[8], expected[41] = 2.0, 1.0
    np.testing.assert_array_equal(total, expected)


def test_sums_of_two_strips_meet_on_the_lines_between_them():
    shapes = [(4, 7), (3, 10)]
    places = [torch.tensor([7, 14, 28 + 4]), torch.tensor([14, 21, 28 + 4, 28 + 5])]
    total = torch.full((58, 1), np.nan, dtype=torch.float64)
    added = [torch.tensor([[1.0], [2.0], [3.0]]).double(), torch.tensor([[10.0]] * 4).double()]
    StripSums(places, shapes, torch.float64)(total, iter(added))
    expected = np.zeros(58)
    expected[[7, 14, 21, 32, 33]] = 1.0, 12.0, 10.0, 13.0, 10.0
    np.testing.assert_array_equal(total[:, 0], expected)
