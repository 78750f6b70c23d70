"""Values held inside of domains: against a matrix made here, by flows and balances, on ranks, in files, and refused."""

import itertools

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
import scipy.sparse.linalg
from factorised import factorised
from medium_by_cells import equations, field_and_flows
from small_problems import INSULATED, MIXED

import mosaicdd as m

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = m.SolveSettings(rtol=1e-12)
# A line, a disk, a node, and a line to a side.
PLANE = {
    "river": m.Held([(0.06, 0.7), (0.52, 0.47), (0.9, 0.49)], "3 - x"),
    "pond": m.Held("hypot(x - 1.2, y - 0.3) < 0.1", -1.0),
    "well": m.Held((0.31, 0.21), lambda x, y: 5.0 + x * y),
    "drain": m.Held([(1.2, 1.2), (1.34, 0.8)], 0.5),
}
SPACE = {
    "borehole": m.Held([(0.4, 0.2, 0.1), (0.57, 0.31, 0.7)], 1.0),
    "plate": m.Held("(abs(z - 0.3) < 0.01) & (x > 0.8)", "y"),
}


def nearest(points, steps):
    """Return the nodes of a line that goes most along the same axis: at each of this one's nodes the nearest."""
    at = np.array(points)[:, ::-1] / steps
    most = np.argmax(abs(at[-1] - at[0]))
    at = at[np.argsort(at[:, most])]
    along = np.arange(np.ceil(at[0, most] - 1e-9), np.floor(at[-1, most] + 1e-9) + 1)
    nodes = np.stack([np.interp(along, at[:, most], values) for values in at.T], axis=1)
    return np.unique(np.round(np.concatenate([nodes, at])).astype(int), axis=0)


@RANKS
@pytest.mark.parametrize("axes", [2, 3])
def test_values_and_flows_are_those_of_a_matrix(axes, comm, by_one):
    cells, steps = ((48, 64), (0.025, 0.0225)) if axes == 2 else ((16, 14, 24), (0.05,) * 3)
    a, held = np.exp(np.random.default_rng(3).normal(size=cells)), PLANE if axes == 2 else SPACE
    natural = dict.fromkeys([*INSULATED, "front", "back"][: 2 * axes], m.Neumann(0.0))
    sides, domain = natural | {"left": m.Dirichlet(1.0)} | held, m.Domain(cells, steps)
    given = m.Problem(domain, "diffusion", {"a": a, "c": 0.5, "f": 2.0}, sides)

    def expected():
        known = np.full([n + 1 for n in cells], np.nan)
        along = [np.arange(n + 1) * step for n, step in zip(cells, steps, strict=True)]
        *_, y, x = places = np.meshgrid(*along, indexing="ij")
        lines = {
            n: nearest(h.where.place, steps) for n, h in held.items() if n not in ("pond", "plate")
        }
        nodes = {name: tuple(line.T) for name, line in lines.items()}
        if axes == 2:
            nodes["pond"] = np.nonzero(np.hypot(x - 1.2, y - 0.3) < 0.1)
        else:
            nodes["plate"] = np.nonzero((abs(places[0] - 0.3) < 0.01) & (x > 0.8))
        values = {"river": 3 - x, "pond": 0 * x - 1, "well": 5 + x * y, "drain": 0 * x + 0.5}
        values |= {"borehole": 0 * x + 1, "plate": y, "left": 0 * x + 1}
        nodes["left"] = np.nonzero(x == 0)
        for name, at in nodes.items():
            known[at] = values[name][at]
        matrix, volumes = equations(a, steps)
        u, out = field_and_flows(matrix, 0.5 * volumes, 2.0 * volumes, known)
        return u, {name: float(out[at].sum()) for name, at in nodes.items()}

    solution = m.solve(given, ranks=comm, settings=TIGHT)
    assert solution.converged
    u, flows = by_one(expected)
    np.testing.assert_allclose(solution.gather(), u, rtol=0, atol=1e-10)
    balance = solution.balance()
    assert balance.relative < 1e-11
    for name, flow in flows.items():
        assert solution.flow(name) == balance.flows[name] == pytest.approx(flow, rel=1e-8), name


@RANKS
@pytest.mark.parametrize(
    "case", ["mixed", "around", "insulated", "velocity", "several", "tensor", "nonlinear", "disk"]
)
def test_whatever_else_there_is_solutions_are_those_of_a_factorisation(case, comm, by_one):
    domain, equation, fields, sides = (
        m.Domain((48, 64), 0.025),
        "diffusion",
        {"f": "x*y"},
        MIXED | PLANE,
    )
    if case == "around":
        sides = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Neumann(0.1), **PLANE}
        sides["seam"] = m.Held([(1.5, 0.2), (1.6, 0.2)], 2.0)
    elif case == "insulated":  # held inside alone
        sides = INSULATED | PLANE
    elif case == "velocity":
        equation, fields, sides = "advection-diffusion", {"bx": 3.0, "by": -1.0, "f": "x"}, PLANE
    elif case == "several":
        fields = {"a": "1 + x", "f": np.random.default_rng(0).normal(size=(9, 49, 65))}
        sides = sides | {"pond": m.Held("hypot(x - 1.2, y - 0.3) < 0.1", [*"xyxyxyxyx"])}
    elif case == "tensor":
        equation, fields = "anisotropic-diffusion", {"axx": 1.0, "ayy": 2.0, "axy": 0.5}
    elif case == "nonlinear":
        equation, fields = "quasilinear-diffusion", {"k": "1 + u**2", "f": 1.0}
    elif case == "disk":
        domain = m.Domain.from_distance("hypot(x - 0.8, y - 0.6) - 0.55", (48, 64), 0.025)
        sides = {"outline": m.Robin(0.5, 0.2), "river": PLANE["river"], "pond": PLANE["pond"]}
    given = m.Problem(domain, equation, fields, sides)
    solution = m.solve(given, ranks=comm, settings=TIGHT)
    assert solution.converged
    last = given.problems - 1
    field = solution.gather()
    expected = by_one(factorised, given, last)
    np.testing.assert_allclose(field if last == 0 else field[-1], expected, rtol=0, atol=5e-9)
    if case == "nonlinear":  # Newton's method leaves more
        assert solution.balance().relative < 1e-8
        return
    balances = solution.balance()
    for balance in balances if last else [balances]:
        assert balance.relative < 1e-10


def test_a_held_line_across_a_strip_parts_it_exactly():
    sides = INSULATED | {"left": m.Dirichlet(0.0), "right": m.Dirichlet(1.0)}
    sides["wall"] = m.Held([(0.75, 0.0), (0.75, 1.0)], 3.0)
    solution = m.solve(
        m.Problem(m.Domain((32, 64), 1 / 32), "laplace", sides=sides), settings=TIGHT
    )
    expected = np.where(solution.x < 0.75, 4 * solution.x, 3 - 1.6 * (solution.x - 0.75))
    np.testing.assert_allclose(solution.field, np.broadcast_to(expected, (33, 65)), atol=1e-11)
    assert solution.flow("wall") == pytest.approx(-4 - 1.6)
    assert solution.flow("left") == pytest.approx(4)


def test_lines_have_no_gaps_through_which_something_flows():
    rng = np.random.default_rng(0)
    domain = m.Domain((40, 50), (0.02, 0.03))
    for _ in range(30):
        # A triangle: what is inside is apart from what is outside.
        corners = rng.uniform((0.03, 0.02), (1.47, 0.78), (3, 2))
        place = m.Held([*corners, corners[0]])
        nodes = domain.grid().nodes
        held = np.zeros(nodes, bool)
        held[tuple(place.where.nodes(domain.grid(), None, (None, None)).T)] = True
        y, x = np.meshgrid(np.arange(41) * 0.02, np.arange(51) * 0.03, indexing="ij")
        turns = []
        for (x0, y0), (x1, y1) in itertools.pairwise([*corners, corners[0]]):
            turns.append((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) > 0)
        inside = (turns[0] & turns[1] & turns[2]) | ~(turns[0] | turns[1] | turns[2])
        pieces, _ = scipy.ndimage.label(~held)
        assert not set(pieces[inside & ~held]) & set(pieces[~inside & ~held])


@RANKS
def test_where_places_meet_a_node_has_the_mean_and_both_have_their_share(comm):
    sides = MIXED | {
        "river": m.Held([(0.0, 0.5), (1.0, 0.5)], 2.0),
        "ditch": m.Held([(0.5, 0.2), (0.5, 0.9)], 4.0),
    }
    solution = m.solve(
        m.Problem(m.Domain((48, 64), 0.025), "poisson", {"f": 1.0}, sides),
        ranks=comm,
        settings=TIGHT,
    )
    field, balance = solution.gather(), solution.balance()
    assert field[20, 20] == 3.0
    assert field[20, 0] == pytest.approx((2.0 + 0.5) / 2)
    assert balance.relative < 1e-11
    together = m.Held(
        "(((y == 0.5) & (x < 1.01)) | ((x == 0.5) & (y > 0.19) & (y < 0.91)))",
        "where(x==0.5, where(y==0.5, 3, 4), 2)",
    )
    alone = m.solve(
        m.Problem(m.Domain((48, 64), 0.025), "poisson", {"f": 1.0}, MIXED | {"both": together}),
        ranks=comm,
        settings=TIGHT,
    )
    np.testing.assert_allclose(alone.gather(), field, atol=1e-10)
    assert alone.flow("both") == pytest.approx(solution.flow("river") + solution.flow("ditch"))


@pytest.mark.ranks(1, 2)
def test_around_a_period_that_is_not_the_lattice_s_one_free_node_among_held_ones_is_solved(comm):
    held = np.zeros((21, 21), bool)  # 20 cells, which lattices go round in 24 or 28
    held[[*range(5), *range(-5, 0)], 5:15] = True
    held[19, 10] = False  # beside the seam, and all around it values are given
    sides = dict.fromkeys(("bottom", "top"), m.Periodic()) | {"block": m.Held(held, 1.0)}
    solution = m.solve(m.Problem((20, 20), "laplace", sides=sides), ranks=comm, rtol=1e-9)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1e-9
    assert solution.gather()[19, 10] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.ranks(1, 4)
@pytest.mark.parametrize("case", ["rectangle", "around", "disk", "space"])
def test_gradients_by_what_is_held(case, comm):
    rng, axes = np.random.default_rng(0), 3 if case == "space" else 2
    cells, spacing, sides = (36, 48), 0.05, MIXED
    river = [(0.1, 0.7), (0.75, 0.9)]
    if axes == 3:
        cells, river, sides = (
            (16, 16, 24),
            [(0.1, 0.2, 0.3), (0.75, 0.6, 0.5)],
            {"left": m.Neumann(0.1)},
        )
    elif case == "around":
        river = [(1.8, 0.7), (2.4, 0.9)]  # to the seam
        sides = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Neumann(0.1)}
    domain = m.Domain(cells, spacing)
    if case == "disk":
        sides = {"outline": m.Robin(1.0, 0.2)}
        domain = m.Domain.from_distance("hypot(x - 1.1, y - 0.9) - 0.85", cells, spacing)
    a = np.exp(rng.normal(size=domain.grid().nodes))
    held = {"river": m.Held(river, 1.0), "well": m.Held([0.9] * 2 if axes == 2 else [0.4] * 3, 1.0)}
    given = m.Problem(domain, "diffusion", {"a": a, "f": "x"}, sides | held)
    count = len(given.pieces(domain.grid())["river"].nodes)
    levels, change = rng.normal(size=count), (rng.normal(size=count), rng.normal(size=a.shape))

    def solved(e):
        moved = held | {"river": m.Held(river, levels + e * change[0])}
        changed = given.with_fields(a=a * np.exp(e * change[1])).with_sides(sides | moved)
        keep = "unknowns" if case == "disk" else "field"
        return m.solve(changed, ranks=comm, settings=TIGHT, keep=keep)

    solution = solved(0.0)
    by = m.adjoint(solution, np.nan_to_num(solution.local))
    half = [0.5 * np.nansum(solved(e).gather() ** 2) for e in (1e-5, -1e-5)]
    mine = comm.allreduce((by["a"] * (a * change[1])[solution.place]).sum())
    assert mine + by["river"] @ change[0] == pytest.approx((half[0] - half[1]) / 2e-5, rel=1e-6)


@pytest.mark.ranks(1, 2, 3)
def test_values_may_depend_on_the_time_and_stay_in_files(comm, common_path):
    # Between two walls that rise alike nothing but what is stored keeps the level back.
    held = {"walls": m.Held("(x < 0.2001) | (x > 0.7999)", "2*t"), "probe": m.Held((0.5, 0.5), 0.5)}
    given = m.Problem(
        m.Domain((32, 64), 0.0125), "heat", {"f": 2.0}, INSULATED | {"walls": held["walls"]}
    )
    series = m.march(given, 0.0, dt=0.1, steps=4, ranks=comm, settings=TIGHT, solver_share=0)
    np.testing.assert_allclose(series.gather(), 0.8, atol=1e-9)
    path = common_path / "series.h5"
    series.save(path)
    if comm.rank == 0:
        (walls,) = [part for part in m.read(path).sides.parts if part.inside]
        assert (walls.name, set(walls.values)) == ("walls", {0.8})


def test_a_plan_serves_other_values_but_no_other_place():
    domain = m.Domain((32, 32), 0.02)

    def given(where, values):
        return m.Problem(domain, "poisson", {"f": 1.0}, MIXED | {"there": m.Held(where, values)})

    with m.Solver(given((0.3, 0.3), 1.0), settings=TIGHT) as solver:
        assert solver().field[15, 15] == 1.0
        assert solver(given((0.3, 0.3), 2.0)).field[15, 15] == 2.0
        with pytest.raises(ValueError, match="nodes that are held"):
            solver(given((0.4, 0.3), 2.0))
