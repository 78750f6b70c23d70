"""The discrete residual: zero for discrete solutions, the stencil's for all else."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.lifting import unit_points
from mosaicdd.training.losses import GridResidual

SUBDOMAIN = Subdomain(cells=8, size=0.125)
LIKE = torch.zeros(1, dtype=torch.float64)


class Exact(torch.nn.Module):
    """The discrete solution at grid nodes."""

    def __init__(self):
        super().__init__()
        operator = ExactSolver(LAPLACE.at(), SUBDOMAIN).matrix
        self.operator = torch.as_tensor(operator)

    def forward(self, g, points):
        y, x = ((points + 1) * 4).round().long().T
        return g @ self.operator[y, x].T


def residual(nodes=9, multilevel=False):
    return GridResidual(LAPLACE.at(), SUBDOMAIN, nodes, multilevel, LIKE)


@pytest.mark.parametrize(("nodes", "width"), [(0, 7), (9, 3), (15, 3), (1000, 7)])
def test_the_discrete_solution_has_no_residual_in_any_window(nodes, width):
    g = torch.as_tensor(np.random.default_rng(0).standard_normal((3, 32)))
    rule = residual(nodes)
    for seed in range(5):
        corner = rule.draw(torch.Generator().manual_seed(seed))
        values = rule.residual(Exact(), g, corner)
        assert values.shape == (3, width, width)
        assert values.abs().max() < 1e-11  # eps times 4 values of order 3, times (m / 2)**2 = 16


def test_the_residual_of_a_parabola_is_its_second_derivative():
    def parabola(g, points):
        return (points[:, 0] ** 2 + 2 * points[:, 1] ** 2).expand(len(g), -1)

    edge = torch.as_tensor(unit_points(SUBDOMAIN.perimeter, SUBDOMAIN))
    g = (edge[:, 0] ** 2 + 2 * edge[:, 1] ** 2)[None]
    rule = residual()
    for corner in ((0, 0), (2, 4), (4, 4)):  # at the edge, and away from it
        # The stencil has the sign of the positive definite matrix: minus 2 + 4.
        torch.testing.assert_close(
            rule.residual(parabola, g, corner), torch.full((1, 3, 3), -6.0, dtype=torch.float64)
        )


def test_windows_reach_all_nodes():
    rule = residual()
    corners = {rule.draw(torch.Generator().manual_seed(seed)) for seed in range(300)}
    assert corners == {(y, x) for y in range(5) for x in range(5)}


def test_the_multilevel_loss_weighs_errors_of_all_lengths_alike():
    def error_of(waves):
        def wave(g, points):
            y, x = 0.5 * np.pi * waves * (points.T + 1)
            return (torch.sin(y) * torch.sin(x)).expand(len(g), -1)

        return wave

    g = torch.zeros(1, 32, dtype=torch.float64)
    plain, all_grids = residual(0), residual(multilevel=True)
    losses = [
        [rule.loss(error_of(waves), g, (0, 0)).item() for waves in (1, 2, 4, 7)]
        for rule in (plain, all_grids)
    ]
    # An eigenvalue of the stencil is 8 sin^2(pi k / 16): squared, 600 times from k = 1 to 7.
    assert max(losses[0]) / min(losses[0]) > 500
    assert max(losses[1]) / min(losses[1]) < 20
