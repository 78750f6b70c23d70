"""Data whose squares float64 does not hold: the fields, iterations and statuses of the same data near 1, times a number."""

import numpy as np
import pytest
import torch

import mosaicdd as m

FAR = [2.0**700, 2.0**-700]  # 5e210 and 2e-211: times a power of two all numbers are the same
CELLS = (64, 96)
RNG = np.random.default_rng(0)
MEDIUM = np.exp(RNG.standard_normal((65, 97)))
F = RNG.standard_normal((65, 97))
ODD = F - F[:, ::-1]  # which adds up to nothing
DISK = m.Domain.from_distance(lambda x, y: np.hypot(x - 0.4, y - 0.3) - 0.25, CELLS, 1 / 96)


def sides(k):
    return {
        "left": m.Dirichlet(lambda x, y: k * np.sin(3 * y)),
        "right": m.Robin(2.0, lambda x, y: k * y),
        "top": m.Neumann(k),
        "bottom": m.Neumann(0.0),
    }


def edges(k):
    return m.Dirichlet(lambda x, y: k * np.sin(3 * x + y))


def around(k):
    return {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet(k)}


PROBLEMS = {
    "medium": lambda k: m.Problem(CELLS, "diffusion", {"a": MEDIUM, "f": k * F}, edges(k)),
    "sources alone": lambda k: m.Problem(CELLS, "diffusion", {"a": MEDIUM, "f": k * F}),
    "values alone": lambda k: m.Problem(CELLS, "diffusion", {"a": MEDIUM}, edges(k)),
    "sides": lambda k: m.Problem(CELLS, "diffusion", {"a": MEDIUM, "f": k * F}, sides(k)),
    "constant": lambda k: m.Problem(CELLS, "poisson", {"f": k * F}, edges(k)),
    "harmonic": lambda k: m.Problem(CELLS, "laplace", {}, edges(k)),
    "waves": lambda k: m.Problem(CELLS, "screened-poisson", {"c": 3.0, "f": k}, sides(k)),
    "periodic": lambda k: m.Problem(CELLS, "diffusion", {"a": MEDIUM, "f": k * F}, around(k)),
    "insulated": lambda k: m.Problem(
        CELLS, "diffusion", {"a": MEDIUM, "f": k * ODD}, m.Neumann(0.0)
    ),
    "velocity": lambda k: m.Problem(
        CELLS, "advection-diffusion", {"bx": 9.0, "by": 2.0, "f": k * F}, edges(k)
    ),
    "velocities": lambda k: m.Problem(
        CELLS, "advection-diffusion", {"a": MEDIUM, "bx": 9 * F, "by": 2.0, "f": k}, sides(k)
    ),
    "shape": lambda k: m.Problem(DISK, "diffusion", {"a": "1 + x", "f": k}, m.Robin(1.0, k)),
    "box": lambda k: m.Problem((16, 16, 16), "diffusion", {"a": "1 + x*z", "f": k}),
}


def same(one, far, k):
    """Check that a solution is another one times a power of two, and was found alike."""
    field = k * one.gather()
    # GMRES has least squares by singular values, of which rounding is not the same, and networks are of float32.
    how = one.report["accelerate"]
    rounding = 500 * float(np.finfo(field.dtype).eps)
    off = {"gmres": rounding, "quasi-newton": 1e-6}.get(how, 0.0) * np.nanmax(abs(field))
    np.testing.assert_allclose(far.gather(), field, rtol=0, atol=off)
    assert (far.status, far.iterations) == (one.status, one.iterations)
    near = 0.1 if field.dtype == float else 1.0
    share = {"gmres": near, "quasi-newton": 1.0}.get(how, 0.0)  # of what is near rounding
    for name, factor in (("discrete_residual", 1.0), ("update", k), ("error_estimate", k)):
        assert far.report[name] == pytest.approx(factor * one.report[name], rel=share, abs=0)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("k", FAR)
@pytest.mark.parametrize("name", PROBLEMS)
def test_far_out_all_is_as_near_one(name, k, comm):
    one, far = (m.solve(PROBLEMS[name](scale), ranks=comm) for scale in (1.0, k))
    assert one.converged
    same(one, far, k)


SQUARE = (64, 64)
G = RNG.standard_normal((65, 65))
BY_SUBDOMAINS = {
    "network": (None, "laplace", {}, {}),
    "exact": ("exact", "poisson", {"f": G}, {"accelerate": "none"}),
    "one level": ("exact", "poisson", {"f": G}, {"levels": 1, "max_iterations": 9}),
    "gmres": ("exact", "poisson", {"f": G}, {"accelerate": "gmres"}),
    "anderson": ("exact", "poisson", {"f": G}, {"accelerate": "anderson"}),
    "certified": (None, "laplace", {}, {"certify": 1e-8}),
    "nonlinear": ("laplace-sdnet", "laplace", {}, {}),
}


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("k", "dtype"),
    [
        *((k, "float64") for k in FAR),
        *((k, "float32") for k in (2.0**100, 2.0**-100)),
    ],  # 1e30, 8e-31
)
@pytest.mark.parametrize("name", BY_SUBDOMAINS)
def test_subdomains_are_solved_far_out_as_near_one(name, k, dtype, comm):
    solver, pde, fields, settings = BY_SUBDOMAINS[name]
    if dtype == "float32" and "certify" in settings:
        pytest.skip("a certificate is of float64")
    settings = settings | {"dtype": dtype}

    def solved(scale):
        sources = {field: scale * values for field, values in fields.items()}
        problem = m.Problem(SQUARE, pde, sources, edges(scale))
        return m.solve(problem, solver, ranks=comm, settings=m.SolveSettings(**settings))

    same(solved(1.0), solved(k), k)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("pde", ["diffusion", "poisson", "laplace"])
def test_problems_of_all_sizes_are_solved_at_once(pde, comm):
    powers, data = (1.0, *FAR, 0.0), RNG.standard_normal((65, 65))
    fields = {"diffusion": {"a": "1 + x"}}.get(pde, {})
    sides = {
        name: m.Dirichlet(np.multiply.outer(powers, edge))
        for name, edge in zip(
            ("bottom", "top", "left", "right"),
            (data[0], data[-1], data[:, 0], data[:, -1]),
            strict=True,
        )
    }
    solution = m.solve(m.Problem(SQUARE, pde, fields, sides), ranks=comm, rtol=1e-9)
    assert solution.converged
    every = solution.gather()
    for power, field in zip(powers, every, strict=True):
        np.testing.assert_array_equal(field, power * every[0])


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("k", FAR)
def test_small_updates_are_small_beside_the_data_as_given(k, comm):
    for name in ("medium", "harmonic"):
        settings = {scale: m.SolveSettings(atol=1e-3 * scale, rtol=1e-13) for scale in (1.0, k)}
        one, far = (
            m.solve(PROBLEMS[name](scale), ranks=comm, settings=how)
            for scale, how in settings.items()
        )
        same(one, far, k)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("k", FAR)
@pytest.mark.parametrize("name", ["medium", "subdomains"])
def test_files_starts_and_checkpoints_have_the_data_as_given(name, k, comm, common_path):
    def make(scale):
        if name == "medium":
            return PROBLEMS[name](scale)
        return m.Problem(SQUARE, "laplace", sides=edges(scale))

    one, far = (m.solve(make(scale), ranks=comm) for scale in (1.0, k))
    with m.Solver(make(k), ranks=comm) as solver:
        again = solver(start=far)
    assert again.iterations == 1
    path = common_path / "far.h5"
    few = m.SolveSettings(max_iterations=3)
    part = m.solve(make(k), ranks=comm, settings=few, output=path)
    assert part.checkpoint is not None
    rest = m.solve(make(k), ranks=comm, output=m.Output(path, resume=True))
    assert one.iterations <= rest.iterations <= one.iterations + 1
    np.testing.assert_allclose(m.read(path).field / k, one.gather(), rtol=0, atol=1e-6)


@pytest.mark.ranks(1, 2)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("k", FAR)
@pytest.mark.parametrize("how", [{"steps": 4}, {"steps": 4, "method": "bdf2"}, {"tolerance": 1e-2}])
def test_marches_far_out_are_those_near_one(how, k, comm):
    def marched(scale):
        problem = m.Problem(CELLS, "heat", {"a": MEDIUM, "f": scale * F}, edges(scale))
        return m.march(problem, scale * F, dt=0.01, ranks=comm, **({"steps": 4} | how))

    one, far = marched(1.0), marched(k)
    np.testing.assert_array_equal(far.gather(), k * one.gather())
    for name in ("status", "steps", "iterations"):
        assert far.report[name] == one.report[name]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("k", FAR)
def test_gradients_of_marches_far_out_are_those_near_one(k):
    initial = torch.from_numpy(F).requires_grad_()
    problem = m.Problem(CELLS, "heat", {"a": MEDIUM}, edges(1.0))
    march = m.differentiable(problem, ("initial",), dt=0.01, steps=4)
    one, far = (
        torch.autograd.grad((s * march(initial=initial)).sum(), initial)[0] for s in (1.0, k)
    )
    np.testing.assert_array_equal(far, k * one)


WITH_GRADIENTS = [name for name in PROBLEMS if name not in ("harmonic", "insulated")]


@pytest.mark.ranks(1, 2)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("k", FAR)
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients_of_functionals_far_out_are_those_near_one(name, k, comm):
    problem = PROBLEMS[name](1.0)
    solution = m.solve(problem, ranks=comm, keep="unknowns", rtol=1e-10)
    weights = np.random.default_rng(1).standard_normal(solution.local.shape)
    one, far = (m.adjoint(solution, scale * weights) for scale in (1.0, k))
    for of, slope in one.items():
        off = 1e-13 * abs(slope).max(initial=0.0)  # GMRES, see `same`
        np.testing.assert_allclose(far[of] / k, slope, rtol=0, atol=off)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("name", ["poisson-boltzmann", "minimal-surface", "burgers"])
def test_newtons_method_far_below_one_solves_what_is_linear_there(name, comm):
    def solved(scale):
        source = {} if name == "minimal-surface" else {"f": scale * F}
        return m.solve(m.Problem(CELLS, name, source, edges(scale)), ranks=comm)

    one, far = solved(2.0**-200), solved(2.0**-700)
    assert far.status == one.status == "converged_rtol"
    # One step solves what is linear; where rounding leaves more than `rtol` of a residual with a velocity, another follows.
    assert max(far.iterations, one.iterations) <= (2 if name == "burgers" else 1)
    np.testing.assert_allclose(2.0**500 * far.gather(), one.gather(), rtol=1e-13, atol=0)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("k", [*FAR, 1e-300])
def test_what_is_not_solved_is_no_convergence_however_small_its_data_are(k, comm):
    given = {"left": m.Dirichlet(0.0), "top": m.Neumann(k)}
    problem = m.Problem(CELLS, "diffusion", {"a": MEDIUM, "f": k * F}, given)
    few = m.SolveSettings(rtol=1e-12, max_iterations=1)
    solution = m.solve(problem, ranks=comm, settings=few)
    assert solution.status == "diverged_max_iterations"
    assert abs(solution.gather()).max() > 0.1 * k


def test_a_right_hand_side_of_zeros_is_solved_by_zeros():
    problem = m.Problem(CELLS, "diffusion", {"a": MEDIUM, "f": 0 * F}, m.Dirichlet(0.0))
    solution = m.solve(problem, settings=m.SolveSettings(atol=0.0))
    assert solution.status == "converged_rtol"
    assert not solution.field.any()
