"""What people read off a solution, each against a sum that is written here by hand."""

import numpy as np
import pytest

import mosaicdd as m

RTOL = 1e-12
TIGHT = m.SolveSettings(rtol=RTOL)
NY, NX, H = 24, 40, 0.25
Y, X = np.mgrid[: NY + 1, : NX + 1] * H
# A solve leaves a residual of RTOL times the right-hand side; a sum over 1000 nodes and more of it is far below this.
CLOSE = {"rel": 1e-9, "abs": 1e-9}


def at_nodes(seed, low=0.5, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, (NY + 1, NX + 1))


def volumes():
    """Return the control volumes of a rectangle, halves and quarters on its sides."""
    weights = np.full((NY + 1, NX + 1), H * H)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        weights[edge] /= 2
    return weights


def faces(axis):
    """Return the part of a whole face across each edge along an axis."""
    shape = [NY + 1, NX + 1]
    shape[axis] -= 1
    part = np.ones(shape)
    for end in (0, -1):
        np.moveaxis(part, axis, 0)[:, end] /= 2
    return part


def fluxes(u, a):
    """Return the flows across all edges over the length of a face, by harmonic means."""
    down, across = 2 / (1 / a[1:] + 1 / a[:-1]), 2 / (1 / a[:, 1:] + 1 / a[:, :-1])
    return faces(0) * down * (u[:-1] - u[1:]) / H, faces(1) * across * (u[:, :-1] - u[:, 1:]) / H


MIXED = {
    "left": m.Robin(2.0, "y"),
    "right[0:2]": m.Dirichlet(1.0),
    "right": m.Neumann("y"),
    "bottom": m.Dirichlet("x"),
    "top": m.Neumann(0.3),
}
FIELDS = {"a": at_nodes(0), "c": at_nodes(1), "f": at_nodes(2, -1.0, 2.0)}
BOARD = m.Problem(m.Domain((NY, NX), H), "diffusion", FIELDS, MIXED)


@pytest.fixture(scope="module")
def board():
    solution = m.solve(BOARD, settings=TIGHT)
    assert solution.converged
    return solution


def test_fluxes_are_those_of_the_discretisation_and_lose_nothing(board):
    down, across = board.flux()
    expected = fluxes(board.field, FIELDS["a"])
    np.testing.assert_allclose(down, expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(across, expected[1], rtol=1e-12, atol=1e-12)
    made = (FIELDS["f"] - FIELDS["c"] * board.field) * volumes()
    out = np.diff(down, axis=0)[:, 1:-1] + np.diff(across, axis=1)[1:-1]
    np.testing.assert_allclose(H * out, made[1:-1, 1:-1], rtol=0, atol=1e-9)


def test_flows_are_what_volumes_on_sides_have_left_over(board):
    u, (down, across) = board.field, fluxes(board.field, FIELDS["a"])
    left = (FIELDS["f"] - FIELDS["c"] * u) * volumes()
    left[:-1] -= H * down
    left[1:] += H * down
    left[:, :-1] -= H * across
    left[:, 1:] += H * across
    # In the corners the given flux and the exchange are those of their sides, all else of the side with values.
    lengths = np.full(NY + 1, H)
    lengths[[0, -1]] /= 2
    exchange = (2.0 * u[:, 0] - Y[:, 0]) * lengths
    assert board.flow("left") == pytest.approx(exchange.sum(), **CLOSE)
    assert board.flow("top") == pytest.approx(-0.3 * NX * H, **CLOSE)
    assert board.flow("right[2:6]") == pytest.approx(-(6.0**2 - 2.0**2) / 2, **CLOSE)
    along_right = left[1:9, -1].sum() + H / 2 * Y[8, 0]  # at y = 2 the flux beyond is given
    corner = left[
        0, -1
    ]  # two sides with values: each has what comes along its axis, and half of the rest
    to_right, to_bottom = H * across[0, -1], -H * down[0, -1]
    along_right += to_right + (corner - to_right - to_bottom) / 2
    assert board.flow("right", (0.0, 2.0)) == pytest.approx(along_right, **CLOSE)
    assert board.flow("right[0:2]") == board.flow("right", (0.0, 2.0))
    total = sum(board.balance().flows.values())
    assert total == pytest.approx(left[:, [0, -1]].sum() + left[[0, -1], 1:-1].sum(), **CLOSE)


def test_a_balance_is_of_all_that_is_made_consumed_and_flows(board):
    balance = board.balance()
    assert list(balance.flows) == ["left", "right", "bottom", "top"]
    assert balance.sources == pytest.approx((FIELDS["f"] * volumes()).sum(), **CLOSE)
    assert balance.reaction == pytest.approx((FIELDS["c"] * board.field * volumes()).sum(), **CLOSE)
    assert balance.outflow - balance.inflow == pytest.approx(sum(balance.flows.values()), **CLOSE)
    assert abs(balance.left_over) < 1e-9
    assert balance.relative < 1e-10
    # An iteration that is ended early leaves more, and says so.
    early = m.solve(BOARD, settings=m.SolveSettings(rtol=1e-2)).balance()
    assert early.relative > 1e-8


def test_the_energy_is_that_of_all_edges(board):
    falls = zip(fluxes(board.field, FIELDS["a"]), (board.field,) * 2, (0, 1), strict=True)
    stored = sum((-flux * np.diff(u, axis=axis) * H).sum() for flux, u, axis in falls)
    stored += (FIELDS["c"] * board.field**2 * volumes()).sum()
    assert board.energy() == pytest.approx(stored / 2, **CLOSE)


def test_integrals_and_means_are_of_the_domain_or_a_region(board):
    u = board.field
    assert board.integral() == pytest.approx((u * volumes()).sum(), **CLOSE)
    assert board.mean() == pytest.approx((u * volumes()).sum() / (NY * NX * H * H), **CLOSE)
    linear = m.solve(m.Problem((NY, NX), "laplace", None, m.Dirichlet("x + 2*y")), settings=TIGHT)
    box = {"x": (0.1, 0.47), "y": (0.05, 0.2)}  # between nodes
    assert linear.mean(box) == pytest.approx(0.57 / 2 + 0.25, rel=1e-9)
    cells = np.zeros((NY, NX), bool)
    cells[3:7, 10:15] = True
    assert linear.mean(cells) == pytest.approx((12.5 + 2 * 5.0) / 64, rel=1e-9)
    nodes = np.zeros((NY + 1, NX + 1), bool)
    nodes[4, 6] = True
    assert linear.integral(nodes) == pytest.approx(linear.field[4, 6] / 64**2, rel=1e-12)
    for wrong in ({"x": (3.0, 2.0)}, {"z": (0, 1)}, np.zeros((3, 3)), np.zeros((NY, NX))):
        with pytest.raises(ValueError, match=r"region|axes"):
            linear.integral(wrong)


def test_extremes_lines_and_gradients(board):
    u = board.field
    row, column = np.unravel_index(u.argmax(), u.shape)
    assert board.max() == (u.max(), (column * H, row * H))
    assert board.min().value == u.min()
    distances, values = board.along([(0.0, 1.0), (10.0, 1.0), (10.0, 4.0)], 53)
    np.testing.assert_allclose(distances, np.linspace(0, 13, 53))
    np.testing.assert_allclose(values[:41], u[4], rtol=1e-12)
    np.testing.assert_allclose(values[40:], u[4:17, -1], rtol=1e-12)
    for axis, slope in enumerate(board.gradient()):
        np.testing.assert_allclose(slope, np.gradient(u, H, axis=axis, edge_order=2), atol=1e-10)


def test_flows_through_sides_are_of_second_order():
    # u = exp(x) sin(y): -u_x on the left is -sin(y).
    errors = []
    for n in (16, 32, 64):
        domain = m.Domain((n, n), 1 / n)
        fields = {"f": "0.5*exp(x)*sin(y)", "c": 0.5}
        problem = m.Problem(domain, "diffusion", fields, m.Dirichlet("exp(x)*sin(y)"))
        errors.append(m.solve(problem, settings=TIGHT).flow("left", (0.25, 0.75)))
    errors = np.abs(np.array(errors) - (np.cos(0.25) - np.cos(0.75)))
    assert (errors[:-1] / errors[1:] > 3.5).all()


RING = "maximum(2.1 - hypot(x-5,y-3), hypot(x-5,y-3) - 2.9)"
SQUARE = np.zeros((NY, NX), bool)
SQUARE[4:20, 6:30] = True
SQUARE[9:13, 12:20] = False
SHAPES = {
    "distance": lambda: m.Domain.from_distance(RING, (NY, NX), H),
    "cells": lambda: m.Domain.from_mask(SQUARE, H, per_cell=True),
    "nodes": lambda: m.Domain.from_mask(np.hypot(Y - 3, X - 5) < 2.6, H),
}


@pytest.mark.parametrize("inner", [m.Dirichlet(1.0), m.Neumann(0.2), m.Robin(3.0, 1.0)], ids=str)
@pytest.mark.parametrize("name", ["distance", "cells"])
def test_what_is_made_within_closed_outlines_flows_out_of_them(name, inner):
    fields = {"a": at_nodes(3), "f": at_nodes(4)}
    if name == "cells" and isinstance(inner, m.Robin):
        inner = m.Neumann(0.2)
    sides = {"outer": m.Dirichlet(0.5), "hole1": inner}
    solution = m.solve(m.Problem(SHAPES[name](), "diffusion", fields, sides), settings=TIGHT)
    balance = solution.balance()
    assert list(balance.flows) == ["outer", "hole1"]
    assert balance.relative < 1e-10
    assert solution.flow("outline") == pytest.approx(balance.sources, rel=1e-10)
    if isinstance(inner, m.Neumann):
        around = 2 * np.pi * 2.1 if name == "distance" else 2 * (4 + 8) * H
        assert solution.flow("hole1") == pytest.approx(-0.2 * around, rel=3e-3)


def test_a_mask_s_outline_lets_through_what_leaves_its_nodes():
    inside = np.hypot(Y - 3, X - 5) < 2.6
    solution = m.solve(m.Problem(SHAPES["nodes"](), "poisson", {"f": 1.0}), settings=TIGHT)
    u = np.nan_to_num(solution.field)
    leaving = np.abs(np.diff(u, axis=0))[np.diff(inside, axis=0)].sum()
    leaving += np.abs(np.diff(u, axis=1))[np.diff(inside, axis=1)].sum()
    assert solution.flow("outline") == pytest.approx(leaving, rel=1e-10)
    assert leaving == pytest.approx(inside.sum() * H * H, rel=1e-10)


@pytest.mark.parametrize("top", [m.Neumann(1.0), m.Robin(0.5, 1.0)])
def test_beside_an_outline_with_values_only_what_has_an_effect_flows_through_a_side(top):
    """The outline meets the side in a node whose value it gives: half a cell of the flux reaches no equation."""
    cells = np.ones((16, 16), bool)
    cells[8:, 8:] = False
    domain = m.Domain.from_mask(cells, 1.0, per_cell=True)
    others = dict.fromkeys(("outline", "left", "right", "bottom"), m.Dirichlet(0.7))
    balance = m.solve(m.Problem(domain, "poisson", {"f": 0.1}, others | {"top": top})).balance()
    assert balance.relative < 1e-6
    if isinstance(top, m.Neumann):
        assert balance.flows["top"] == pytest.approx(-7.5)


def test_the_area_and_the_mean_in_a_disk_are_of_second_order():
    # u = (1 - r^2) / 4 has the mean 1/8.
    for n, bound in ((32, 1.5e-3), (64, 4e-4)):
        domain = m.Domain.from_distance("hypot(x-1.1,y-1.1)-1", (n, n), 2.2 / n)
        solution = m.solve(m.Problem(domain, "poisson", {"f": 1.0}), settings=TIGHT)
        assert solution.integral() == pytest.approx(np.pi / 8, abs=bound)
        assert solution.mean() == pytest.approx(1 / 8, abs=bound)


def test_a_velocity_carries_away_what_it_carries():
    fields = {"bx": 3.0, "by": "x", "f": at_nodes(5), "a": 2.0}
    problem = m.Problem(m.Domain((NY, NX), H), "advection-diffusion", fields, MIXED)
    solution = m.solve(problem, settings=TIGHT)
    balance = solution.balance()
    assert balance.relative < 1e-10
    # b has no sources, so the integral of b . grad u is what leaves with b through the sides, to second order.
    u, along_y, along_x = solution.field, np.full(NY + 1, H), np.full(NX + 1, H)
    along_y[[0, -1]] /= 2
    along_x[[0, -1]] /= 2
    leaving = (3.0 * (u[:, -1] - u[:, 0]) * along_y).sum()
    leaving += (X[0] * (u[-1] - u[0]) * along_x).sum()
    assert balance.carried == pytest.approx(leaving, rel=0.01)
    for ask in (solution.flux, solution.energy):
        with pytest.raises(m.Unsupported, match="velocity"):
            ask()


def test_what_flows_out_through_a_periodic_side_comes_in_at_the_other():
    sides = {"left": m.Periodic(), "right": m.Periodic()}
    problem = m.Problem(m.Domain((NY, NX), H), "diffusion", FIELDS, sides)
    solution = m.solve(problem, settings=TIGHT)
    balance = solution.balance()
    assert list(balance.flows) == ["bottom", "top"]
    assert balance.relative < 1e-10
    assert balance.sources == pytest.approx((FIELDS["f"] * volumes()).sum(), **CLOSE)
    with pytest.raises(ValueError, match="periodic"):
        solution.flow("left")


def test_what_has_no_flows_still_has_means():
    disk = m.Domain.from_distance("hypot(x-0.5,y-0.5)-0.4", (64, 64), 1 / 64)
    solution = m.solve(m.Problem(disk, "poisson-boltzmann", {"c": 1.0}, m.Dirichlet("x")))
    assert 0.4 < solution.mean() < 0.6
    for ask in (solution.flux, solution.balance, solution.energy, lambda: solution.flow("left")):
        with pytest.raises(m.Unsupported, match="not linear, and its domain is no rectangle"):
            ask()


def test_a_window_has_no_quantities():
    window = m.solve(m.Problem((64, 64), "laplace"), window={"x": (0.0, 0.25)})
    with pytest.raises(m.Unsupported, match="window"):
        window.mean()


def test_a_file_says_the_same(board, tmp_path):
    board.save(tmp_path / "board.h5")
    stored = m.read(tmp_path / "board.h5")
    assert stored.balance() == board.balance()
    assert (stored.mean(), stored.energy(), stored.max()) == (
        board.mean(),
        board.energy(),
        board.max(),
    )
    assert stored.flow("right[0:2]") == board.flow("right[0:2]")
    # A part of a side that ends between nodes
    cut = m.Problem(
        m.Domain((NY, NX), H), "laplace", None, MIXED | {"right[3.1:3.4]": m.Neumann(1.0)}
    )
    m.solve(cut, output=tmp_path / "cut.h5")
    assert m.read(tmp_path / "cut.h5").flow("right[3:3.5]") == pytest.approx(
        -0.3 - (0.1 * 3.05 + 0.1 * 3.45), rel=1e-2
    )
    np.testing.assert_array_equal(
        stored.along([(0, 1), (3, 2)])[1], board.along([(0, 1), (3, 2)])[1]
    )


LARGE, FINE = (96, 128), 1 / 16  # squares enough for six ranks
ROUGH = {
    name: np.random.default_rng(k).uniform(0.5, 2.0, (97, 129)) for k, name in enumerate("acf")
}
AROUND = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Neumann(1.0)}
PROBLEMS = {
    "a board": m.Problem(m.Domain(LARGE, FINE), "diffusion", ROUGH, MIXED),
    "a ring": m.Problem(
        m.Domain.from_distance(RING, LARGE, FINE),
        "diffusion",
        ROUGH,
        {"outer": m.Robin(3.0, "x"), "hole1": m.Neumann(1.0)},
    ),
    "half holes at periodic sides": m.Problem(
        m.Domain.from_distance("1.4 - hypot(minimum(x,8-x),y-3)", LARGE, FINE),
        "diffusion",
        {"f": ROUGH["f"], "c": 0.3},
        AROUND | {"outline": m.Robin(1.0, 2.0)},
    ),
    "several": m.Problem(
        m.Domain(LARGE, FINE), "poisson", {"f": np.stack([ROUGH["f"], ROUGH["a"]])}
    ),
}


def numbers_of(solution):
    """Return all that adds up over ranks, as one array."""
    balances = solution.balance()
    balances = balances if isinstance(balances, list) else [balances]
    flows = [[*b.flows.values(), b.sources, b.reaction] for b in balances]
    extremes = [solution.max(), solution.min()]
    extremes = [e.value for pair in extremes for e in (pair if isinstance(pair, list) else [pair])]
    sums = [solution.energy(), solution.integral(), solution.mean({"x": (1.0, 7.3)})]
    return np.concatenate([np.ravel(part) for part in (flows, extremes, *sums)])


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("name", PROBLEMS)
def test_ranks_say_together_what_one_says(name, comm, by_one):
    problem = PROBLEMS[name]

    def alone():
        solution = m.solve(problem, settings=TIGHT)
        return numbers_of(solution), *solution.flux(), *solution.gradient()

    numbers, *arrays = by_one(alone)
    solution = m.solve(problem, settings=TIGHT, ranks=comm)
    np.testing.assert_allclose(numbers_of(solution), numbers, rtol=1e-8, atol=1e-8)
    for whole, mine in zip(arrays, (*solution.flux(), *solution.gradient()), strict=True):
        place = [
            slice(p.start, p.start + n)
            for p, n in zip(solution.place[-2:], mine.shape[-2:], strict=True)
        ]
        np.testing.assert_allclose(mine, whole[..., *place], rtol=0, atol=1e-7)
