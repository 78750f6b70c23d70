"""Tensors that are not diagonal, in boxes: an assembly of its own, second order, alike on ranks, and what is refused."""

import numpy as np
import pytest
import sympy
from tensor_cells import driven_from_the_right

import mosaicdd as m
from mosaicdd.solvers.references import solve_directly

CELLS = (17, 17, 29)  # prime numbers
NODES = tuple(n + 1 for n in CELLS)
DOMAIN = m.Domain(CELLS, 1 / 20)
SIDES = {
    "left": m.Dirichlet("y + z"),
    "right": m.Robin(2.0, "x"),
    "top": m.Neumann(0.0),
    "bottom": m.Neumann("x"),
    "back": m.Neumann(1.0),
    "front": m.Dirichlet("x*y"),
}
TIGHT = m.SolveSettings(rtol=1e-11)
PAIRS = [("x", "x"), ("y", "y"), ("z", "z"), ("x", "y"), ("x", "z"), ("y", "z")]


def rough(shape, ratio, seed=0):
    """Return fields of tensors with any axes and ratios up to one, independent of each other."""
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.standard_normal((*shape, 3, 3)))[0]
    tensors = np.einsum(
        "...ij,...j,...kj->...ik", turns, ratio ** rng.uniform(size=(*shape, 3)), turns
    )
    return {f"a{i}{j}": tensors[..., "xyz".index(i), "xyz".index(j)].copy() for i, j in PAIRS}


PROBLEMS = {
    "numbers, no cubes": lambda: m.Problem(
        m.Domain(CELLS, {"x": 0.05, "y": 0.1, "z": 0.07}),
        "anisotropic-diffusion",
        {"axy": 0.5, "axz": -0.3, "ayz": 0.4, "f": "x"},
        SIDES,
    ),
    "per voxel": lambda: m.Problem(DOMAIN, "diffusion", {**rough(CELLS, 20), "f": "x"}, SIDES),
    "at nodes": lambda: m.Problem(
        DOMAIN, "anisotropic-diffusion", {**rough(NODES, 20), "f": "x"}, m.Dirichlet("x*y*z")
    ),
    "a pair": lambda: m.Problem(
        m.Domain((18, 16, 26), 1 / 20),
        "diffusion",
        {**rough((18, 16, 26), 20), "f": "x", "c": 2.0},
        {"bottom": m.Periodic(), "top": m.Periodic(), "left": m.Dirichlet("z")},
    ),
}


@pytest.mark.ranks(1, 2, 3, 4, 6, 8)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_number_of_ranks_takes_the_same_iterations_to_the_field_of_a_direct_solver(
    as_by_one, name
):
    iterations, off = as_by_one(PROBLEMS[name](), 1e-12)
    assert iterations <= 25
    assert off < 1e-9


def test_cells_that_are_no_cubes_hold_the_energy_of_their_rises():
    cells, sides, fields = (5, 6, 7), (0.05, 0.1, 0.08), rough((5, 6, 7), 30)
    a, field = driven_from_the_right(cells, sides, fields)
    values = np.linalg.eigvalsh(a.toarray())
    assert values[0] == pytest.approx(0, abs=1e-12 * values[-1])
    assert values[1] > 0  # of constants alone there is no energy
    domain = m.Domain(cells, dict(zip("zyx", sides, strict=True)))
    insulated = dict.fromkeys(("top", "bottom", "back", "front"), m.Neumann(0.0))
    conditions = {"left": m.Dirichlet(0.0), "right": m.Neumann(1.0), **insulated}
    solution = m.solve(m.Problem(domain, "diffusion", fields, conditions), settings=TIGHT)
    assert solution.field == pytest.approx(field, abs=1e-9 * np.ptp(field))


def manufactured():
    """Return a solution, tensors, the flux along each axis and the source, as expressions."""
    x, y, z = places = sympy.symbols("x y z")
    u = sympy.sin(2 * x + y - z)
    named = {
        "axx": 2 + x * y,
        "ayy": 1.5 + 0.5 * sympy.sin(2 * y),
        "azz": 2 + z,
        "axy": 0.5 * sympy.sin(3 * x) * sympy.cos(y),
        "axz": 0.4 * sympy.cos(z),
        "ayz": 0.3 * x,
    }
    slopes = {str(p): sympy.diff(u, p) for p in places}
    flux = {
        i: sum(named["a" + "".join(sorted(i + j))] * slope for j, slope in slopes.items())
        for i in slopes
    }
    source = -sum(sympy.diff(flux[str(p)], p) for p in places)
    return str(u), {n: str(a) for n, a in named.items()}, flux, str(source)


@pytest.mark.parametrize("per_voxel", [False, True])
def test_the_largest_error_is_of_second_order(per_voxel):
    u, tensors, flux, source = manufactured()
    errors = []
    for n in (5, 10, 20, 40):
        fields: dict = dict(tensors)
        if per_voxel:
            z, y, x = np.meshgrid(*[(np.arange(n) + 0.5) / n] * 3, indexing="ij")
            known = {"x": x, "y": y, "z": z, "sin": np.sin, "cos": np.cos}
            fields = {k: eval(v, known) + 0 * x for k, v in tensors.items()}
        value = m.Dirichlet(u)
        sides = dict.fromkeys(("left", "bottom", "front", "back"), value)
        sides |= {"right": m.Neumann(str(flux["x"])), "top": m.Robin(3.0, f"{flux['y']} + 3*{u}")}
        domain = m.Domain((n, n, n), 1 / n)
        solution = m.solve(
            m.Problem(domain, "diffusion", {**fields, "f": source}, sides), rtol=1e-9
        )
        assert solution.converged
        z, y, x = np.meshgrid(*[np.arange(n + 1) / n] * 3, indexing="ij")
        errors.append(abs(solution.field - np.sin(2 * x + y - z)).max())
    assert errors[-1] < 3e-4
    assert np.array(errors[:-1]) / errors[1:] == pytest.approx([4, 4, 4], rel=0.15)


def test_the_estimate_is_of_the_size_of_the_error():
    problem = m.Problem(DOMAIN, "diffusion", {**rough(CELLS, 300), "f": "sin(9*x)"}, SIDES)
    solution = m.solve(problem, rtol=1e-5)
    error = np.sqrt(np.square(solution.field - solve_directly(problem)).mean())
    assert error < 2 * solution.error_estimate < 20 * error
    assert solution.report["discrete_residual"] <= 1e-5


BAD = rough(CELLS, 5)
BAD["axz"] = BAD["axz"].copy()
BAD["axz"][3, 7, 2] = 9.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (BAD, r"all of its eigenvalues > 0\); in the cell \(3, 7, 2\) \(z, y, x\) axx is .* axz 9,"),
        ({"axx": 1.0, "ayy": 1.0, "azz": "1 + x", "ayz": 0.8, "axz": 0.8}, r"in the cell \(0, 0, 0\)"),
        ({"axx": 1.0, "ayy": 1.0, "azz": 1.0, "axy": 0.9, "ayz": 0.9}, r"axy 0\.9, axz 0, ayy 1, ayz 0\.9, azz 1$"),
    ],
)  # fmt: skip
@pytest.mark.ranks(1, 2, 3)
def test_a_tensor_that_is_not_positive_definite_is_refused_with_its_first_cell(
    comm, fields, message
):
    with pytest.raises(ValueError, match=message) as told:
        m.solve(m.Problem(DOMAIN, "diffusion", fields, SIDES), ranks=comm)
    assert "\n" not in str(told.value)
