"""Points with a strength: what they give in all, against factorisations and formulas, on ranks, in time and at the edges."""

import numpy as np
import pytest
from factorised import factorised

import mosaicdd as m
from mosaicdd.problems.fields.fields import Field

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = m.SolveSettings(rtol=1e-12)
MIXED = {
    "left": m.Dirichlet("y"),
    "right": m.Robin(2.0, 1.0),
    "bottom": m.Neumann(0.3),
    "top": m.Neumann(0.0),
}
AROUND = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet(0.0)}
# On a node, between nodes, on a side, in a corner, and twice in one cell.
PLANE = [((0.5, 0.6), 2.0), ((0.33, 0.71), -1.5), ((1.6, 0.47), 0.7), ((1.6, 1.2), 0.4), ((0.34, 0.7), 0.25)]  # fmt: skip
SPACE = [((0.4, 0.4, 0.4), 2.0), ((0.31, 0.23, 0.47), -1.5), ((0.2, 0.2, 0.8), 0.5)]


def problem(case):
    """Return a problem with wells, and their total."""
    rng = np.random.default_rng(2)
    if case == "space":
        fields = {"a": np.exp(rng.normal(size=(16, 18, 24))), "f": m.Wells(SPACE, "x*z")}
        sides = {"left": m.Dirichlet("z"), "front": m.Neumann(0.5), "top": m.Robin(1.0, 0.0)}
        return m.Problem(m.Domain((16, 18, 24), 0.05), "diffusion", fields, sides), 1.0
    cells, spacing = (48, 64), (0.025, 0.025)
    fields = {"f": m.Wells(PLANE, "x*y")}
    if case == "medium":
        cells, spacing = (48, 128), (0.025, 0.0125)  # no squares
        fields |= {"a": np.exp(rng.normal(size=cells)), "c": 0.5}
    sides = {"constant": m.Dirichlet("x - y"), "around": AROUND}.get(case, MIXED)
    return m.Problem(m.Domain(cells, spacing), "diffusion", fields, sides), 1.85


@RANKS
@pytest.mark.parametrize("case", ["constant", "mixed", "around", "medium", "space"])
def test_solutions_and_balances_are_those_of_a_factorisation(case, comm, by_one):
    given, total = problem(case)

    solution = m.solve(given, "exact", ranks=comm, settings=TIGHT)
    assert solution.converged
    expected = by_one(factorised, given)
    np.testing.assert_allclose(solution.gather(), expected, rtol=0, atol=1e-9)
    # What flows in is the total of the strengths, and what is spread beside them.
    own = m.solve(given.with_fields(f="x*y" if case != "space" else "x*z"), "exact", ranks=comm)
    with_wells, without = solution.balance(), own.balance()
    assert with_wells.sources - without.sources == pytest.approx(total, rel=1e-10)
    assert with_wells.relative < 1e-8


@pytest.mark.parametrize("axes", [2, 3])
def test_the_total_and_its_place_are_exact_between_nodes(axes):
    steps = (0.3, 0.2, 0.1)[-axes:]
    domain = m.Domain((8, 9, 10)[-axes:], steps)
    place = np.array([0.537, 1.234, 1.1][:axes])
    field = Field("f", m.Wells([(place, 3.0)]), axes)
    grid = domain.grid()
    values = field.sample(grid, tuple(slice(0, n) for n in grid.nodes))[0] * np.prod(steps)
    assert values.sum() == pytest.approx(3.0)
    for axis, along in enumerate(place[::-1]):
        where = np.arange(grid.nodes[axis]) * steps[axis]
        others = tuple(a for a in range(axes) if a != axis)
        assert values.sum(axis=others) @ where == pytest.approx(3.0 * along)


def test_a_well_in_a_disk_lowers_the_level_as_thiem_s_formula_says():
    radius, strength, conducts = 1.0, -2.0, 0.5
    errors = []
    for cells in (48, 96):
        disk = m.Domain.from_distance("hypot(x - 1.2, y - 1.2) - 1", (cells, cells), 2.4 / cells)
        given = m.Problem(
            disk, "diffusion", {"a": conducts, "f": m.Wells([((1.2, 1.2), strength)])}
        )
        solution = m.solve(given, settings=TIGHT)
        far = np.hypot(solution.x - 1.2, solution.y[:, None] - 1.2)
        with np.errstate(divide="ignore"):
            thiem = strength / (2 * np.pi * conducts) * np.log(radius / far)
        there = (far > 0.3) & (far < 0.98)
        errors.append(abs(solution.field - thiem)[there].max())
        assert solution.flow("outline") == pytest.approx(strength, rel=1e-9)
    assert np.log2(errors[0] / errors[1]) > 1.7
    assert errors[1] < 5e-4


@RANKS
def test_strengths_may_depend_on_the_time(comm):
    # In a closed box all that flows in is stored.
    wells = m.Wells([((0.31, 0.2), "2*t"), ((0.5, 0.5), lambda t: -0.5)], beside="t")
    closed = m.Problem(m.Domain((32, 48), 0.02), "heat", {"s": 3.0, "f": wells}, m.Neumann(0.0))
    options = {"dt": 0.1, "steps": 4, "method": "crank-nicolson", "solver_share": 0}
    series = m.march(closed, 1.0, ranks=comm, settings=TIGHT, **options)
    weights = np.outer(*[np.r_[0.5, np.ones(n - 1), 0.5] for n in (32, 48)]) * 0.02**2
    stored = 3.0 * (weights * (series.gather() - 1.0)).sum()
    area = 0.64 * 0.96
    assert stored == pytest.approx(0.4**2 - 0.5 * 0.4 + area * 0.4**2 / 2, rel=1e-8)


@pytest.mark.parametrize(
    ("points", "cells", "error", "message"),
    [
        ([((2.0, 0.5), 1.0)], (32, 32), ValueError, r"the well at \(2, 0.5\) is outside of the domain, which goes from \(0, 0\) to \(0.64, 0.64\)"),
        ([((0.1, -0.1), 1.0)], (32, 32), ValueError, "is outside of the domain"),
        ([((0.1, 0.1), 1.0)], (8, 8, 8), ValueError, r"has 2 coordinates, the domain 3: give \(x, y, z\)"),
        ([((0.1,), 1.0)], (32, 32), ValueError, r"pairs of a place \(x, y\)"),
        ([], (32, 32), ValueError, "there are no wells: give"),
        ([((0.1, np.nan), 1.0)], (32, 32), ValueError, "is not finite"),
        ([((0.1, 0.1), [1, 2])], (32, 32), TypeError, "strength of a well must be a number"),
        ([((0.1, 0.1), "q*t")], (32, 32), ValueError, "q is not allowed"),
        ([((0.1, 0.1), "2*t")], (32, 32), ValueError, "t is not allowed"),
    ],
)  # fmt: skip
def test_what_is_no_well_is_refused(points, cells, error, message):
    with pytest.raises(error, match=message):
        m.solve(m.Problem(m.Domain(cells, 0.02), "poisson", {"f": m.Wells(points)}))


def test_a_well_beside_an_outline_is_refused():
    disk = m.Domain.from_distance("hypot(x - 1, y - 1) - 0.8", (32, 32), 2 / 32)
    with pytest.raises(
        ValueError, match=r"the well at \(1, 1.75\) is outside of the domain's shape"
    ):
        m.Problem(disk, "poisson", {"f": m.Wells([((1.0, 1.75), 1.0)])})


def test_the_command_line_takes_wells_and_keeps_them(mosaicdd, tmp_path):
    path = tmp_path / "out.h5"
    solve = ("solve", "--cells", "40x32", "--spacing", "0.04", "--pde", "diffusion")
    wells = ("--field", "f=expr:x*y", "--well", "0.5,0.6=2", "--well", "0.33,0.71=expr:-3/2")
    ended = mosaicdd(*solve, *wells, "--boundary", "0", "--rtol", "1e-12", "-o", path)
    assert ended.code == 0, ended.err
    source = m.Wells([((0.5, 0.6), 2.0), ((0.33, 0.71), -1.5)], "x*y")
    expected = m.solve(m.Problem(m.Domain((32, 40), 0.04), "diffusion", {"f": source}, m.Dirichlet(0.0)), settings=TIGHT)  # fmt: skip
    stored = m.read(path)
    np.testing.assert_allclose(stored.field, expected.field, rtol=0, atol=1e-11)
    assert stored.balance().sources == pytest.approx(expected.balance().sources, rel=1e-12)
    again = mosaicdd("solve", "--config", path, "-o", tmp_path / "again.h5")
    assert again.code == 0, again.err
    np.testing.assert_array_equal(m.read(tmp_path / "again.h5").field, stored.field)
    for bad, said in (
        ("9,0.1=1", "the well at (9, 0.1) is outside of the domain"),
        ("0.1=1", "with 2 numbers as place"),
        ("0.1,0.1=expr:q", "q is not allowed"),
    ):
        ended = mosaicdd(*solve, "--well", bad, "--boundary", "0", "-o", tmp_path / "bad.h5")
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert said in ended.err
