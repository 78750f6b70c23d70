"""Products by parities give what the whole operator gives, and are used where it has them."""

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.local_solvers.exact import (
    ExactSolver,
    LinearPlan,
    ParityPlan,
    keeps_reflections,
    linear_plan,
)

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


def operator_of(subdomain, points):
    return ExactSolver(EllipticOperator(c=2.0), subdomain).matrix[tuple(points.T)]


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("name", ["centre_lines", "interior"])
@pytest.mark.parametrize("cells", [2, 4, 6])
def test_products_by_parities_are_those_of_the_operator(axes, name, cells):
    subdomain = Subdomain(cells, 0.5, axes)
    points = getattr(subdomain, name)
    operator = operator_of(subdomain, points)
    plan = ParityPlan(operator, points, subdomain, dtype=torch.float64)
    for count in (1, plan.chunk, plan.chunk + 3):
        g = torch.from_numpy(np.random.default_rng(0).normal(size=(count, operator.shape[1])))
        out = torch.full((count, len(points)), torch.nan, dtype=torch.float64)
        plan(g, out)
        np.testing.assert_allclose(out, g.numpy() @ operator.T, rtol=0, atol=1e-14 * 20)


def test_an_operator_of_a_cube_without_the_symmetry_is_applied_as_it_is():
    subdomain = Subdomain(4, 0.5, 3)
    points = subdomain.centre_lines
    operator = operator_of(subdomain, points).copy()
    assert isinstance(linear_plan(operator, points, subdomain, **KIND), ParityPlan)
    operator[3, 5] += 1e-9
    assert not keeps_reflections(operator, points, subdomain)
    assert isinstance(linear_plan(operator, points, subdomain, **KIND), LinearPlan)
    some = points[1:]  # whose images are not all among them
    assert not keeps_reflections(operator_of(subdomain, some), some, subdomain)
