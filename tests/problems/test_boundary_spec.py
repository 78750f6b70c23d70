"""The text that asks for boundary data."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.sides.boundary import Boundary, BoundarySpec, is_file

GRID = m.Domain((16, 24), 0.1).grid()


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("gp", {}),
        ("gp:", {}),
        ("gp:seed=3", {"seed": 3}),
        ("gp:length=0.5,seed=1", {"seed": 1, "length": 0.5}),
        ("gp:amplitude=2,noise=1e-3", {"amplitude": 2.0, "noise": 1e-3}),
    ],
)
def test_a_gaussian_process_takes_its_settings_from_the_text(spec, settings):
    expected = Boundary.of_gaussian_process(GRID, **settings)
    (boundary,) = BoundarySpec(spec).boundaries(GRID)
    np.testing.assert_array_equal(boundary.named["left"], expected.named["left"])


@pytest.mark.parametrize("spec", ["gp:seed=2..4,noise=0.1", "gp:noise=0.1,seed=2..4"])
def test_a_range_of_seeds_is_a_problem_for_each(spec):
    boundaries = BoundarySpec(spec).boundaries(GRID)
    assert len(boundaries) == 3
    for seed, boundary in zip((2, 3, 4), boundaries, strict=True):
        expected = Boundary.of_gaussian_process(GRID, seed=seed, noise=0.1)
        np.testing.assert_array_equal(boundary.named["left"], expected.named["left"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gp:seed=1.5", "gp:seed must be a number, got '1.5'"),
        ("gp:seed", "gp:seed must be a number, got ''"),
        ("gp:seed=-1", r"gp:seed must be in \[0,"),
        ("gp:seed=3..1", r"range as 0\.\.63, from low to high, got '3\.\.1'"),
        ("gp:seed=0..", r"got '0\.\.'"),
        ("gp:seed=..3", r"got '\.\.3'"),
        ("gp:seed=-1..3", r"got '-1\.\.3'"),
        ("gp:seed=0..1..2", r"got '0\.\.1\.\.2'"),
        ("gp:seed=0..1,seed=3", "gp:seed is given twice"),
        ("gp:seed=1,seed=2", "gp:seed is given twice"),
        ("gp:noise=1,noise=1", "gp:noise is given twice"),
        ("gp:seed=0..1000000", "at most 1000000 in a range"),
        ("gp:length=0", "gp:length must be in"),
        ("gp:length=nan", "gp:length must be in"),
        ("gp:noise=inf", "gp:noise must be in"),
        ("gp:amplitude=-1", "gp:amplitude must be in"),
        ("gp:colour=3", "no setting 'colour'; known: seed, length, amplitude, noise"),
        ("expr:", "cannot read the expression"),
        ("expr:open(x)", "not allowed"),
    ],
)
def test_a_malformed_text_is_refused_by_name(spec, message):
    with pytest.raises(ValueError, match=message):
        BoundarySpec(spec).boundaries(GRID)


def test_anything_else_is_a_file():
    assert is_file("edges.h5")
    assert is_file("gpx")
    assert is_file("./gp:seed=0")
    assert not is_file("gp")
    assert not is_file("gp:seed=0")
    assert not is_file("expr:x")
