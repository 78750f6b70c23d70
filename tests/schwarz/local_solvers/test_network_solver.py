"""Networks as local solvers: under the lifting, at nodes and points, in precisions, in files, in their training range."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from mosaicdd import Domain, Problem, Unsupported
from mosaicdd.networks.network import extract_weights, insert_weights
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.fields.random_media import sample_closed_curve
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.lifting import Lifting
from mosaicdd.schwarz.local_solvers.loading import find_local_solver, model_path
from mosaicdd.schwarz.local_solvers.network_solver import (
    NetworkSolver,
    self_test_error,
)
from mosaicdd.storage.model_file import ModelCard, write_model

SUBDOMAIN, P = Subdomain(cells=8, size=0.25), 32
EPS = np.finfo(float).eps
SMALL = {
    "linear": {"width": 16, "depth": 1}, "sdnet": {"width": 16, "channels": 2}, "mlp": {"width": 16},
    "sdnet-concat": {"width": 16}, "deeponet": {"width": 16},
}  # fmt: skip
TWO = pytest.mark.parametrize("name", ["linear", "sdnet"])
EVERY = pytest.mark.parametrize("name", SMALL)
KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


def make_solver(name, degree=2):
    torch.manual_seed(0)
    network = build_network(name, SMALL[name], SUBDOMAIN)
    card = ModelCard("laplace", 8, 0.25, name, SMALL[name], degree, [-4.0, 4.0])
    return NetworkSolver(name, LAPLACE.at(), SUBDOMAIN, network, card)


def solve(solver, g, points, dtype=torch.float64):
    out = torch.full((len(g), len(points)), torch.nan, dtype=dtype)
    solver.plan(points, device=torch.device("cpu"), dtype=dtype)(g.to(dtype), out)
    return out


def perimeters(count, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((count, P)))


def harmonic(points):
    """Return harmonic polynomials of degree 2 at places in cells, ``(n, 5)``."""
    y, x = points.T - 4.0
    return np.stack([1.0 + 0 * x, x, y, x * y, x * x - y * y], axis=1)


@EVERY
def test_harmonic_polynomials_are_exact_at_nodes_and_at_any_point(name):
    solver, rng = make_solver(name), np.random.default_rng(0)
    g = torch.as_tensor(harmonic(SUBDOMAIN.perimeter).T.copy())
    # What is left is the network's answer to rounding noise, scaled back to its size, 30 at most.
    nodes = solve(solver, g, SUBDOMAIN.interior)
    np.testing.assert_allclose(nodes.T, harmonic(SUBDOMAIN.interior), rtol=0, atol=30 * 500 * EPS)
    points = rng.uniform(0, 8, (5, 2))
    values = solver.plan_points(**KIND)[0](g, points)
    np.testing.assert_allclose(values, np.diag(harmonic(points)), rtol=0, atol=30 * 500 * EPS)


@EVERY
def test_a_point_of_each_perimeter_has_what_the_plan_for_all_points_gives(name):
    solver, g = make_solver(name), perimeters(20)
    points = np.random.default_rng(0).uniform(0, 8, (20, 2))
    points[:8] = np.rint(points[:8])
    values = solver.plan_points(**KIND)[0](g, points)
    # Sums of 32 products in another order, through four layers at most.
    expected = solve(solver, g, points).diagonal()
    torch.testing.assert_close(values, expected, rtol=0, atol=500 * EPS)


@TWO
def test_multiples_of_a_perimeter_give_multiples_of_the_solution(name):
    solver, g = make_solver(name), perimeters(3)
    small, large, nothing = (solve(solver, c * g, SUBDOMAIN.centre_lines) for c in (1.0, 1e6, 0.0))
    torch.testing.assert_close(large, 1e6 * small, rtol=0, atol=1e6 * 1000 * EPS)
    assert nothing.isfinite().all()


@TWO
def test_corner_values_change_nothing(name):
    solver, g = make_solver(name), perimeters(3)
    changed = g.clone()
    changed[:, ::8] += 3.0
    first, second = (solve(solver, data, SUBDOMAIN.interior) for data in (g, changed))
    torch.testing.assert_close(first, second, rtol=0, atol=100 * EPS)


def test_chunks_do_not_change_the_values():
    plan = make_solver("sdnet").plan(SUBDOMAIN.interior, **KIND)
    g = perimeters(11)
    whole, parts = torch.empty(2, 11, 49, dtype=torch.float64)
    plan(g, whole)
    plan.chunk = 4  # 4 + 4 + 3
    plan(g, parts)
    torch.testing.assert_close(parts, whole, rtol=0, atol=500 * EPS)


@TWO
def test_single_precision_agrees_with_double_to_its_rounding(name):
    double, single = (
        solve(make_solver(name), perimeters(5), SUBDOMAIN.interior, dtype)
        for dtype in (torch.float64, torch.float32)
    )
    # 32 products per sum and a few layers, each to 2**-23.
    torch.testing.assert_close(single.double(), double, rtol=0, atol=500 * 2.0**-23)


def test_a_network_in_single_precision_leaves_the_lifting_in_double():
    solver = make_solver("sdnet")
    inside, g = solver.in_precision("float32"), perimeters(5)
    values, expected = (solve(one, g, SUBDOMAIN.interior) for one in (inside, solver))
    assert not torch.equal(values, expected)
    torch.testing.assert_close(values, expected, rtol=0, atol=500 * 2.0**-23)
    # What the lifting takes out never is in single precision: of 1e6 times as much nothing is lost.
    around, within = (
        torch.as_tensor(harmonic(p)[:, 1]) for p in (SUBDOMAIN.perimeter, SUBDOMAIN.interior)
    )
    more = solve(inside, g + 1e6 * around, SUBDOMAIN.interior) - 1e6 * within
    torch.testing.assert_close(more, values, rtol=0, atol=1e-6)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, None])
@pytest.mark.parametrize("subdomain", [Subdomain(16), Subdomain(6, axes=3)], ids=["square", "cube"])
def test_a_lifting_takes_exact_solutions_out_and_puts_them_back(subdomain, degree):
    lifting = Lifting(LAPLACE.at(), subdomain, degree)
    around, inside = (lifting.basis_tensor(p) for p in (subdomain.perimeter, subdomain.interior))
    noise = torch.as_tensor(np.random.default_rng(0).standard_normal((4, len(subdomain.perimeter))))
    g = torch.cat([around, noise])
    remainder, scale, coefficients = lifting.split(g)
    back = lifting.join(remainder, scale, coefficients, around)
    seen = np.delete(np.arange(g.shape[1]), lifting.unseen)
    torch.testing.assert_close(back[:, seen], g[:, seen], rtol=0, atol=1e-12)
    exact = len(g) - 4
    found = lifting.join(0 * inside[:exact], scale[:exact], coefficients[:exact], inside)
    torch.testing.assert_close(found, inside, rtol=0, atol=1e-12)
    if degree is not None:  # what is left of others has unit size
        np.testing.assert_allclose(remainder[exact:].square().mean(dim=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_a_model_file_gives_the_same_solver_again(tmp_path, name):
    solver, path, g = make_solver(name), tmp_path / "model.h5", perimeters(3)
    write_model(path, solver.card, extract_weights(solver.network))
    loaded = find_local_solver(str(path)).as_trained()
    assert (loaded.name, loaded.linear, loaded.subdomain) == (str(path), solver.linear, SUBDOMAIN)
    assert torch.equal(*(solve(s, g, SUBDOMAIN.interior) for s in (solver, loaded)))


def test_what_does_not_fit_is_refused(tmp_path):
    solver, path = make_solver("linear"), str(tmp_path / "model.h5")
    weights = extract_weights(solver.network)
    with pytest.raises(ValueError, match=r"'branch' has the shape \(2, 3\)"):
        insert_weights(solver.network, {**weights, "branch": np.zeros((2, 3), np.float32)})
    del weights["branch"]
    for changes, kept, message in (
        ({}, weights, r"model\.h5.*branch missing or unknown"),
        ({"network": "nothing"}, {}, "unknown network 'nothing'"),
        ({"pde": "nothing"}, {}, "unknown pde 'nothing'"),
    ):
        write_model(path, ModelCard(**{**vars(solver.card), **changes}), kept)
        with pytest.raises(ValueError, match=message):
            find_local_solver(path).as_trained()
    with pytest.raises(FileNotFoundError, match="shipped"):
        model_path("no-such-model")
    with pytest.raises(ValueError, match=r"within 0\.\.8 cells"):
        solve(solver, perimeters(1), np.array([[0.0, 8.5]]))
    with pytest.raises(Unsupported, match="no matrix"):
        make_solver("sdnet").matrix(SUBDOMAIN.interior)
    for degree in (-1, 200):
        with pytest.raises(ValueError, match="lifting"):
            Lifting(LAPLACE.at(), SUBDOMAIN, degree)


def test_a_model_serves_every_problem_with_its_operator_and_no_other():
    model = find_local_solver("laplace")
    source = Problem((64, 64), "poisson", {"f": 1.0})
    assert model.bind(source, source.domain.grid()).source is not None
    finer = Domain((64, 64), spacing=0.001)  # the equation is free of scales
    assert model.bind(Problem(finer, "laplace"), finer.grid()).subdomain.spacing == 0.001
    other = Problem((64, 64), "screened-poisson", {"c": 2.0})
    with pytest.raises(ValueError, match="a model for laplace, it does not solve screened-poisson"):
        model.bind(other, other.domain.grid())


# Self-tests: the white-noise errors of data/README.md, 2.1e-5 and 2.5e-3 of data of size 1, whose solutions
# are of size 0.16 on the centre lines.
@pytest.mark.parametrize(
    ("name", "error"), [("laplace", 2e-4), ("laplace-cubes", 1e-4), ("laplace-sdnet", 3e-2)]
)
def test_shipped_models_pass_with_the_error_of_their_cards(name, error):
    solver = find_local_solver(name).as_trained()
    solver.require_sound()
    assert self_test_error(solver) <= error
    assert self_test_error(ExactSolver(LAPLACE.at(), Subdomain(8))) == 0


@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
@pytest.mark.parametrize("size", [0.0, 0.1, torch.nan])
def test_networks_that_have_learned_nothing_are_refused(name, size):
    solver, generator = find_local_solver(name).as_trained(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in solver.network.parameters():
            weights.copy_(size * torch.randn(weights.shape, generator=generator))
    words = "answers NaN in its self-test" if math.isnan(size) else "ask for a certified answer"
    with pytest.raises(ValueError, match=words):
        solver.require_sound()


def curves(count, length, amplitude=1.0, noise=0.0, seed=0):
    """Return random perimeters of shipped models."""
    rng = np.random.default_rng(seed)
    rows = [sample_closed_curve(rng, 128, 2.0, length, amplitude, noise) for _ in range(count)]
    return torch.from_numpy(np.stack(rows))


ROUGH = curves(1000, 1.0, amplitude=0.0, noise=1.0)


@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
def test_training_data_are_in_the_range_that_shipped_cards_state_and_rougher_are_outside(name):
    solver = find_local_solver(name).as_trained()
    outside = solver.outside_range(**KIND)
    lengths = np.geomspace(*solver.card.hyperparameter_ranges["length_scale"], 2000)
    g = torch.cat([curves(1, length, noise=0.03, seed=i) for i, length in enumerate(lengths)])
    # 0.1 % of the training perimeters are above each of three limits; as many of 2000 others would
    # be 6 at most, and 20 is 5.7 standard deviations of that count away.
    assert outside(g).sum() <= 20
    assert outside(ROUGH).float().mean() >= 0.3
    # What the lifting describes is inside, whatever rounding leaves.
    assert not outside(torch.as_tensor(harmonic(Subdomain().perimeter).T.copy())).any()


def test_a_guarded_network_is_exact_outside_and_the_network_inside():
    network, square = find_local_solver("laplace-sdnet").as_trained(), Subdomain()
    g = torch.cat([curves(20, 0.3), ROUGH[:20]])
    outside = network.outside_range(**KIND)(g)
    assert 0 < outside.sum() < len(g)
    solvers = network.guarded(), network, ExactSolver(LAPLACE.at(), square)
    mixed, by_network, by_exact = (solve(one, g, square.centre_lines) for one in solvers)
    np.testing.assert_array_equal(mixed[~outside], by_network[~outside])
    # The same products in batches of another size.
    np.testing.assert_allclose(mixed[outside], by_exact[outside], rtol=0, atol=1e-14)
    card = dataclasses.replace(network.card, spectrum={})
    with pytest.raises(ValueError, match="states no range"):
        dataclasses.replace(network, card=card).guarded()
