"""Thin layers in media: contact resistances and foils, against formulas and a system put together here, on ranks and in files."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from central_differences import central_difference
from factorised import factorised as solved_directly

import mosaicdd as m

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = m.SolveSettings(rtol=1e-12)
WALLS = {
    "left": m.Dirichlet(0.0),
    "right": m.Dirichlet(1.0),
    "bottom": m.Neumann(0.0),
    "top": m.Neumann(0.0),
}


@RANKS
@pytest.mark.parametrize("at", [0.5, 0.5078125, 0.3])  # on a line of nodes, half way, elsewhere
def test_a_slab_s_resistances_add_up_wherever_they_are(at, comm):
    wall = m.Foils([m.Foil([(at, 0), (at, 0.5), (at, 0.75)], resistance=0.4)], 2.0)
    solution = m.solve(
        m.Problem(m.Domain((48, 64), 1 / 64), "diffusion", {"a": wall}, WALLS),
        "exact",
        ranks=comm,
        settings=TIGHT,
    )
    flux = 1 / (1 / 2.0 + 0.4)
    assert solution.converged
    assert solution.flow("left") == pytest.approx(0.75 * flux, rel=1e-10)
    assert solution.flow("right") == pytest.approx(-0.75 * flux, rel=1e-10)
    assert solution.balance().relative < 1e-10
    field, x = solution.gather(), np.linspace(0, 1, 65)
    after = np.clip((x - at) * 64 + 0.5, 0, 1) if at == 0.5 else x > at
    there = abs(x - at) > 1 / 64 if at == 0.3 else np.ones(65, bool)
    exact = flux * (x / 2.0 + 0.4 * after)
    np.testing.assert_allclose(field[:, there], np.tile(exact[there], (49, 1)), atol=1e-10)


def laid(nodes, steps, a, foils):
    """Return the system of a box without anything on its sides: what flows between nodes, foil by foil."""
    count, axes = np.prod(nodes), len(nodes)
    numbers = np.arange(count).reshape(nodes)
    matrix = scipy.sparse.lil_array((count, count))
    for node in np.ndindex(*nodes):
        for axis in range(axes):
            far = tuple(n + (k == axis) for k, n in enumerate(node))
            if far[axis] == nodes[axis]:
                continue
            across = [k for k in range(axes) if k != axis]
            face = np.prod(
                [steps[k] * (0.5 if node[k] in (0, nodes[k] - 1) else 1.0) for k in across]
            )
            k = face * a / steps[axis]
            for kind, normal, line, low, high, amount in foils:
                inside = all(low[o] <= node[o] <= high[o] for o in across if o != normal)
                share = np.prod(
                    [
                        0.5 if node[o] in (low[o], high[o]) and 0 < node[o] < nodes[o] - 1 else 1.0
                        for o in across
                        if o != normal
                    ]
                )
                if kind == "across" and axis == normal and node[axis] == line and inside:
                    k = (1 - share) * k + share / (1 / k + amount / face)
                if (
                    kind == "along"
                    and axis != normal
                    and node[normal] == line
                    and inside
                    and low[axis] <= node[axis] < high[axis]
                ):
                    width = np.prod(
                        [
                            steps[o] * (0.5 if node[o] in (low[o], high[o]) else 1.0)
                            for o in across
                            if o != normal
                        ]
                    )
                    k += amount * width / steps[axis]
            i, j = numbers[node], numbers[far]
            for p, q, value in ((i, i, k), (j, j, k), (i, j, -k), (j, i, -k)):
                matrix[p, q] += value
    return matrix.tocsr(), numbers  # fmt: skip


def factorised(matrix, numbers, values, axis):
    """Return the solution with values given at the first and at the last nodes along an axis."""
    ends = np.moveaxis(numbers, axis, 0)
    known = np.concatenate([ends[0].ravel(), ends[-1].ravel()])
    u = np.zeros(numbers.size)
    u[ends[0]], u[ends[-1]] = values
    free = np.setdiff1d(numbers, known)
    u[free] = scipy.sparse.linalg.spsolve(
        matrix[free][:, free].tocsc(), -(matrix[free][:, known] @ u[known])
    )
    return u.reshape(numbers.shape)


@RANKS
@pytest.mark.parametrize("case", ["plate", "box"])
def test_foils_are_those_of_a_system_put_together_by_hand(case, comm):
    if case == "plate":  # whose cells are no squares
        cells, steps, axis, sides = (32, 48), (0.05, 0.025), 1, WALLS
        foils = [
            m.Foil([(0.25, 0.4), (0.75, 0.4), (0.75, 1.2)], conductance=3.0),
            m.Foil([(0.4125, 0.8), (0.4125, 1.6)], resistance=0.7),
        ]
        by_hand = [
            ("along", 0, 8, (8, 10), (8, 30), 3.0),
            ("along", 1, 30, (8, 30), (24, 30), 3.0),
            ("across", 1, 16, (16, 16), (32, 16), 0.7),
        ]
    else:
        cells, steps, axis = (16, 18, 24), (0.1, 0.1, 0.1), 0
        sides = dict.fromkeys(("left", "right", "bottom", "top"), m.Neumann(0.0))
        sides |= {"back": m.Dirichlet(0.0), "front": m.Dirichlet(1.0)}
        foils = [
            m.Foil([(0.2, 0.3, 0.1), (0.9, 0.3, 0.6)], conductance=0.5),
            m.Foil([(0, 0, 0.45), (0.6, 1.8, 0.45)], resistance=0.3),
        ]
        by_hand = [
            ("along", 1, 3, (1, 3, 2), (6, 3, 9), 0.5),
            ("across", 0, 4, (4, 0, 0), (4, 18, 6), 0.3),
        ]
    problem = m.Problem(m.Domain(cells, steps), "diffusion", {"a": m.Foils(foils, 1.5)}, sides)
    solution = m.solve(problem, "exact", ranks=comm, settings=TIGHT)
    assert solution.converged
    nodes = tuple(n + 1 for n in cells)
    expected = factorised(*laid(nodes, steps, 1.5, by_hand), (0.0, 1.0), axis)
    np.testing.assert_allclose(solution.gather(), expected, rtol=0, atol=1e-10)
    assert solution.balance().relative < 1e-10


def test_a_resistance_half_way_between_nodes_is_of_second_order():
    errors = []
    for cells in (17, 33, 65):
        wall = m.Foils([m.Foil([(0.5, 0), (0.5, 1)], resistance=0.8)], 2.0)
        values = "(x + 1.6*(x > 0.5))*sin(pi*y)"  # jumps by the resistance times the flux
        fields = {"a": wall, "f": f"2*pi**2*{values}"}
        problem = m.Problem(
            m.Domain((cells, cells), 1 / cells), "diffusion", fields, m.Dirichlet(values)
        )
        solution = m.solve(problem, settings=TIGHT)
        x, y = solution.x, solution.y[:, None]
        errors.append(abs(solution.field - (x + 1.6 * (x > 0.5)) * np.sin(np.pi * y)).max())
    assert np.log2(errors[0] / errors[1]) > 1.85
    assert np.log2(errors[1] / errors[2]) > 1.9


def problem_of(case):
    rng = np.random.default_rng(3)
    foils = [
        m.Foil([(0.2, 0.3), (1.1, 0.3), (1.1, 0.7)], resistance=0.6),
        m.Foil.layer([(0.52, 0.17), (0.52, 0.83)], 0.01, 25.0),
        m.Foil([(1.3, 0.3), (1.3, 0.9)], conductance=4.0),
    ]
    cells, spacing = (48, 64), 0.025
    if case == "disk":
        domain = m.Domain.from_distance("hypot(x - 0.8, y - 0.6) - 0.58", cells, spacing)
        foils = [m.Foil([(0.3, 0.6), (1.3, 0.6)], 0.5), m.Foil([(0.8, 0.3), (0.8, 0.9)], 0.0, 3.0)]
        return m.Problem(domain, "diffusion", {"a": m.Foils(foils, "1 + x"), "f": 1.0})
    if case == "cells":
        a = np.exp(rng.normal(size=cells))
        sides = {"left": m.Dirichlet("y"), "right": m.Robin(2.0, 1.0), "bottom": m.Neumann(0.3)}
    elif case == "around":
        a = np.exp(rng.normal(size=(49, 65)))
        a[:, -1] = a[:, 0]
        sides = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet("x*(1.6 - x)")}
    else:
        a, sides = "exp(x)", m.Dirichlet("x - y")
    fields = {"a": m.Foils(foils, a), "f": "x*y", "c": 0.5}
    return m.Problem(m.Domain(cells, spacing), "diffusion", fields, sides)


@RANKS
@pytest.mark.parametrize("case", ["plain", "cells", "around", "disk"])
def test_solutions_on_ranks_are_those_of_a_factorisation(case, comm, by_one):
    given = problem_of(case)

    solution = m.solve(given, "exact", ranks=comm, settings=TIGHT)
    assert solution.converged
    field, expected = solution.gather(), by_one(solved_directly, given)
    np.testing.assert_allclose(field, expected, rtol=0, atol=1e-9)
    assert solution.balance().relative < 1e-8
    without = m.solve(given.with_fields(a=given.fields["a"].beside), "exact", ranks=comm)
    assert np.nanmax(abs(without.gather() - field)) > 1e-3


@RANKS
def test_a_march_with_foils_ends_where_they_let_it(comm):
    wall = m.Foils([m.Foil([(0.5, 0), (0.5, 0.75)], resistance=0.4)], "2 + 0*t")
    problem = m.Problem(m.Domain((48, 64), 1 / 64), "heat", {"a": wall}, WALLS)
    series = m.march(problem, 0.0, ranks=comm, dt=0.5, steps=12, settings=TIGHT, solver_share=0)
    last, flux = series.gather(), 1 / 0.9
    assert last[5, 8] == pytest.approx(flux * 0.125 / 2, rel=1e-6)
    assert last[5, 56] == pytest.approx(1 - flux * 0.125 / 2, rel=1e-6)


@RANKS
def test_gradients_go_through_foils(comm):
    given = problem_of("cells")
    weights = np.linspace(0, 1, 49 * 65).reshape(49, 65)
    solution = m.solve(given, "exact", ranks=comm, settings=TIGHT)
    place = tuple(solution.place)
    gradient = m.adjoint(solution, (weights * 2 * solution.gather())[place])
    y, x = np.arange(49) * 0.025, np.arange(65) * 0.025
    values = {"a": given.fields["a"].beside, "f": np.outer(y, x), "left": y}
    rng = np.random.default_rng(1)
    along = {name: rng.uniform(0.5, 1.0, v.shape) for name, v in values.items()}
    along["a"] *= values["a"]

    def functional(step):
        a, f, left = (values[name] + step * along[name] for name in ("a", "f", "left"))
        problem = given.with_fields(a=given.fields["a"].among(a), f=f)
        problem = problem.with_sides({**given.sides, "left": m.Dirichlet(left)})
        return weights * m.solve(problem, "exact", ranks=comm, settings=TIGHT).gather() ** 2

    own = sum((gradient[name] * along[name][place]).sum() for name in ("a", "f"))
    total = comm.allreduce(own) + (gradient["left"] * along["left"]).sum()
    assert total == central_difference(functional, 3e-4)  # its truncation and what the solves leave


def test_a_file_of_a_box_with_tensors_and_a_foil_knows_its_problem(tmp_path):
    foils = [m.Foil([(0, 0, 0.5), (1, 1, 0.5)], resistance=0.4)]
    fields = {n: m.Foils(foils, v) for n, v in (("axx", 1.0), ("ayy", 1.0), ("azz", 2.0))}
    sides = dict.fromkeys(("left", "right", "bottom", "top"), m.Neumann(0.0))
    sides |= {"back": m.Dirichlet(0.0), "front": m.Dirichlet(1.0)}
    problem = m.Problem(m.Domain((16, 16, 16), 1 / 16), "diffusion", fields, sides)
    m.solve(problem, "exact", settings=TIGHT).save(tmp_path / "out.h5")
    stored = m.read(tmp_path / "out.h5")
    assert stored.flow("back") == pytest.approx(1 / 0.9, rel=1e-9)
    assert stored.balance().relative < 1e-9


@RANKS
def test_the_command_line_takes_foils_and_files_keep_them(comm, tmp_path, mosaicdd):
    path = tmp_path / "out.h5"
    given = problem_of("cells")
    solution = m.solve(given, "exact", ranks=comm, settings=TIGHT)
    flow, energy = solution.flow("left"), solution.energy()
    solution.save(path)
    if comm.rank:
        return
    stored = m.read(path)
    if comm.size == 1:
        assert solution.compare("direct").max_error < 1e-9
    assert stored.compare("direct").max_error < 1e-9
    assert stored.flow("left") == pytest.approx(flow, rel=1e-12)
    assert stored.energy() == pytest.approx(energy, rel=1e-12)
    if comm.size > 1:
        return
    solve = (
        "solve",
        "--cells",
        "40x32",
        "--spacing",
        "0.04",
        "--pde",
        "diffusion",
        "--boundary",
        "expr:x",
    )
    foils = (
        "--field",
        "a=2",
        "--foil",
        "0.4,0.2 0.4,1.28=resistance:0.4",
        "--foil",
        "0,0.6 1,0.6=layer:0.01,30",
    )
    ended = mosaicdd(*solve, *foils, "--rtol", "1e-12", "-o", path, "--overwrite")
    assert ended.code == 0, ended.err
    every = [m.Foil([(0.4, 0.2), (0.4, 1.28)], 0.4), m.Foil.layer([(0, 0.6), (1, 0.6)], 0.01, 30)]
    problem = m.Problem(
        m.Domain((32, 40), 0.04), "diffusion", {"a": m.Foils(every, 2.0)}, m.Dirichlet("x")
    )
    expected = m.solve(problem, settings=TIGHT)
    np.testing.assert_allclose(m.read(path).field, expected.field, rtol=0, atol=1e-10)
    again = mosaicdd("solve", "--config", path, "-o", tmp_path / "again.h5")
    assert again.code == 0, again.err
    np.testing.assert_array_equal(m.read(tmp_path / "again.h5").field, m.read(path).field)
    for bad, said in (
        ("0,0 1=resistance:1", "are no points x,y with a space between each two"),
        (
            "0,0.5 1,0.5=resist:1",
            "is none of resistance:R, conductance:C and layer:THICKNESS,CONDUCTIVITY",
        ),
        ("0,0.5 9,0.5=resistance:1", "reaches out of the domain"),
    ):
        ended = mosaicdd(*solve, "--foil", bad, "-o", tmp_path / "bad.h5")
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert said in ended.err
    ended = mosaicdd(
        "solve",
        "--cells",
        "32x32",
        "--foil",
        "0,0.1 0.2,0.1=resistance:1",
        "--boundary",
        "0",
        "-o",
        tmp_path / "bad.h5",
    )
    assert ended.code == 2
    assert "laplace has no diffusion a that may vary" in ended.err  # fmt: skip
