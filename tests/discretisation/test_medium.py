"""Media: conductances from node and cell values, and the discrete operator they make."""

import numpy as np
import pytest
from factorised import factorised

import mosaicdd as m
from mosaicdd.discretisation.discrete import DirichletSystem, MediumSystem
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fingerprint import plan_fingerprint
from mosaicdd.problems.operators.medium import Medium

GRID = m.Domain((6, 9), 0.25).grid()
WHOLE = tuple(slice(0, nodes) for nodes in GRID.nodes)
ROUNDING = 1e-13


def medium(a, c=0.0, **others):
    given = {"a": a, "c": c, **others}
    return Medium({name: Field(name, v) for name, v in given.items() if v is not None})


def _one_at(shape, value):
    """Return ones with one other value."""
    values = np.ones(shape)
    values[48, 40] = value
    return values


def test_between_two_nodes_is_their_harmonic_mean():
    a = np.exp(np.random.default_rng(0).standard_normal(GRID.nodes))
    conductances = medium(a).conductances(GRID, WHOLE)
    assert conductances.along[0][2, 3] == pytest.approx(2 / (1 / a[2, 3] + 1 / a[3, 3]))
    assert conductances.along[1][2, 3] == pytest.approx(2 / (1 / a[2, 3] + 1 / a[2, 4]))


def test_between_two_cells_is_their_mean_and_half_of_one_on_the_outline():
    a = np.exp(np.random.default_rng(0).standard_normal(GRID.shape))
    conductances = medium(a).conductances(GRID, WHOLE)
    assert conductances.along[0][2, 3] == pytest.approx((a[2, 2] + a[2, 3]) / 2)
    assert conductances.along[1][2, 3] == pytest.approx((a[1, 3] + a[2, 3]) / 2)
    assert conductances.along[1][0, 3] == pytest.approx(a[0, 3] / 2)
    assert conductances.along[0][2, -1] == pytest.approx(a[2, -1] / 2)


@pytest.mark.parametrize("shape", [GRID.nodes, GRID.shape], ids=["nodes", "cells"])
def test_a_part_has_the_conductances_of_the_whole(shape):
    a = np.exp(np.random.default_rng(0).standard_normal(shape))
    rows, columns = slice(0, 4), slice(3, 10)
    fields = {"a": a, "c": "x*y", "bx": "9*y", "by": np.full(GRID.nodes, 4.0)}
    part = medium(**fields).conductances(GRID, (rows, columns))
    whole = medium(**fields).conductances(GRID, WHOLE).part(rows, columns)
    for values, expected in zip(part.arrays(), whole.arrays(), strict=True):
        np.testing.assert_allclose(values, expected, rtol=ROUNDING)


@pytest.mark.parametrize(
    ("operator", "fields"),
    [
        (m.EllipticOperator(ayy=3.0, axx=3.0, c=2.0), {}),
        (m.EllipticOperator(ayy=5.0, axx=0.5, c=2.0), {"a": None, "axx": "0.5", "ayy": 5.0}),
        (m.EllipticOperator(ayy=3.0, axx=3.0, c=2.0, bx=7.0, by=-0.3), {"bx": "7", "by": -0.3}),
        (m.EllipticOperator(ayy=3.0, axx=3.0, c=2.0, bx=-1e6, by=1e-6), {"bx": -1e6, "by": 1e-6}),
    ],
    ids=["scalar", "tensor", "velocity", "fast and slow"],
)
def test_a_constant_medium_is_the_constant_operator(operator, fields):
    constant = DirichletSystem(operator, GRID)
    system = MediumSystem(medium(**{"a": np.full(GRID.nodes, 3.0), "c": 2.0} | fields), GRID)
    size = constant.stencil[1, 1]
    assert abs(system.matrix - constant.matrix).max() < ROUNDING * size
    u = np.random.default_rng(0).standard_normal(GRID.nodes)
    np.testing.assert_allclose(system.apply(u), constant.apply(u), atol=ROUNDING * size)


@pytest.mark.parametrize("flow", [{}, {"bx": "20*y", "by": "-9*x"}], ids=["rest", "flow"])
def test_the_matrix_applies_what_apply_does(flow):
    a = np.exp(np.random.default_rng(0).standard_normal(GRID.nodes))
    system = MediumSystem(medium(a, "1 + x", **flow), GRID)
    u = np.zeros(GRID.nodes)
    u[1:-1, 1:-1] = np.random.default_rng(1).standard_normal(u[1:-1, 1:-1].shape)
    np.testing.assert_allclose(
        system.matrix @ u[1:-1, 1:-1].ravel(), system.apply(u).ravel(), atol=ROUNDING
    )


def test_materials_that_meet_on_grid_lines_are_exact_per_cell():
    # Across layers u is piecewise linear, with slopes inverse to the coefficients.
    a = np.ones((8, 12))
    a[:, 5:] = 100.0
    x = np.arange(13) / 12
    u = np.where(x < 5 / 12, x, 5 / 12 + (x - 5 / 12) / 100)
    problem = m.Problem(
        m.Domain((8, 12), 1 / 12),
        "diffusion",
        {"a": a},
        {
            "left": m.Dirichlet(0.0),
            "right": m.Dirichlet(u[-1]),
            "bottom": m.Dirichlet(u),
            "top": m.Dirichlet(u),
        },
    )
    np.testing.assert_allclose(factorised(problem), np.tile(u, (9, 1)), atol=ROUNDING)


# u = sin(pi x) sin(pi y), and what ``-div(T grad u) + b . grad u`` makes of it.
U = "sin(pi*x)*sin(pi*y)"
UX, UY = "pi*cos(pi*x)*sin(pi*y)", "pi*sin(pi*x)*cos(pi*y)"
LAPLACIAN = f"-2*pi*pi*{U}"
SMOOTH = {
    "scalar": (
        "diffusion",
        {"a": "exp(x*y)"},
        f"-exp(x*y)*({LAPLACIAN} + y*{UX} + x*{UY})",
    ),
    "tensor": (
        "diffusion",
        {"axx": "exp(x)", "ayy": "2 + y"},
        f"-exp(x)*({LAPLACIAN}/2 + {UX}) - (2 + y)*{LAPLACIAN}/2 - {UY}",
    ),
    "velocity": (
        "advection-diffusion",
        {"a": "exp(x*y)", "bx": "3 - 6*y", "by": "6*x*x", "c": "x"},
        f"-exp(x*y)*({LAPLACIAN} + y*{UX} + x*{UY}) + (3 - 6*y)*{UX} + 6*x*x*{UY} + x*{U}",
    ),
}


@pytest.mark.parametrize("case", SMOOTH)
def test_smooth_coefficients_are_solved_to_second_order(case):
    equation, fields, f = SMOOTH[case]
    errors = []
    for n in (16, 32, 64):
        problem = m.Problem(m.Domain((n, n), 1 / n), equation, fields | {"f": f})
        x = np.sin(np.pi * np.arange(n + 1) / n)
        errors.append(abs(factorised(problem) - x[:, None] * x).max())
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(rates, 2.0, atol=0.05)


@pytest.mark.parametrize(
    ("a", "c", "message"),
    [
        (np.where(np.arange(70).reshape(7, 10) == 23, -1.0, 1.0), 0.0, "a must be positive"),
        (np.where(np.arange(54).reshape(6, 9) == 20, 0.0, 1.0), 0.0, "first is 0 at cell (2, 2)"),
        ("x - 1", 0.0, "a must be positive"),
        (np.ones((7, 10)), "x - 1", "c must be not negative"),
        (np.full((7, 10), np.nan), 0.0, "70 of 70 values that are not finite"),
    ],
)
def test_coefficients_are_checked_where_they_are_sampled(a, c, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        medium(a, c).conductances(GRID, WHOLE)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a": np.ones((5, 5))}, r"field a has the shape \(5, 5\), the grid has \(9, 9\)"),
        ({"a": np.ones((9, 9)), "c": np.ones((7, 8))}, r"field c has the shape \(7, 8\)"),
        ({"a": np.ones((3, 9, 9))}, "field a is of 3 problems"),
        ({"a": np.ones((9, 9)), "b": 1.0}, "diffusion has no field 'b'"),
        ({"a": -1.0}, "a > 0"),
        (
            {"a": 2.0, "axx": "1 + x", "ayy": 1.0},
            "takes the field a, or axx and ayy instead, got a ",
        ),
        ({"axx": "1 + x"}, "diffusion takes the field a, or axx and ayy instead, got axx"),
        ({"axx": np.ones((5, 5)), "ayy": 1.0}, r"field axx has the shape \(5, 5\)"),
        ({"axx": -1.0, "ayy": 1.0}, "a > 0"),
        ({"a": np.ones((9, 9)), "c": -1.0}, "c >= 0"),
    ],
)
def test_a_problem_refuses_fields_that_do_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        m.Problem(m.Domain((8, 8)), "diffusion", fields)


@pytest.mark.parametrize("sides", [m.Dirichlet(), {"left": m.Neumann()}], ids=["values", "natural"])
@pytest.mark.parametrize(
    ("a", "message"),
    [
        (
            _one_at((128, 96), 0.0),
            "1 of the 12288 values given are not, the first is 0 at cell (48, 40)",
        ),
        (
            _one_at((65, 65), -2.0),
            "1 of the 4225 values given are not, the first is -2 at node (48, 40)",
        ),
        ("x - 0.1", "it is -0.1 at node (0, 0)"),
    ],
    ids=["cell", "node", "expression"],
)
def test_where_nothing_conducts_is_refused_with_what_was_given_and_the_way_out(a, message, sides):
    cells = (64, 64) if isinstance(a, str) else tuple(n - n % 2 for n in a.shape)
    with pytest.raises(ValueError, match="the field a must be positive everywhere") as refused:
        m.solve(m.Problem(m.Domain(cells), "diffusion", {"a": a}, sides))
    assert f"everywhere; {message}: leave" in str(refused.value)
    assert "--domain" in str(refused.value)


def test_the_same_coefficients_are_the_same_medium():
    a, grid = np.ones((9, 9)), m.Domain((8, 8), 1.0).grid()
    problem = m.Problem(m.Domain((8, 8)), "diffusion", {"a": a, "c": 1.0})

    def told(**fields):
        return plan_fingerprint(problem.with_fields(**fields), grid, (slice(0, 9), slice(0, 9)))

    assert told(f=2.0) == told(a=a.copy()) == told()
    a[3, 4] = 2.0
    assert told(a=a) != told(a=np.ones((9, 9)))
    assert told(c=2.0) != told()
    assert isinstance(problem.with_fields(a=2.0).operator, m.EllipticOperator)


def test_a_velocity_per_cell_is_refused():
    with pytest.raises(ValueError, match=r"field bx has the shape \(8, 8\), the grid has \(9, 9\)"):
        m.Problem(m.Domain((8, 8)), "advection-diffusion", {"bx": np.ones((8, 8))})


def test_a_velocity_that_is_not_finite_is_refused_with_its_place():
    b = np.ones(GRID.nodes)
    b[3, 4] = np.inf
    with pytest.raises(ValueError, match=r"the field by has .* first at node \(3, 4\)"):
        medium(1.0, by=b).conductances(GRID, WHOLE)


@pytest.mark.parametrize("speed", [1.0, 1e3, 1e9])
def test_no_flow_makes_values_above_those_on_the_edge(speed):
    rng = np.random.default_rng(0)
    b = speed * rng.standard_normal((2, *GRID.nodes))
    matrix = MediumSystem(medium(1.0, bx=b[0], by=b[1]), GRID).matrix
    beside = matrix - np.diag(matrix.diagonal())
    assert beside.max() <= 0
    assert matrix.diagonal().min() > 0
