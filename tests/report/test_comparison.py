"""Comparisons with references: the numbers, and how much is read for them."""

import h5py
import numpy as np
import pytest
import torch

from mosaicdd import read
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.report.comparison import compare, compare_all, reference_field
from mosaicdd.report.stored import read_all
from mosaicdd.storage import atomic
from mosaicdd.storage.solution_writer import writing_solutions

GRID = Grid((24, 32), 1 / 32)
Y, X = (np.arange(n) * GRID.spacing for n in GRID.nodes)
TRUTH = X**2 - Y[:, None] ** 2


@pytest.fixture
def store(tmp_path):
    """Return a function that stores fields ``(n, ny + 1, nx + 1)`` as solutions of n problems."""

    def write(fields, name="out.h5", window=None, pde="laplace", given=None):
        grid, boundaries = GRID, [Boundary.of_field(TRUTH) for _ in fields]
        place = (window or Window.whole(grid)).place
        with writing_solutions(
            tmp_path / name, grid, boundaries, "float64", window=window, fields=given
        ) as writer:
            for number, field in enumerate(fields):
                part = slice(number, number + 1), slice(None), slice(None)
                writer.write("solution", field[place][None], part)
            attributes = {"pde": pde, "seconds": {"iterate": 2.0, "assemble": 0.5}}
            attributes["problems"] = [{"iterations": 1}] * len(fields)
            writer.describe(attributes, [{"update": [1.0]}] * len(fields))
        return tmp_path / name

    return write


def noisy(count=1, size=1e-3):
    return TRUTH + size * np.random.default_rng(0).standard_normal((count, *GRID.nodes))


# The five-point stencil is exact for this polynomial; pyAMG stops at a residual of 1e-10.
@pytest.mark.parametrize("reference", ["dst", "pyamg", "expr:x**2 - y**2", TRUTH])
def test_all_kinds_of_references_say_the_same(reference, store):
    (field,) = noisy()
    found = compare(read(store([field])), reference)
    difference = np.abs(field - TRUTH)
    assert found.mae == pytest.approx(difference.mean(), rel=1e-5)
    assert found.max_error == pytest.approx(difference.max(), rel=1e-5)
    expected = np.linalg.norm(difference) / np.linalg.norm(TRUTH)
    assert found.relative_l2 == pytest.approx(expected, rel=1e-5)
    assert found.solution_seconds == 2.5
    assert found.seconds >= 0


# u = x^2 - y^2 in each equation, exactly: derivatives of degree 2 are those of the five points.
SOURCES = {
    "poisson": ({}, 0.0 * TRUTH),
    "screened-poisson": ({"c": 3.0}, 3.0 * TRUTH),
    "anisotropic-diffusion": ({"axx": 2.0, "ayy": 1.0, "axy": 0.5}, np.full(GRID.nodes, -2.0)),
}


@pytest.mark.parametrize("reference", ["auto", "pyamg", "direct"])
@pytest.mark.parametrize("pde", SOURCES)
def test_the_parameters_and_the_source_in_the_file_count(pde, reference, store):
    parameters, source = SOURCES[pde]
    path = store([TRUTH], pde=pde, given=parameters | {"f": source})
    # pyAMG leaves a residual of 1e-10 |b|, with |b| <= 2 sqrt(112) by the edges' 112 nodes of at most
    # 1; the least eigenvalue is at least pi**2 (1/24**2 + 1/32**2) = 0.027.
    assert compare(read(path), reference).max_error <= 8e-8


def test_each_problem_has_its_own_source(store):
    factors = np.array([1.0, 2.0, 4.0])[:, None, None]
    boundary_part, interior = TRUTH, np.sin(np.pi * Y / Y[-1])[:, None] * np.sin(np.pi * X / X[-1])
    h, (ly, lx) = GRID.spacing, (Y[-1], X[-1])
    symbol = sum((2 - 2 * np.cos(np.pi * h / size)) / h**2 for size in (ly, lx))
    path = store(
        boundary_part + factors * interior, pde="poisson", given={"f": factors * symbol * interior}
    )
    # The sine is an eigenvector of the five points: rounding of 25 x 33 nodes is left.
    assert compare_all(read_all(path), "dst").max_error <= 1e-12


@pytest.mark.parametrize(
    ("pde", "given", "fastest"),
    [
        ("laplace", {}, "dst"),
        ("screened-poisson", {"c": 2.0}, "dst"),
        ("anisotropic-diffusion", {"axx": 2.0}, "dst"),
        ("anisotropic-diffusion", {"axy": 0.5}, "pyamg"),
        ("advection-diffusion", {"bx": 2.0}, "pyamg"),
    ],
)
def test_the_fastest_reference_is_the_sine_transform_where_there_is_one(pde, given, fastest, store):
    solution = read(store([TRUTH], pde=pde, given=given))
    assert compare(solution, "auto").reference == fastest


def test_an_unknown_equation_is_named(store):
    with pytest.raises(ValueError, match=r"unknown pde 'of my own'.* as FILE.py:NAME"):
        compare(read(store([TRUTH], pde="of my own")), "dst")


def test_another_solution_is_a_reference_problem_by_problem(store):
    one, other = noisy(3), noisy(3, 2e-3)
    path = store(other, "other.h5")
    for number, solution in enumerate(read_all(store(one))):
        field, _ = reference_field(path, solution)
        np.testing.assert_array_equal(field, other[number])


def test_a_single_solution_is_the_reference_of_all(store):
    path = store([TRUTH], "other.h5")
    for solution in read_all(store(noisy(2))):
        np.testing.assert_array_equal(reference_field(path, solution)[0], TRUTH)


def test_errors_of_several_problems_are_those_over_all_nodes(store):
    fields = noisy(3) * np.array([1.0, 1.1, 1.2])[:, None, None]
    found = compare_all(read_all(store(fields)), "dst")
    difference, truth = np.abs(fields - TRUTH), np.broadcast_to(TRUTH, fields.shape)
    assert found.mae == pytest.approx(difference.mean())
    assert found.max_error == pytest.approx(difference.max())
    assert found.relative_l2 == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(truth))
    assert [one.mae for one in found.problems] == pytest.approx(difference.mean(axis=(1, 2)))


def test_a_window_is_compared_where_it_lies(store):
    window = Window((3, 5), (20, 30))
    part = read(store(noisy(), window=window))
    whole = store(noisy(), "whole.h5")
    assert compare(part, whole).max_error == 0
    assert compare(part, "expr:x**2 - y**2").max_error == pytest.approx(
        compare(part, "dst").max_error, rel=1e-5
    )
    with pytest.raises(ValueError, match="holds another window of the domain"):
        compare(read(whole), part.path)


def test_an_array_of_another_shape_is_refused_with_both(store):
    with pytest.raises(ValueError, match=r"\(25, 32\), the solution's field \(25, 33\)"):
        compare(read(store(noisy())), TRUTH[:, 1:])


def test_a_tensor_is_an_array_and_nothing_may_be_nan(store):
    solution = read(store(noisy()))
    assert compare(solution, torch.from_numpy(TRUTH)).mae == compare(solution, TRUTH).mae
    with pytest.raises(ValueError, match="the reference is not finite at 1 of 825 nodes"):
        compare(solution, np.where(TRUTH.max() == TRUTH, np.nan, TRUTH))
    for wrong in (None, 3, [[1.0]]):
        with pytest.raises(TypeError, match=f"a solution or an array, got {type(wrong).__name__}"):
            compare(solution, wrong)


@pytest.fixture
def traffic(monkeypatch):
    """Return counts of the values that are read from files, and of the bytes that are checked."""
    counts = {"read": 0, "checked": 0}
    get, sealing = h5py.Dataset.__getitem__, atomic._sealing

    def counted_get(self, place):
        found = get(self, place)
        counts["read"] += np.size(found)
        return found

    def counted_sealing(file, size):
        counts["checked"] += size
        return sealing(file, size)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted_get)
    monkeypatch.setattr(atomic, "_sealing", counted_sealing)
    monkeypatch.setattr(atomic, "_TICK", -1)  # as if the files were of yesterday
    return counts


def test_what_is_read_grows_with_the_number_of_problems_not_with_its_square(store, traffic):
    def spent(problems):
        files = store(noisy(problems)), store(noisy(problems), "other.h5")
        traffic.update(read=0, checked=0)
        compare_all(read_all(files[0]), files[1])
        return dict(traffic)

    few, many = spent(4), spent(16)
    for what in ("read", "checked"):
        assert few[what] > 0
        assert many[what] <= 4.2 * few[what]
