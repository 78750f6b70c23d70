"""Problems on boxes, against an independent matrix of seven points, formulas, and on several ranks."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd import SolveSettings
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.solvers.references import solve_directly

RTOL = 1e-11


def edge_conductances(a):
    """Return the conductances along each axis, by cells: the mean of the four around an edge."""
    along = []
    for axis in range(3):
        k = np.pad(a, [(0, 0) if axis == other else (1, 1) for other in range(3)])
        for other in {0, 1, 2} - {axis}:
            low, high = (np.take(k, range(first, k.shape[other] - 1 + first), other) for first in (0, 1))  # fmt: skip
            k = (low + high) / 2
        along.append(k)
    return along


def random_media(cells):
    rng = np.random.default_rng(3)
    nodes = tuple(n + 1 for n in cells)
    return {
        "number": np.full(nodes, 2.5),
        "nodes": np.exp(rng.normal(size=nodes)),
        "voxels": np.where(rng.random(cells) < 0.3, 1e6, 1.0),
    }


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
    for axis, k in enumerate(edge_conductances(a)):
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
    expected = solve_directly(solution.problem)
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
