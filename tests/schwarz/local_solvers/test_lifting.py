"""The lifting takes exact solutions out of the perimeter and puts them back."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.lifting import Lifting, unit_points

SUBDOMAIN = Subdomain(cells=16)
EPS = np.finfo(float).eps


def random_perimeters(count, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((count, 64)))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_exact_solutions_leave_no_remainder_and_come_back(degree):
    lifting = Lifting(LAPLACE.at(), SUBDOMAIN, degree)
    g = torch.as_tensor(lifting.basis(SUBDOMAIN.perimeter).T.copy())  # (J, P), at most 2**(3/2)
    remainder, coefficients = lifting.remove(g)
    # Sums over 64 nodes with a well-conditioned fit: 64 roundings of values up to 3.
    assert remainder.abs().max() < 200 * EPS
    inside = coefficients @ lifting.basis_tensor(SUBDOMAIN.interior)
    np.testing.assert_allclose(inside.T, lifting.basis(SUBDOMAIN.interior), atol=200 * EPS)


def test_split_and_join_are_inverse_on_the_seen_perimeter():
    lifting = Lifting(LAPLACE.at(), SUBDOMAIN)
    g = 5.0 * random_perimeters(7)
    remainder, scale, coefficients = lifting.split(g)
    back = lifting.join(remainder, scale, coefficients, lifting.basis_tensor(SUBDOMAIN.perimeter))
    seen = np.delete(np.arange(64), lifting.unseen)
    np.testing.assert_allclose(back[:, seen], g[:, seen], atol=100 * EPS * 20)


def test_the_remainder_has_unit_size():
    remainder, _, _ = Lifting(LAPLACE.at(), SUBDOMAIN).split(1e-3 * random_perimeters(5))
    np.testing.assert_allclose(remainder.square().mean(dim=1), 1.0, rtol=64 * EPS)


def test_zero_perimeters_stay_zero_and_finite():
    parts = Lifting(LAPLACE.at(), SUBDOMAIN).split(torch.zeros(3, 64, dtype=torch.float64))
    assert [part.abs().max().item() for part in parts] == [0.0, 1.0, 0.0]


def test_corners_that_the_stencil_never_reads_change_nothing():
    lifting = Lifting(LAPLACE.at(), SUBDOMAIN)
    g = random_perimeters(4)
    changed = g.clone()
    changed[:, [0, 16, 32, 48]] += 10.0
    for part, same in zip(lifting.split(g), lifting.split(changed), strict=True):
        assert torch.equal(part, same)


def test_points_are_scaled_to_the_square_of_half_side_one():
    corners = unit_points(np.array([[0, 0], [8, 16]]), SUBDOMAIN)
    assert corners.tolist() == [[-1.0, -1.0], [0.0, 1.0]]


@pytest.mark.parametrize("degree", [-1, 200])
def test_an_impossible_degree_is_refused(degree):
    with pytest.raises(ValueError, match="lifting"):
        Lifting(LAPLACE.at(), SUBDOMAIN, degree)


def test_without_a_lifting_a_network_gets_the_perimeter_as_it_is():
    lifting = Lifting(LAPLACE.at(), SUBDOMAIN, None)
    g = 5.0 * random_perimeters(3)
    remainder, scale, coefficients = lifting.split(g)
    assert torch.equal(remainder, g)
    assert (coefficients.shape, scale.unique().tolist()) == ((3, 0), [1.0])
    basis = lifting.basis_tensor(SUBDOMAIN.perimeter)
    assert torch.equal(lifting.join(remainder, scale, coefficients, basis), g)
    operator = np.random.default_rng(1).standard_normal((5, 64))
    np.testing.assert_array_equal(lifting.compile(operator, SUBDOMAIN.interior[:5]), operator)


def test_of_a_cube_the_edges_change_nothing_and_get_the_mean_beside_them():
    cube = Subdomain(6, axes=3)
    lifting, around = Lifting(LAPLACE.at(), cube), cube.perimeter
    g = torch.as_tensor(np.random.default_rng(0).standard_normal((2, len(around))))
    on_edges = ((around == 0) | (around == 6)).sum(axis=1) > 1
    np.testing.assert_array_equal(np.flatnonzero(on_edges), lifting.unseen)
    changed = g + 10.0 * torch.as_tensor(on_edges)
    remainder, _ = lifting.remove(g)
    assert torch.equal(remainder, lifting.remove(changed)[0])
    number = {tuple(node): i for i, node in enumerate(around.tolist())}
    means = {(0, 2, 6): ((0, 2, 5), (1, 2, 6)), (6, 0, 6): ((6, 1, 5), (5, 0, 5), (5, 1, 6))}
    for node, beside in means.items():
        expected = remainder[:, [number[place] for place in beside]].mean(dim=1)
        np.testing.assert_allclose(remainder[:, number[node]], expected, rtol=1e-14)


def test_harmonic_polynomials_of_a_cube_leave_no_remainder():
    cube = Subdomain(6, axes=3)
    lifting = Lifting(LAPLACE.at(), cube)
    g = torch.as_tensor(lifting.basis(cube.perimeter).T.copy())
    assert len(g) == 9
    remainder, coefficients = lifting.remove(g)
    assert remainder.abs().max() < 1e-12
    inside = coefficients @ lifting.basis_tensor(cube.interior)
    np.testing.assert_allclose(inside.T, lifting.basis(cube.interior), atol=1e-12)
