"""Networks as local solvers: compiled, in chunks, loaded from files."""

import numpy as np
import pytest
import torch

from mosaicdd import Domain, Problem, Unsupported
from mosaicdd.networks.network import extract_weights, insert_weights
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.lifting import Lifting, unit_points
from mosaicdd.schwarz.local_solvers.loading import find_local_solver, model_path
from mosaicdd.schwarz.local_solvers.network_solver import NetworkSolver
from mosaicdd.storage.model_file import ModelCard, write_model

SUBDOMAIN = Subdomain(cells=8, size=0.25)
P = 32
EPS = np.finfo(float).eps
SMALL = {"linear": {"width": 16, "depth": 1}, "sdnet": {"width": 16, "channels": 2}}


def make_solver(name, degree=2):
    torch.manual_seed(0)
    network = build_network(name, SMALL[name], SUBDOMAIN)
    settings = {**SMALL[name]}
    card = ModelCard("laplace", 8, 0.25, name, settings, degree, [-4.0, 4.0])
    return NetworkSolver(name, LAPLACE.at(), SUBDOMAIN, network, card)


def solve(solver, g, points, dtype=torch.float64):
    out = torch.full((len(g), len(points)), torch.nan, dtype=dtype)
    solver.plan(points, device=torch.device("cpu"), dtype=dtype)(g.to(dtype), out)
    return out


def perimeters(count, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((count, P)))


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_a_plan_is_the_network_under_the_lifting(name):
    solver = make_solver(name)
    g, points = perimeters(6), SUBDOMAIN.interior
    lifting = Lifting(LAPLACE.at(), SUBDOMAIN, 2)
    remainder, scale, coefficients = lifting.split(g)
    unit = torch.as_tensor(unit_points(points, SUBDOMAIN))
    with torch.no_grad():
        values = solver.network.double()(remainder, unit)
    expected = lifting.join(values, scale, coefficients, lifting.basis_tensor(points))
    # Two orders of summing 32 products, through at most three layers.
    torch.testing.assert_close(solve(solver, g, points), expected, rtol=0, atol=500 * EPS)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_exact_solutions_up_to_the_degree_are_reproduced(name):
    solver = make_solver(name)
    lifting = Lifting(LAPLACE.at(), SUBDOMAIN, 2)
    g = torch.as_tensor(lifting.basis(SUBDOMAIN.perimeter).T.copy())
    values = solve(solver, g, SUBDOMAIN.interior)
    # What is left is the network's answer to rounding noise, scaled back to its size.
    np.testing.assert_allclose(values.T, lifting.basis(SUBDOMAIN.interior), atol=500 * EPS)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_multiples_of_a_perimeter_give_multiples_of_the_solution(name):
    solver = make_solver(name)
    g = perimeters(3)
    small, large = (solve(solver, c * g, SUBDOMAIN.centre_lines) for c in (1.0, 1e6))
    torch.testing.assert_close(large, 1e6 * small, rtol=0, atol=1e6 * 1000 * EPS)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_corner_values_change_nothing(name):
    solver = make_solver(name)
    g = perimeters(3)
    changed = g.clone()
    changed[:, ::8] += 3.0
    first, second = (solve(solver, data, SUBDOMAIN.interior) for data in (g, changed))
    torch.testing.assert_close(first, second, rtol=0, atol=100 * EPS)


def test_chunks_do_not_change_the_values():
    solver = make_solver("sdnet")
    plan = solver.plan(SUBDOMAIN.interior, device=torch.device("cpu"), dtype=torch.float64)
    g = perimeters(11)
    whole, parts = torch.empty(2, 11, 49, dtype=torch.float64)
    plan(g, whole)
    plan.chunk = 4  # 4 + 4 + 3
    plan(g, parts)
    torch.testing.assert_close(parts, whole, rtol=0, atol=500 * EPS)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_single_precision_agrees_with_double_to_its_rounding(name):
    solver = make_solver(name)
    g = perimeters(5)
    double, single = (
        solve(solver, g, SUBDOMAIN.interior, dtype) for dtype in (torch.float64, torch.float32)
    )
    # 32 products per sum and a few layers, each to 2**-23.
    torch.testing.assert_close(single.double(), double, rtol=0, atol=500 * 2.0**-23)


def test_a_network_in_single_precision_leaves_the_lifting_in_double():
    solver = make_solver("sdnet")
    inside = solver.in_precision("float32")
    g, lifting = perimeters(5), Lifting(LAPLACE.at(), SUBDOMAIN, 2)
    values, expected = (solve(one, g, SUBDOMAIN.interior) for one in (inside, solver))
    assert not torch.equal(values, expected)
    torch.testing.assert_close(values, expected, rtol=0, atol=500 * 2.0**-23)
    # What the lifting takes out never is in single precision: of 1e6 times as much nothing is lost.
    q = torch.as_tensor(lifting.basis(SUBDOMAIN.perimeter)[:, 1])
    added = torch.as_tensor(lifting.basis(SUBDOMAIN.interior)[:, 1])
    more = solve(inside, g + 1e6 * q, SUBDOMAIN.interior) - 1e6 * added
    torch.testing.assert_close(more, values, rtol=0, atol=1e-6)


def test_points_outside_the_subdomain_are_refused():
    with pytest.raises(ValueError, match=r"within 0\.\.8 cells"):
        solve(make_solver("linear"), perimeters(1), np.array([[0.0, 8.5]]))


def test_only_a_linear_network_has_an_operator():
    with pytest.raises(Unsupported, match="no matrix"):
        make_solver("sdnet").matrix(SUBDOMAIN.interior)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_a_model_file_gives_the_same_solver_again(tmp_path, name):
    solver = make_solver(name)
    path = tmp_path / "model.h5"
    write_model(path, solver.card, extract_weights(solver.network))
    loaded = find_local_solver(str(path)).as_trained()
    g = perimeters(3)
    assert (loaded.name, loaded.linear, loaded.subdomain) == (str(path), solver.linear, SUBDOMAIN)
    assert torch.equal(*(solve(s, g, SUBDOMAIN.interior) for s in (solver, loaded)))


def test_weights_of_another_shape_or_name_are_refused(tmp_path):
    solver = make_solver("linear")
    weights = extract_weights(solver.network)
    with pytest.raises(ValueError, match=r"'branch' has the shape \(2, 3\)"):
        insert_weights(solver.network, {**weights, "branch": np.zeros((2, 3), np.float32)})
    del weights["branch"]
    write_model(tmp_path / "model.h5", solver.card, weights)
    with pytest.raises(ValueError, match=r"model\.h5.*branch missing or unknown"):
        find_local_solver(str(tmp_path / "model.h5")).as_trained()


def test_a_card_for_an_unknown_network_or_pde_is_refused(tmp_path):
    path = str(tmp_path / "model.h5")
    for changes, message in (
        ({"network": "nothing"}, "unknown network 'nothing'"),
        ({"pde": "nothing"}, "unknown pde 'nothing'"),
    ):
        fields = {**vars(make_solver("linear").card), **changes}
        write_model(path, ModelCard(**fields), {})
        with pytest.raises(ValueError, match=message):
            find_local_solver(path).as_trained()


def test_a_model_serves_every_problem_with_its_operator_and_no_other():
    model = find_local_solver("laplace")
    source = Problem((64, 64), "poisson", {"f": 1.0})
    assert model.bind(source, source.domain.grid()).source is not None
    finer = Domain((64, 64), spacing=0.001)  # the equation is free of scales
    assert model.bind(Problem(finer, "laplace"), finer.grid()).subdomain.spacing == 0.001
    other = Problem((64, 64), "screened-poisson", {"c": 2.0})
    with pytest.raises(ValueError, match="a model for laplace, it does not solve screened-poisson"):
        model.bind(other, other.domain.grid())


def test_a_name_that_is_no_model_lists_the_shipped_ones():
    with pytest.raises(FileNotFoundError, match="shipped"):
        model_path("no-such-model")
