"""Problems as values: what they take, what they say of what they do not take."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.conditions import Dirichlet, Neumann, Periodic, Robin
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem

GRID = Grid((32, 48), 1 / 64)


def wave(x, y):
    """Return something smooth that differs along both axes."""
    return np.sin(3 * x) + y


@pytest.mark.parametrize(
    "values",
    [wave, "sin(3*x) + y", "expr:sin(3*x) + y"],
    ids=["function", "expression", "prefixed expression"],
)
def test_sides_take_functions_and_expressions_alike(values):
    (found,) = Problem(GRID.shape, "laplace", sides=Dirichlet(values)).boundaries(GRID)
    x, y = np.arange(49) / 64, np.arange(33) / 64
    np.testing.assert_allclose(found.bottom, wave(x, 0.0), rtol=1e-15)
    np.testing.assert_allclose(found.right, wave(x[-1], y), rtol=1e-15)


@pytest.mark.parametrize("kind", [list, np.asarray, torch.DoubleTensor])
def test_sides_take_arrays_and_those_not_named_are_zero(kind):
    values = np.linspace(1.0, 2.0, 49)
    problem = Problem(GRID.shape, "laplace", sides={"top": Dirichlet(kind(values.tolist()))})
    (found,) = problem.boundaries(GRID)
    np.testing.assert_array_equal(found.top[1:-1], values[1:-1])
    assert not found.bottom.any()
    # Common corners have the mean of 1 and 0, of 2 and 0.
    assert (found.top[0], found.left[-1], found.right[-1]) == (0.5, 0.5, 1.0)


def test_arrays_of_several_problems_make_several_problems():
    left = np.random.default_rng(0).standard_normal((5, 33))
    f = np.random.default_rng(1).standard_normal((5, 33, 49))
    problem = Problem(GRID.shape, "poisson", {"f": f}, {"left": Dirichlet(left)})
    assert problem.problems == 5
    boundaries = problem.boundaries(GRID)
    np.testing.assert_array_equal([b.left[1:-1] for b in boundaries], left[:, 1:-1])
    part = slice(3, 7), slice(2, 40)
    np.testing.assert_array_equal(problem.source_at(GRID, part), f[:, *part])
    with pytest.raises(ValueError, match="is of 4 problems, others are of 5"):
        Problem(GRID.shape, "poisson", {"f": f}, {"left": Dirichlet(left[:4])})


def test_boundary_values_of_all_edges_are_taken_as_they_are():
    data = [Boundary.of_gaussian_process(GRID, seed=seed) for seed in range(3)]
    assert Problem(GRID.shape, "laplace", sides=data).boundaries(GRID) == data
    assert Problem(GRID.shape, "laplace", sides=data[0]).boundaries(GRID) == data[:1]


def test_only_the_part_of_a_source_that_is_asked_for_is_read():
    class OnDisk:
        shape = GRID.nodes
        read = 0

        def __getitem__(self, place):
            part = np.ones(GRID.nodes)[place]
            OnDisk.read += part.size
            return part

    problem = Problem(GRID.shape, "poisson", {"f": OnDisk()})
    assert problem.source_at(GRID, (slice(3, 5), slice(0, 7))).shape == (1, 2, 7)
    assert OnDisk.read == 14


def test_a_zero_source_is_none():
    assert Problem(GRID.shape, "poisson").source is None
    assert Problem(GRID.shape, "poisson", {"f": 0.0}).source is None


def test_other_data_leave_the_problem_that_they_were_made_from():
    problem = Problem(GRID.shape, "screened-poisson", {"c": 2.0, "f": 1.0})
    other = problem.with_fields(f=3.0)
    assert (problem.fields["f"], other.fields["f"]) == (1.0, 3.0)
    assert other.operator == problem.operator
    moved = problem.with_sides(Dirichlet(4.0))
    assert moved.boundaries(GRID)[0].left[0] == 4.0


@pytest.mark.parametrize(
    ("pde", "fields", "message"),
    [
        ("poisson", {"k": 1.0}, "poisson has no field 'k'; it has: f"),
        ("laplace", {"f": 1.0}, "laplace has no field 'f'; it has: none"),
        ("screened-poisson", {"c": np.ones((33, 49))}, "must be one number for the whole domain"),
        ("screened-poisson", {"c": -1.0}, "needs c >= 0, got -1"),
        ("screened-poisson", {"c": np.nan}, "c"),
        ("anisotropic-diffusion", {"axx": 1.0, "ayy": 1.0, "axy": 1.0}, "positive definite"),
        ("anisotropic-diffusion", {"axx": -1.0}, "positive definite"),
        ("advection-diffusion", {"bx": np.inf}, "bx must be finite"),
        ("poisson", {"f": np.ones((33, 48))}, r"shape \(33, 48\), the grid has \(33, 49\) nodes"),
        ("wave", {}, "unknown pde 'wave'"),
    ],
)
def test_fields_that_do_not_fit_are_refused_in_one_sentence(pde, fields, message):
    with pytest.raises(ValueError, match=message) as refused:
        Problem(GRID.shape, pde, fields)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sides", "kind", "message"),
    [
        ({"front": Dirichlet(0.0)}, ValueError, "unknown side 'front'; known: left, right"),
        ({"left": 3.0}, TypeError, "the side left must be Dirichlet, Neumann, Robin or Periodic"),
        ({"left": Neumann(0.0)}, NotImplementedError, "Neumann.* not solved yet"),
        (Robin(1.0, 0.0), NotImplementedError, "Robin.* not solved yet"),
        (Periodic(), NotImplementedError, "Periodic.* not solved yet"),
        ([], TypeError, "sides must be"),
    ],
)
def test_sides_that_do_not_fit_are_refused_in_one_sentence(sides, kind, message):
    with pytest.raises(kind, match=message):
        Problem(GRID.shape, "laplace", sides=sides)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(7), "has values of the shape .7,., it has 33 nodes"),
        (np.full(33, np.nan), "33 of 33 values that are not finite, the first at node 0"),
        ("1/x", "not finite"),
        ("import os", "cannot read the expression"),
    ],
)
def test_values_on_a_side_that_do_not_fit_are_refused_in_one_sentence(values, message):
    problem = Problem(GRID.shape, "laplace", sides={"left": Dirichlet(values)})
    with pytest.raises(ValueError, match=message):
        problem.boundaries(GRID)


def test_a_source_that_is_not_finite_is_refused_with_its_place():
    f = np.zeros(GRID.nodes)
    f[4, 6] = np.inf
    problem = Problem(GRID.shape, "poisson", {"f": f})
    with pytest.raises(ValueError, match=r"the field f has 1 of 10 values .* node \(0, 4, 6\)"):
        problem.source_at(GRID, (slice(2, 7), slice(5, 7)))


@pytest.mark.parametrize(
    ("domain", "message"),
    [((32,), "two axes"), ((0, 4), "at least 1 cell"), ((1, 2, 3), "two axes")],
)
def test_a_domain_that_is_none_is_refused(domain, message):
    with pytest.raises(ValueError, match=message):
        Domain(domain)
    with pytest.raises(ValueError, match="spacing must be positive"):
        Domain((4, 4), spacing=0.0)
