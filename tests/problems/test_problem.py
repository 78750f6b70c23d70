"""Problems as values: what they take, what they say of what they do not take."""

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.problems.sides.boundary import Boundary

GRID = m.Domain((32, 48), 1 / 64).grid()


def wave(x, y):
    """Return something smooth that differs along both axes."""
    return np.sin(3 * x) + y


@pytest.mark.parametrize(
    "values",
    [wave, "sin(3*x) + y", "expr:sin(3*x) + y"],
    ids=["function", "expression", "prefixed expression"],
)
def test_sides_take_functions_and_expressions_alike(values):
    (found,) = m.Problem(GRID.shape, "laplace", sides=m.Dirichlet(values)).boundaries(GRID)
    x, y = np.arange(49) / 64, np.arange(33) / 64
    np.testing.assert_allclose(found.named["bottom"], wave(x, 0.0), rtol=1e-15)
    np.testing.assert_allclose(found.named["right"], wave(x[-1], y), rtol=1e-15)


@pytest.mark.parametrize("kind", [list, np.asarray, torch.DoubleTensor])
def test_sides_take_arrays_and_those_not_named_are_zero(kind):
    values = np.linspace(1.0, 2.0, 49)
    problem = m.Problem(GRID.shape, "laplace", sides={"top": m.Dirichlet(kind(values.tolist()))})
    (found,) = problem.boundaries(GRID)
    np.testing.assert_array_equal(found.named["top"][1:-1], values[1:-1])
    assert not found.named["bottom"].any()
    # Common corners have the mean of 1 and 0, of 2 and 0.
    assert (found.named["top"][0], found.named["left"][-1], found.named["right"][-1]) == (
        0.5,
        0.5,
        1.0,
    )


def test_arrays_of_several_problems_make_several_problems():
    left = np.random.default_rng(0).standard_normal((5, 33))
    f = np.random.default_rng(1).standard_normal((5, 33, 49))
    problem = m.Problem(GRID.shape, "poisson", {"f": f}, {"left": m.Dirichlet(left)})
    assert problem.problems == 5
    boundaries = problem.boundaries(GRID)
    np.testing.assert_array_equal([b.named["left"][1:-1] for b in boundaries], left[:, 1:-1])
    part = slice(3, 7), slice(2, 40)
    np.testing.assert_array_equal(problem.source_at(GRID, part), f[:, *part])
    with pytest.raises(ValueError, match="is of 4 problems, others are of 5"):
        m.Problem(GRID.shape, "poisson", {"f": f}, {"left": m.Dirichlet(left[:4])})


def test_boundary_values_of_all_edges_are_taken_as_they_are():
    data = [Boundary.of_gaussian_process(GRID, seed=seed) for seed in range(3)]
    assert m.Problem(GRID.shape, "laplace", sides=data).boundaries(GRID) == data
    assert m.Problem(GRID.shape, "laplace", sides=data[0]).boundaries(GRID) == data[:1]


def test_only_the_part_of_a_source_that_is_asked_for_is_read():
    class OnDisk:
        shape = GRID.nodes
        read = 0

        def __getitem__(self, place):
            part = np.ones(GRID.nodes)[place]
            OnDisk.read += part.size
            return part

    problem = m.Problem(GRID.shape, "poisson", {"f": OnDisk()})
    assert problem.source_at(GRID, (slice(3, 5), slice(0, 7))).shape == (1, 2, 7)
    assert OnDisk.read == 14


def test_a_zero_source_is_none():
    assert m.Problem(GRID.shape, "poisson").source is None
    assert m.Problem(GRID.shape, "poisson", {"f": 0.0}).source is None


def test_other_data_leave_the_problem_that_they_were_made_from():
    problem = m.Problem(GRID.shape, "screened-poisson", {"c": 2.0, "f": 1.0})
    other = problem.with_fields(f=3.0)
    assert (problem.fields["f"], other.fields["f"]) == (1.0, 3.0)
    assert other.operator is problem.operator  # nothing else is made anew
    moved = problem.with_sides(m.Dirichlet(4.0))
    assert moved.boundaries(GRID)[0].named["left"][0] == 4.0


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_of_another_source_coefficients_are_as_they_are_now(kind):
    """What a field holds a copy of is read anew."""
    a = kind(np.ones((33, 49)).tolist())
    problem = m.Problem((32, 48), "diffusion", {"a": a})
    a[3][4] = 7.0
    operator = problem.with_fields(f=1.0).operator
    assert (
        operator.fields["a"].sample(m.Domain((32, 48), 0.5).grid(), (slice(3, 4), slice(4, 5)))
        == 7.0
    )


FADING = m.Equation("fading", "-lap u + k u = f", lambda k: m.EllipticOperator(c=k), {"k": 1.0})


def test_fields_without_names_are_refused():
    with pytest.raises(TypeError, match=r"fields must be given by their names, as .*, got list"):
        m.Problem(GRID.shape, "poisson", [1.0])


@pytest.mark.parametrize(
    ("pde", "fields", "message"),
    [
        ("poisson", {"k": 1.0}, "poisson has no field 'k'; it has: f"),
        ("laplace", {"f": 1.0}, "laplace has no field 'f'; it has: none"),
        (FADING, {"k": np.ones((33, 49))}, "must be one number for the whole domain"),
        ("screened-poisson", {"c": -1.0}, "needs c >= 0, got -1"),
        ("screened-poisson", {"c": np.nan}, "c"),
        ("anisotropic-diffusion", {"axx": 1.0, "ayy": 1.0, "axy": 1.0}, "positive definite"),
        ("anisotropic-diffusion", {"axx": -1.0}, "positive definite"),
        (
            "diffusion",
            {"a": 1e-320},
            "diffusion must be at least 2.23e-308, below which float64 loses",
        ),
        ("advection-diffusion", {"bx": np.inf}, "bx must be finite"),
        ("poisson", {"f": np.ones((33, 48))}, r"shape \(33, 48\), the grid has \(33, 49\) nodes"),
        ("wave", {}, r"unknown pde 'wave'.*; known: .*laplace"),
    ],
)
def test_fields_that_do_not_fit_are_refused_in_one_sentence(pde, fields, message):
    with pytest.raises(ValueError, match=message) as refused:
        m.Problem(GRID.shape, pde, fields)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sides", "kind", "message"),
    [
        ({"front": m.Dirichlet(0.0)}, ValueError, "unknown side 'front'; known: left, right"),
        ({"left": 3.0}, TypeError, "the side left must be Dirichlet, Neumann, Robin or Periodic"),
        ({"left": m.Periodic()}, ValueError, "left is periodic, the side right is not"),
        (
            {"left": m.Periodic(), "right": m.Periodic(), "left[0:0.2]": m.Neumann()},
            ValueError,
            "left is periodic, so nothing else holds on left.0:0.2.",
        ),
        (
            {"left[0:0.2]": m.Periodic()},
            ValueError,
            "left.0:0.2. is periodic: a side is so as a whole",
        ),
        ({"left[1:0]": m.Neumann()}, ValueError, "from a number to a larger one"),
        (
            {"left[0:0.3]": m.Neumann(), "left[0.2:0.5]": m.Robin(1.0)},
            ValueError,
            r"left.0:0.3. and left.0.2:0.5. overlap; give every part once",
        ),
        ([], TypeError, "sides must be"),
    ],
)
def test_sides_that_do_not_fit_are_refused_in_one_sentence(sides, kind, message):
    with pytest.raises(kind, match=message):
        m.Problem(GRID.shape, "laplace", sides=sides)


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
    problem = m.Problem(GRID.shape, "laplace", sides={"left": m.Dirichlet(values)})
    with pytest.raises(ValueError, match=message):
        problem.boundaries(GRID)


def test_a_source_that_is_not_finite_is_refused_with_its_place():
    f = np.zeros(GRID.nodes)
    f[4, 6] = np.inf
    problem = m.Problem(GRID.shape, "poisson", {"f": f})
    with pytest.raises(ValueError, match=r"the field f has 1 of 1617 values .* node \(4, 6\)"):
        problem.source_at(GRID, (slice(2, 7), slice(5, 7)))


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ((32,), r"\(ny, nx\), or \(nz, ny, nx\)"),
        ((0, 4), "at least 1 cell"),
        ((1,) * 4, "nz, ny, nx"),
    ],
)
def test_a_domain_that_is_none_is_refused(domain, message):
    with pytest.raises(ValueError, match=message):
        m.Domain(domain)


@pytest.mark.parametrize(
    "one",
    [
        3,
        3.0,
        np.float32(3),
        np.array(3.0),
        torch.tensor(3.0),
    ],
)
def test_numbers_of_any_library_are_numbers(one):
    problem = m.Problem(GRID.shape, "screened-poisson", {"c": one, "f": one}, m.Dirichlet(one))
    assert problem.operator.c == 3.0
    assert problem.source.number == 3.0
    assert problem.boundaries(GRID)[0].named["top"][5] == 3.0


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f[::-1].copy()[::-1],
        lambda f: np.asfortranarray(f),
        lambda f: f.tolist(),
    ],
)
def test_arrays_of_any_order_and_kind_are_sampled_alike(change):
    f = np.random.default_rng(0).standard_normal(GRID.nodes)
    part = slice(1, 9), slice(3, 30)
    sampled = m.Problem(GRID.shape, "poisson", {"f": change(f)}).source_at(GRID, part)
    np.testing.assert_array_equal(sampled[0], f[part])
    assert torch.from_numpy(sampled).shape == (1, 8, 27)


def test_read_only_arrays_are_taken_without_a_warning(recwarn):
    f = np.ones(GRID.nodes)
    f.flags.writeable = False
    torch.from_numpy(
        m.Problem(GRID.shape, "poisson", {"f": f}).source_at(GRID, (slice(3), slice(3)))
    )
    assert not recwarn.list


@pytest.mark.parametrize("values", [1j, np.full((33, 49), 1j), torch.full((33, 49), 1j)])
def test_complex_values_are_refused(values):
    with pytest.raises((ValueError, TypeError), match=r"the field f must be .*real"):
        m.Problem(GRID.shape, "poisson", {"f": values}).source_at(
            GRID, (slice(0, 33), slice(0, 49))
        )
    with pytest.raises((ValueError, TypeError), match="the side left must be"):
        m.Problem(GRID.shape, "laplace", sides={"left": m.Dirichlet(1j)}).boundaries(GRID)


def test_a_nested_list_on_a_side_makes_several_problems():
    problem = m.Problem(
        GRID.shape, "laplace", sides={"left": m.Dirichlet([[1.0] * 33, [2.0] * 33])}
    )
    assert problem.problems == 2
    assert [b.named["left"][7] for b in problem.boundaries(GRID)] == [1.0, 2.0]


@pytest.mark.parametrize("cells", [(64, 64.5), (True, 32), ("64", "64"), 64, "64x64"])
def test_cells_that_are_no_whole_numbers_are_refused(cells):
    with pytest.raises((ValueError, TypeError), match=r"cells \(ny, nx\), or \(nz, ny, nx\), got"):
        m.Problem(cells, "laplace")


def test_a_field_that_is_nothing_is_refused_by_its_name():
    with pytest.raises(TypeError, match="the field f must be a real number"):
        m.Problem(GRID.shape, "poisson", {"f": None})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda x, y: None, "is a function that returns None; it must return values"),
        (lambda x: x, r"must be a function of \(x, y\), this one takes \(x\)$"),
        (
            lambda x, y, t: x + t,
            r"this one takes \(x, y, t\); what depends on the time t is for steps",
        ),
    ],
)
def test_what_a_function_must_be_is_said_with_the_name_of_what_it_is_for(values, message):
    part = slice(0, 33), slice(0, 49)
    problem = m.Problem(GRID.shape, "diffusion", {"a": values}, m.Dirichlet(values))
    with pytest.raises((TypeError, ValueError), match=f"^the field a .*{message}"):
        problem.operator.conductances(GRID, part)
    with pytest.raises((TypeError, ValueError), match=f"^the side left .*{message}"):
        problem.boundaries(GRID)


@pytest.mark.parametrize(
    ("spacing", "error", "message"),
    [
        (bad, TypeError, r"spacing must be one number, or one for each axis, \(dy, dx\), got")
        for bad in ((25.0, 10.0, 1.0), "1", [1.0], {"x": "a", "y": 1.0})
    ]
    + [
        (bad, ValueError, "the grid spacing must be positive and finite, got")
        for bad in (
            0.0,
            -1.0,
            np.inf,
            np.nan,
            1e200,
            1e-200,
            (1.0, 0.0),
            (-1.0, 1.0),
            (np.nan, 1.0),
        )
    ],
)
def test_a_spacing_is_one_positive_number_or_one_for_each_axis(spacing, error, message):
    with pytest.raises(error, match=message):
        m.Domain((64, 64), spacing)
