"""The network for a family of operators: one matrix per operator, with the operator's symmetries."""

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator
from mosaicdd.networks.registry import (
    FamilyNetwork,
    FamilySettings,
    MatrixNetwork,
    coordinates,
    interior_images,
    invariants,
)
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import tensor
from mosaicdd.schwarz.local_solvers.exact import ExactSolver

SUBDOMAIN = Subdomain(8, 0.125)
OPERATORS = {
    "laplace": EllipticOperator(),
    "screened": EllipticOperator(c=30.0),
    "tensor": EllipticOperator(**tensor(20.0, 1.9)),
    "along x": EllipticOperator(axx=5.0),
    "flow": EllipticOperator(bx=-30.0, by=11.0),
    "all": EllipticOperator(**tensor(3.0, 0.4), bx=2.0, by=-7.0, c=5.0),
}
OPERATOR = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    network = FamilyNetwork(32, FamilySettings(modes=3, width=20, hidden=8, depth=2)).double()
    for weights in (network.trunk, network.branches):
        weights.normal_()
    return network


def exact_rows(operator):
    matrix = ExactSolver(operator, SUBDOMAIN).matrix
    return torch.as_tensor(np.array(matrix[1:-1, 1:-1].reshape(49, 32)))


def turned(operator, element, square):
    """Return the operator in coordinates that a symmetry of the square has turned."""
    r = square.matrices[element].double().numpy()
    diffusion = r @ [[operator.ayy, operator.axy], [operator.axy, operator.axx]] @ r.T
    by, bx = r @ [operator.by, operator.bx]
    return EllipticOperator(
        *(diffusion[0, 0], diffusion[1, 1], diffusion[0, 1]), by=by, bx=bx, c=operator.c
    )


def test_coordinates_have_no_units():
    operator = EllipticOperator(**tensor(20.0, 0.3), bx=4.0, by=1.0, c=9.0)
    other = EllipticOperator(
        # Three times the operator, in units of length twice as long.
        **{name: 3 * value for name, value in tensor(20.0, 0.3).items()},
        bx=3 * 4.0 * 2,
        by=3 * 1.0 * 2,
        c=3 * 9.0 * 4,
    )
    np.testing.assert_allclose(coordinates(operator, 0.5), coordinates(other, 0.25), rtol=1e-12)


def test_what_limits_a_family_is_the_same_for_all_images():
    operator = EllipticOperator(**tensor(40.0, 2.2))
    assert invariants(operator, SUBDOMAIN)[
        "the ratio of the tensor's eigenvalues"
    ] == pytest.approx(40.0)
    flow = invariants(EllipticOperator(bx=-3.0, by=4.0, c=7.0), Subdomain(32, 0.5))
    assert flow["the cell Peclet number"] == pytest.approx(5 / 64)
    assert flow["c"] == pytest.approx(7.0)


@OPERATOR
@pytest.mark.parametrize("element", range(8))
def test_the_exact_solver_and_the_network_turn_with_their_operator(operator, element, network):
    nodes = interior_images(network.square, 8)[element]
    perimeter = network.square.images[element]
    other = turned(operator, element, network.square)
    for rows_of in (
        exact_rows,
        lambda one: network.at(one, SUBDOMAIN).operator[1:-1, 1:-1].reshape(49, 32),
    ):
        rows = rows_of(other)[nodes][:, perimeter]
        # Rounding, of a matrix of order 1 by a factorisation or by 20 products.
        torch.testing.assert_close(rows, rows_of(operator), rtol=0, atol=1e-10)


def test_at_nodes_the_network_is_its_rows_and_between_them_it_is_exact_for_cubics():
    y, x = torch.meshgrid(torch.arange(9.0), torch.arange(9.0), indexing="ij")
    cubic = ((y - 3) ** 3 + y * x**2 - x**3).double()
    edge = torch.as_tensor(SUBDOMAIN.perimeter)
    g = cubic[edge[:, 0], edge[:, 1]][None]
    # A matrix that gives the cubic for its own perimeter values.
    rows = cubic[1:-1, 1:-1].reshape(-1, 1) * g / g.square().sum()
    network = MatrixNetwork(rows, 8)
    cells = 8 * torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cells[:2] = torch.tensor([[0.0, 8.0], [8.0, 3.3]])
    y, x = cells.T
    expected = (y - 3) ** 3 + y * x**2 - x**3
    torch.testing.assert_close(network(g, cells / 4 - 1)[0], expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(network(g, (cells / 4 - 1)[None])[0], expected, rtol=0, atol=1e-10)
    at_nodes = network.prepare(torch.as_tensor(SUBDOMAIN.interior) / 4.0 - 1)
    assert torch.equal(at_nodes, rows)


@pytest.mark.parametrize("setting", ["modes", "width", "hidden", "depth"])
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ValueError, match="at least 1"):
        FamilySettings(**{setting: 0})
