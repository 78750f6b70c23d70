"""Bilinear elements: published compliances of a slab, second order, ranks, and no plan of another discretisation."""

import numpy as np
import pytest
from central_differences import central_difference

import mosaicdd as m
from mosaicdd.solvers.references import solve_directly

# Of the heat slab of the Mosaic benchmark (arXiv 2606.27895), by the number of elements along x.
COMPLIANCES = {
    2: 16.552181,
    3: 19.562195,
    4: 23.414675,
    6: 85.65075,
    8: 99.867744,
    12: 85.6194,
    16: 122.75734,
    24: 329.5523,
}
SIDES = {"left": m.Dirichlet(0.0), "top": m.Neumann(0.0), "bottom": m.Neumann(0.0)}
ROUGH = {"a": 10.0 ** np.random.default_rng(0).uniform(-2, 0, (48, 70)), "f": "x"}


def slab(nx):
    """Return the problem on [0, 2] x [0, 1]."""
    ny, width = max(1, nx // 2), 2 / nx
    noise = np.random.default_rng(0).standard_normal(nx * ny).astype(np.float32)
    density = np.clip(0.5 + 0.3 * noise, 0.05, 0.95).reshape(ny, nx).astype(float)
    domain = m.Domain((ny, nx), {"y": 1 / ny, "x": width})
    fields = {"a": 1e-3 + 0.999 * density**3}
    return m.Problem(domain, "bilinear-diffusion", fields, {**SIDES, "right": m.Neumann(1.0)})


@pytest.mark.parametrize("nx", COMPLIANCES)
def test_the_compliances_of_the_heat_slab_are_those_published(nx):
    solution = m.solve(slab(nx), settings=m.SolveSettings(rtol=1e-10))
    last = solution.field[:, -1]
    compliance = ((last[1:] + last[:-1]) / 2).mean() / (
        2 / nx
    )  # of one layer as deep as it is wide
    assert solution.converged
    assert compliance == pytest.approx(COMPLIANCES[nx], rel=1e-5)


def test_the_largest_error_is_of_second_order():
    errors = []
    for n in (32, 64, 128):
        domain = m.Domain((n, n), {"y": 1 / n, "x": 2 / n})
        fields = {"a": "1 + x", "c": 2.0, "f": "(4 + 2*x)*sin(x + y) - cos(x + y)"}
        problem = m.Problem(domain, "bilinear-diffusion", fields, m.Dirichlet("sin(x + y)"))
        solution = m.solve(problem, rtol=1e-9)
        errors.append(abs(solution.field - np.sin(solution.x + solution.y[:, None])).max())
    assert errors[-1] < 1e-4
    assert np.array(errors[:-1]) / errors[1:] == pytest.approx([4, 4], rel=0.1)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("around", [False, True])
def test_every_number_of_ranks_has_the_field_of_a_direct_solver(comm, known_by_one, around):
    sides = {**SIDES, "right": m.Robin(2.0, "y")}
    if around:
        sides |= {"top": m.Periodic(), "bottom": m.Periodic()}
    problem = m.Problem(m.Domain((48, 70), 1 / 48), "bilinear-diffusion", ROUGH, sides)
    settings = m.SolveSettings(rtol=1e-11)
    solution = m.solve(problem, ranks=comm, settings=settings)
    alone = known_by_one(m.solve, problem, settings=settings)
    assert solution.report["accelerate"] == "multigrid"
    assert (solution.status, solution.iterations) == (alone.status, alone.iterations)
    assert solution.converged
    reference = solve_directly(problem)
    assert abs(solution.gather() - reference).max() < 1e-9 * np.ptp(reference)


def test_a_plan_of_five_points_serves_no_bilinear_elements():
    domain = m.Domain((48, 70), 1 / 48)
    five, nine = (m.Problem(domain, name, ROUGH) for name in ("diffusion", "bilinear-diffusion"))
    with m.Solver(five) as solver, pytest.raises(ValueError, match="was planned for"):
        solver(nine)


def test_boxes_and_shapes_are_refused():
    with pytest.raises(m.Unsupported, match="by bilinear elements"):
        m.Problem((8, 8, 8), "bilinear-diffusion")
    disk = m.Domain.from_distance(lambda x, y: np.hypot(x - 0.5, y - 0.5) - 0.4, (32, 32), 1 / 32)
    with pytest.raises(m.Unsupported, match="coupled across cells"):
        m.Problem(disk, "bilinear-diffusion")


def test_the_gradient_of_the_compliance_by_the_density_is_that_of_central_differences():
    nx, settings = 16, m.SolveSettings(rtol=1e-12)
    rng = np.random.default_rng(1)
    density = rng.uniform(0.1, 0.9, (nx // 2, nx))
    loads = np.zeros((nx // 2 + 1, nx + 1))
    loads[:, -1] = 2 / nx
    loads[[0, -1], -1] /= 2

    def solved(rho):
        problem = slab(nx).with_fields(a=1e-3 + 0.999 * rho**3)
        return m.solve(problem, settings=settings)

    solution = solved(density)
    by_density = m.adjoint(solution, loads)["a"] * 3 * 0.999 * density**2
    for _ in range(5):
        along = rng.standard_normal(density.shape)

        def moved(s, along=along):
            return loads * solved(density + s * along).field

        slope = (by_density * along).sum()
        beside = central_difference(moved, 1e-4, settings.rtol)
        assert slope == beside
        assert beside.abs < 1e-5 * abs(by_density * along).sum()
