"""Comparisons with references: the numbers, and how much is read for them."""

import h5py
import numpy as np
import pytest
import torch
from stored_fields import store as store_fields

import mosaicdd as m
from mosaicdd.storage import atomic

H = 1 / 32
Y, X = H * np.arange(25), H * np.arange(33)
TRUTH = X**2 - Y[:, None] ** 2


@pytest.fixture
def store(tmp_path):
    """Return a function that stores fields ``(n, ny + 1, nx + 1)`` as solutions of n problems."""

    def write(fields, name="out.h5", **more):
        seconds = {"iterate": 2.0, "assemble": 0.5}
        edges = [TRUTH] * len(fields)
        return store_fields(tmp_path / name, fields, spacing=H, edges=edges, seconds=seconds, **more)  # fmt: skip

    return write


def noisy(count=1, size=1e-3):
    return TRUTH + size * np.random.default_rng(0).standard_normal((count, *TRUTH.shape))


# The five-point stencil is exact for this polynomial; pyAMG stops at a residual of 1e-10.
@pytest.mark.parametrize("reference", ["dst", "pyamg", "expr:x**2 - y**2", TRUTH])
def test_all_kinds_of_references_say_the_same(reference, store):
    (field,) = noisy()
    found = m.read(store([field])).compare(reference)
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
    "anisotropic-diffusion": ({"axx": 2.0, "ayy": 1.0, "axy": 0.5}, np.full(TRUTH.shape, -2.0)),
}


@pytest.mark.parametrize("reference", ["auto", "pyamg", "direct"])
@pytest.mark.parametrize("pde", SOURCES)
def test_the_parameters_and_the_source_in_the_file_count(pde, reference, store):
    parameters, source = SOURCES[pde]
    path = store([TRUTH], pde=pde, given=parameters | {"f": source})
    # pyAMG leaves a residual of 1e-10 |b|, with |b| <= 2 sqrt(112) by the edges' 112 nodes of at most
    # 1; the least eigenvalue is at least pi**2 (1/24**2 + 1/32**2) = 0.027.
    assert m.compare(path, reference).max_error <= 8e-8


def test_each_problem_has_its_own_source(store):
    factors = np.array([1.0, 2.0, 4.0])[:, None, None]
    interior = np.sin(np.pi * Y / Y[-1])[:, None] * np.sin(np.pi * X / X[-1])
    symbol = sum((2 - 2 * np.cos(np.pi * H / size)) / H**2 for size in (Y[-1], X[-1]))
    given = {"f": factors * symbol * interior}
    path = store(TRUTH + factors * interior, pde="poisson", given=given)
    # The sine is an eigenvector of the five points: rounding of 25 x 33 nodes is left.
    assert m.compare(path, "dst").max_error <= 1e-12


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
    assert m.compare(store([TRUTH], pde=pde, given=given), "auto").reference == fastest


def test_another_solution_is_a_reference_problem_by_problem_and_a_single_one_that_of_all(store):
    one, other = noisy(3), noisy(3, 2e-3)
    path = store(one)
    for reference in (other, TRUTH[None]):
        found = m.compare(path, store(reference, "other.h5")).problems
        difference = np.abs(one - reference)
        assert [each.mae for each in found] == pytest.approx(difference.mean(axis=(1, 2)))


def test_errors_of_several_problems_are_those_over_all_nodes(store):
    fields = noisy(3) * np.array([1.0, 1.1, 1.2])[:, None, None]
    found = m.compare(store(fields), "dst")
    difference, truth = np.abs(fields - TRUTH), np.broadcast_to(TRUTH, fields.shape)
    assert found.mae == pytest.approx(difference.mean())
    assert found.max_error == pytest.approx(difference.max())
    assert found.relative_l2 == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(truth))
    assert [one.mae for one in found.problems] == pytest.approx(difference.mean(axis=(1, 2)))


def test_a_window_is_compared_where_it_lies(store):
    part, whole = store(noisy(), window=((3, 5), (20, 30))), store(noisy(), "whole.h5")
    assert m.compare(part, whole).max_error == 0
    errors = [m.compare(part, reference).max_error for reference in ("expr:x**2 - y**2", "dst")]
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)
    with pytest.raises(ValueError, match="holds another window of the domain"):
        m.compare(whole, part)


def test_a_tensor_is_an_array_and_what_does_not_fit_or_is_nan_is_refused(store):
    solution = m.read(store(noisy()))
    assert solution.compare(torch.from_numpy(TRUTH)).mae == solution.compare(TRUTH).mae
    with pytest.raises(ValueError, match=r"\(25, 32\), the solution's field \(25, 33\)"):
        solution.compare(TRUTH[:, 1:])
    with pytest.raises(ValueError, match="the reference is not finite at 1 of 825 nodes"):
        solution.compare(np.where(TRUTH.max() == TRUTH, np.nan, TRUTH))
    for wrong in (None, 3, [[1.0]]):
        with pytest.raises(TypeError, match=f"a solution or an array, got {type(wrong).__name__}"):
            solution.compare(wrong)
    with pytest.raises(ValueError, match=r"unknown pde 'of my own'.* as FILE.py:NAME"):
        m.compare(store([TRUTH], pde="of my own"), "dst")


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
        m.compare(*files)
        return dict(traffic)

    few, many = spent(4), spent(16)
    for what in ("read", "checked"):
        assert few[what] > 0
        assert many[what] <= 4.2 * few[what]
