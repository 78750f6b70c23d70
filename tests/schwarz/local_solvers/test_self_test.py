"""The self-test tells solvers from networks that are none."""

import math

import pytest
import torch

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.loading import find_local_solver
from mosaicdd.schwarz.local_solvers.network_solver import self_test_error


def changed(name, change):
    """Return a shipped model with its weights changed."""
    solver = find_local_solver(name).as_trained()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in solver.network.parameters():
            weights.copy_(change(weights, torch.randn(weights.shape, generator=generator)))
    return solver


def test_the_exact_local_solver_has_no_error():
    assert self_test_error(ExactSolver(LAPLACE.at(), Subdomain(8))) == 0


# The white-noise errors of data/README.md, 2.1e-5 and 2.5e-3 of data of size 1, whose solutions
# are of size 0.16 on the centre lines.
@pytest.mark.parametrize(
    ("name", "error"), [("laplace", 2e-4), ("laplace-cubes", 1e-4), ("laplace-sdnet", 3e-2)]
)
def test_shipped_models_pass_with_the_error_of_their_cards(name, error):
    solver = find_local_solver(name).as_trained()
    solver.require_sound()
    assert self_test_error(solver) <= error


@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
@pytest.mark.parametrize("size", [0.0, 0.1, torch.nan])
def test_networks_that_have_learned_nothing_are_refused(name, size):
    solver = changed(name, lambda weights, noise: size * noise)
    words = "answers NaN in its self-test" if math.isnan(size) else "ask for a certified answer"
    with pytest.raises(ValueError, match=words):
        solver.require_sound()
