"""Problems on boxes, against an independent matrix of seven points, formulas, and on several ranks."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import mosaicdd as m
from mosaicdd import SolveSettings
from mosaicdd.schwarz.local_solvers.exact import Exact

SIDES = {"back": (0, 0), "front": (0, 1), "bottom": (1, 0), "top": (1, 1), "left": (2, 0), "right": (2, 1)}  # fmt: skip
RTOL = 1e-11


def edge_conductances(a, nodes):
    """Return the conductances along each axis, by cells as the mean of the four around an edge, else in series.

    ``a``: or one for each axis.
    """
    if isinstance(a, tuple):
        return [edge_conductances(each, nodes)[axis] for axis, each in enumerate(a)]
    along = []
    for axis in range(3):
        first = [slice(None)] * 3
        first[axis] = slice(0, -1)
        if a.shape == nodes:
            second = [slice(None)] * 3
            second[axis] = slice(1, None)
            area = np.ones(a[tuple(first)].shape)
            for other in {0, 1, 2} - {axis}:
                for end in (0, -1):
                    place = [slice(None)] * 3
                    place[other] = end
                    area[tuple(place)] /= 2
            along.append(area * 2 / (1 / a[tuple(first)] + 1 / a[tuple(second)]))
            continue
        total = np.zeros([n - (axis == other) for other, n in enumerate(nodes)])
        others = sorted({0, 1, 2} - {axis})
        for p in (0, 1):
            for q in (0, 1):
                place = [slice(None)] * 3
                place[others[0]] = slice(p, nodes[others[0]] - 1 + p)
                place[others[1]] = slice(q, nodes[others[1]] - 1 + q)
                total[tuple(place)] += a / 4
        along.append(total)
    return along


def reference(a, c, f, h, sides, nodes):
    """Solve by a sparse factorisation; a side is a value, ``("flux", q)`` or ``("robin", alpha, g)``."""
    numbers = np.arange(np.prod(nodes)).reshape(nodes)
    share = np.ones(nodes)
    for axis in range(3):
        for end in (0, -1):
            share[(slice(None),) * axis + (end,)] /= 2
    b, diagonal = (share * f * h**2), (share * c * h**2)
    rows, columns, values = [], [], []
    for axis, k in enumerate(edge_conductances(a, nodes)):
        low = numbers[(slice(None),) * axis + (slice(0, -1),)].ravel()
        high = numbers[(slice(None),) * axis + (slice(1, None),)].ravel()
        k = k.ravel()
        rows += [low, high, low, high]
        columns += [low, high, high, low]
        values += [k, k, -k, -k]
    known, given = np.zeros(nodes, bool), np.zeros((2, *nodes))
    for name, (axis, end) in SIDES.items():
        side, face = sides.get(name, 0.0), (slice(None),) * axis + (-end,)
        if not isinstance(side, tuple):
            known[face] = True
            given[0][face] += side
            given[1][face] += 1
            continue
        area = 2 * share[face] * h
        if side[0] == "flux":
            b[face] += area * side[1]
        else:
            diagonal[face] += area * side[1]
            b[face] += area * side[2]
    u = np.where(known, given[0] / np.maximum(given[1], 1), 0.0).ravel()
    rows.append(numbers.ravel())
    columns.append(numbers.ravel())
    values.append(diagonal.ravel())
    flat = map(np.concatenate, (values, rows, columns))
    data, i, j = flat
    matrix = scipy.sparse.coo_array((data, (i, j)), shape=(u.size,) * 2).tocsr()
    free = np.flatnonzero(~known.ravel())
    rest = (b.ravel() - matrix @ u)[free]
    u[free] = scipy.sparse.linalg.spsolve(matrix[free][:, free].tocsc(), rest)
    return u.reshape(nodes)


def random_media(cells):
    rng = np.random.default_rng(3)
    nodes = tuple(n + 1 for n in cells)
    return {
        "number": np.full(nodes, 2.5),
        "nodes": np.exp(rng.normal(size=nodes)),
        "voxels": np.where(rng.random(cells) < 0.3, 1e6, 1.0),
    }


@pytest.mark.parametrize("kind", ["number", "nodes", "voxels"])
@pytest.mark.parametrize("cells", [(7, 12, 9), (16, 16, 32), (3, 40, 5), (16, 21, 2), (21, 4, 22)])
def test_values_on_all_sides_against_a_factorisation(kind, cells):
    h, a = 0.1, random_media(cells)[kind]
    nodes = tuple(n + 1 for n in cells)
    f = np.random.default_rng(4).normal(size=nodes)
    sides = {"left": 1.0, "right": -2.0, "back": 0.5}
    problem = m.Problem(
        m.Domain(cells, h),
        "diffusion",
        {"a": 2.5 if kind == "number" else a, "c": 3.0, "f": f},
        {name: m.Dirichlet(value) for name, value in sides.items()},
    )
    solution = m.solve(problem, "exact", rtol=RTOL)
    expected = reference(a, 3.0, f, h, sides, nodes)
    assert solution.converged
    assert solution.field.shape == nodes
    # The estimate bounds the root mean square of the error.
    error = np.sqrt(np.mean((solution.field - expected) ** 2))
    assert error <= max(solution.error_estimate, 1e-13 * np.abs(expected).max())
    assert error < 1e-7


def test_fluxes_and_exchanges_on_sides_against_a_factorisation():
    cells, h = (9, 7, 12), 0.2
    nodes, a = tuple(n + 1 for n in cells), random_media(cells)["voxels"]
    sides = {
        "left": m.Dirichlet(1.0), "right": m.Neumann(0.5), "top": m.Robin(2.0, 3.0),
        "back": m.Neumann(0.0), "front": m.Robin(0.1, -1.0), "bottom": m.Neumann(-1.0),
    }  # fmt: skip
    problem = m.Problem(m.Domain(cells, h), "diffusion", {"a": a, "f": 1.0}, sides)
    solution = m.solve(problem, rtol=RTOL)
    expected = reference(
        a, 0.0, 1.0, h,
        {"left": 1.0, "right": ("flux", 0.5), "top": ("robin", 2.0, 3.0), "back": ("flux", 0.0),
         "front": ("robin", 0.1, -1.0), "bottom": ("flux", -1.0)},
        nodes,
    )  # fmt: skip
    error = np.sqrt(np.mean((solution.field - expected) ** 2))
    assert solution.converged
    assert error <= max(solution.error_estimate, 1e-12 * np.abs(expected).max())


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("varying", [False, True])
def test_a_tensor_along_the_axes_against_a_factorisation(varying, comm):
    cells, h, rng = (9, 12, 10), 0.2, np.random.default_rng(0)
    nodes = tuple(n + 1 for n in cells)
    shapes = (cells, nodes, cells) if varying else ((), (), ())
    zz, yy, xx = (rng.uniform(0.2, 3.0, shape) for shape in shapes)
    sides = {"left": m.Dirichlet(1.0), "top": m.Neumann(-1.0), "front": m.Robin(2.0, 0.5)}
    fields = {"azz": zz, "ayy": yy, "axx": xx, "f": 1.0}
    problem = m.Problem(m.Domain(cells, h), "diffusion", fields, sides)
    solution = m.solve(problem, Exact(16), rtol=RTOL, ranks=comm)
    every = tuple(
        np.broadcast_to(a, shape or cells) for a, shape in zip((zz, yy, xx), shapes, strict=True)
    )
    given = {"left": 1.0, "top": ("flux", -1.0), "front": ("robin", 2.0, 0.5)}
    given |= {name: 0.0 for name in SIDES if name not in given}
    expected = reference(every, 0.0, 1.0, h, given, nodes)
    assert solution.converged
    np.testing.assert_allclose(solution.gather(), expected, rtol=0, atol=1e-9)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("certify", [1e-3, 1e-11])
def test_a_certificate_is_a_residual_that_a_matrix_of_its_own_confirms(certify, comm):
    cells = (12, 16, 13)
    a = 10 ** np.random.default_rng(0).uniform(-2, 2, cells)
    problem = m.Problem(m.Domain(cells, 0.1), "diffusion", {"a": a, "f": "x*y"})
    settings = SolveSettings(rtol=1e-2, certify=certify)
    solution = m.solve(problem, Exact(16), settings=settings, ranks=comm)
    assert solution.converged
    assert solution.report["certificate"]["rtol"] == certify
    u, left = solution.gather(), 0.0
    for axis, k in enumerate(edge_conductances(a, u.shape)):
        left = (
            left
            + np.diff(k * np.diff(u, axis=axis), axis=axis)[
                tuple(slice(None) if i == axis else slice(1, -1) for i in range(3))
            ]
        )
    _, y, x = np.indices(u.shape) * 0.1
    f = 0.1**2 * (x * y)[1:-1, 1:-1, 1:-1]
    assert np.linalg.norm(f + left) <= certify * np.linalg.norm(f)


def test_without_a_given_value_the_mean_is_zero():
    problem = m.Problem(m.Domain((6, 8, 5), 0.1), "poisson", {"f": "y - 0.4"}, m.Neumann(0.0))
    solution = m.solve(problem, rtol=1e-10)
    y = solution.y
    assert solution.converged
    # -u'' = y - 0.4, without a flux at 0 and 0.8: u' = 0.4 y - y^2 / 2, in mid cells less h^2 / 8 by differences.
    middle = (y[1:] + y[:-1]) / 2
    slope = 0.4 * middle - middle**2 / 2 + 0.1**2 / 8
    expected = 0.1 * np.append(0.0, np.cumsum(slope))
    weights = np.pad(np.ones(7), 1, constant_values=0.5)
    expected -= np.average(expected, weights=weights)
    profile = np.broadcast_to(expected[:, None], solution.field.shape)
    np.testing.assert_allclose(solution.field, profile, atol=1e-9)


def test_the_error_of_a_formula_falls_by_four_as_cells_are_halved():
    u = lambda x, y, z: np.sin(2 * x + 1) * np.exp(y) * np.cos(3 * z) + x * z
    f = "-(-4 + 1 - 9 - 2) * sin(2*x + 1) * exp(y) * cos(3*z) + 2 * x * z"  # c = 2
    errors = []
    for n in (6, 12, 24):
        problem = m.Problem(
            m.Domain((n, 2 * n, n), 1 / n), "screened-poisson", {"c": 2.0, "f": f}, m.Dirichlet(u)
        )
        solution = m.solve(problem, rtol=1e-9)
        z, y, x = np.meshgrid(solution.z, solution.y, solution.x, indexing="ij")
        errors.append(np.abs(solution.field - u(x, y, z)).max())
    assert solution.converged
    assert 3.6 < errors[0] / errors[1] < 4.4  # the coarsest is some way from second order
    assert 3.8 < errors[1] / errors[2] < 4.2


def test_a_medium_may_be_a_function_or_an_expression_and_problems_several():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(2, 10, 8, 6))
    domain = m.Domain((9, 7, 5), 0.3)
    for a in ("1 + x + 2*y*z", lambda x, y, z: 1 + x + 2 * y * z):
        both = m.solve(m.Problem(domain, "diffusion", {"a": a, "f": f}), rtol=RTOL).field
        z, y, x = (0.3 * n for n in np.indices((10, 8, 6)))
        for field, source in zip(both, f, strict=True):
            expected = reference(1 + x + 2 * y * z, 0.0, source, 0.3, {}, (10, 8, 6))
            np.testing.assert_allclose(field, expected, atol=1e-9)


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("natural", [False, True])
def test_any_number_of_ranks_gives_the_same_field(natural, comm):
    cells = (9, 13, 10) if natural else (12, 16, 12)
    a = np.exp(np.random.default_rng(5).normal(size=cells))
    sides = {"left": m.Dirichlet(1.0), "back": m.Neumann(1.0) if natural else m.Dirichlet("x*y")}
    problem = m.Problem(m.Domain(cells, 0.1), "diffusion", {"a": a, "f": "x + z"}, sides)
    alone = m.solve(problem, Exact(16), rtol=1e-13).field
    together = m.solve(problem, Exact(16), rtol=1e-13, ranks=comm).gather()
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12 * np.abs(alone).max())


@pytest.mark.ranks(2, 4, 6, 8)
def test_levels_that_lie_over_ranks_take_as_many_iterations(comm, known_by_one):
    """Of a bar whose second level each rank has a part of; sums go another way round, which 1e-14 forgets."""
    a = random_media((24, 24, 136))["nodes"]
    problem = m.Problem(m.Domain((24, 24, 136), 0.1), "diffusion", {"a": a, "f": "x - y*z"})
    rough = m.solve(
        problem, ranks=comm, settings=SolveSettings(dims=(1, 1, 2) if comm.size == 2 else None)
    )
    assert rough.iterations == known_by_one(m.solve, problem).iterations
    fine = m.solve(problem, ranks=comm, rtol=3e-14).gather()
    alone = known_by_one(m.solve, problem, rtol=3e-14).field
    np.testing.assert_allclose(fine, alone, rtol=0, atol=1e-12 * np.abs(alone).max())


def test_fluxes_and_exchanges_are_of_second_order_in_a_medium_that_varies():
    """``u = sin(x + 2y) exp(-z)`` in ``a = 1 + x z / 2``, by four grids."""
    u, a = "sin(x + 2*y)*exp(-z)", "(1 + x*z/2)"
    ux, uy, uz = "cos(x + 2*y)*exp(-z)", "2*cos(x + 2*y)*exp(-z)", "-sin(x + 2*y)*exp(-z)"
    sides = {
        "left": m.Neumann(f"-{a}*({ux})"), "right": m.Robin(2.0, f"{a}*({ux}) + 2*{u}"),
        "top": m.Neumann(f"{a}*({uy})"), "bottom": m.Dirichlet(u),
        "back": m.Robin(1.0, f"-{a}*({uz}) + {u}"), "front": m.Neumann(f"{a}*({uz})"),
    }  # fmt: skip
    fields = {"a": a, "f": f"4*{a}*{u} - z/2*({ux}) - x/2*({uz}) + {u}", "c": 1.0}
    errors = []
    for n in (6, 12, 24, 48):
        domain = m.Domain((n, 2 * n // 3, n), 1 / n)
        solution = m.solve(m.Problem(domain, "diffusion", fields, sides))
        z, y, x = np.meshgrid(solution.z, solution.y, solution.x, indexing="ij")
        errors.append(abs(solution.field - np.sin(x + 2 * y) * np.exp(-z)).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders[1:] > 1.9).all(), errors


def test_values_at_points_are_linear_between_nodes():
    problem = m.Problem(m.Domain((4, 5, 6), 0.5), "laplace", sides=m.Dirichlet("x + 2*y - 3*z"))
    values = m.solve(problem, rtol=RTOL).at([(1.3, 0.4, 1.7), (0.1, 2.2, 0.0)])
    np.testing.assert_allclose(values, [1.3 + 0.8 - 5.1, 0.1 + 4.4], atol=1e-9)


def test_a_solve_begins_from_another():
    cells = (13, 19, 23)
    fields = {"a": random_media(cells)["nodes"], "f": "x - y*z"}
    problem = m.Problem(m.Domain(cells, 0.05), "diffusion", fields)
    with m.Solver(problem, rtol=1e-8) as solver:
        first = solver()
        again = solver(problem, start=first)
    assert again.iterations <= 1 < first.iterations


def test_what_contracts_badly_goes_on_and_says_how_it_ended():
    """Threads of 1e6, one cell thick, many of which hold no coarse node; there is no other way in space."""
    a = np.ones((24, 24, 24))
    a[::4, ::4, :] = a[2::4, :, 2::4] = 1e6
    problem = m.Problem(m.Domain(a.shape, 1.0), "diffusion", {"a": a, "f": 1.0})
    rough = m.solve(problem, settings=SolveSettings(max_iterations=12))
    assert (rough.status, rough.iterations) == ("diverged_max_iterations", 12)
    solution = m.solve(problem)
    assert not solution.converged or solution.report["discrete_residual"] < 1e-6


def test_what_a_trial_would_give_away_in_the_plane_goes_on_in_space():
    """Of a contrast at which multigrid is tried on all of a medium, where exchanges hold the level."""
    cells = (12, 15, 9)
    a = np.where(np.random.default_rng(1).random([n + 1 for n in cells]) < 0.3, 1e6, 1.0)
    sides = {name: m.Robin(0.01, 1.0) for name in ("bottom", "top", "left", "right")}
    sides |= {"front": m.Neumann(0.0), "back": m.Dirichlet(0.0)}
    solution = m.solve(m.Problem(m.Domain(cells, 1.0), "diffusion", {"a": a}, sides), rtol=1e-9)
    given = {"back": 0.0, "front": ("flux", 0.0)} | {
        name: ("robin", 0.01, 1.0) for name in ("bottom", "top", "left", "right")
    }
    expected = reference(a, 0.0, np.zeros(a.shape), 1.0, given, a.shape)
    error = np.sqrt(np.mean((solution.field - expected) ** 2))
    assert error < (1e-6 if solution.converged else min(1e-2, solution.error_estimate))


BOX = m.Domain((8, 8, 8), 0.1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: m.Problem(BOX, "bilinear-diffusion"), "bilinear-diffusion, by bilinear elements, is solved in the plane"),
        (lambda: m.Problem(BOX, "diffusion", {"axx": 1.0, "ayy": 2.0}), "takes the field a, or axx and ayy and azz instead, got axx and ayy"),
        (lambda: m.Problem(BOX, "anisotropic-diffusion", {"azz": -1.0}), "all of its eigenvalues > 0.; axx is 1, axy 0, axz 0, ayy 1, ayz 0, azz -1"),
        (lambda: m.Problem(BOX, "diffusion", {"axx": 1.0, "ayy": 2.0, "azz": 0.0}), "got axx 1, ayy 2, azz 0"),
        (lambda: m.Problem((8, 8), "advection-diffusion", {"bz": 1.0}), "advection-diffusion has no field 'bz'"),
        (lambda: m.Problem(BOX, "diffusion", {"a": np.ones((8, 8, 7))}), "8, 8, 7"),
        (lambda: m.solve(m.Problem(BOX, "laplace"), "laplace"), "local_solver: laplace is of squares"),
        (lambda: m.solve(m.Problem(BOX, "laplace"), keep="interface"), "keep='interface': exact solves on the whole grid"),
        (lambda: m.solve(m.Problem(BOX, "laplace"), settings=SolveSettings(dims=(1, 1))), "the domain has 3"),
        (lambda: m.solve(m.Problem(BOX, "laplace")).at([[0.1, 0.1]]), r"\(q, 3\), rows \(x, y, z\)"),
    ],
)  # fmt: skip
def test_what_is_not_there_in_space_is_said_in_one_line(wrong, says):
    with pytest.raises(ValueError, match=says) as told:
        wrong()
    assert "\n" not in str(told.value)
