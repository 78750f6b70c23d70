"""Random media: the same from any parts and on any grid, and of the statistics that were asked for."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import Lognormal
from mosaicdd.problems.fingerprint import plan_fingerprint

GRID = m.Domain((150, 200), 1 / 64).grid()
WHOLE = (slice(0, 151), slice(0, 201))
TEXT = "lognormal:seed=3,length=0.1,contrast=1e4"


@pytest.mark.parametrize("length", [0.0, 0.01, 0.1, 5.0])
def test_parts_have_the_values_of_the_whole(length):
    medium = Lognormal(7, length, 1e6)
    whole = medium.sample(GRID, WHOLE)
    for part in np.ndindex(4, 3):
        rows, columns = (
            slice(38 * part[0], 38 * part[0] + 37),
            slice(67 * part[1], 67 * part[1] + 67),
        )
        np.testing.assert_array_equal(medium.sample(GRID, (rows, columns)), whole[rows, columns])
    assert medium.sample(GRID, (slice(5, 5), slice(0, 9))).shape == (0, 9)


def test_a_finer_grid_sees_the_same_medium():
    fine = m.Domain((300, 400), 1 / 128).grid()
    medium = Lognormal(0, 0.1, 1e4)
    found = medium.sample(fine, (slice(0, 301), slice(0, 401)))[::2, ::2]
    np.testing.assert_allclose(found, medium.sample(GRID, WHOLE), rtol=1e-9)


def test_variance_and_correlation_are_those_asked_for():
    cells, length, contrast = 1000, 6 / 64, 300.0
    grid = m.Domain((cells, cells), 1 / 64).grid()
    a = Lognormal(1, length, contrast).sample(grid, (slice(0, cells + 1),) * 2)
    z = 6 * np.log(a) / np.log(contrast)
    # Means over some (1000 / (6 sqrt(2 pi)))^2 = 4400 independent values are off by 1.5 %; five times that.
    assert abs(z.mean()) < 0.08
    assert z.var() == pytest.approx(1.0, abs=0.08)
    for shift, expected in ((6, np.exp(-0.5)), (12, np.exp(-2.0))):
        for one, other in ((z[shift:], z[:-shift]), (z[:, shift:], z[:, :-shift])):
            assert (one * other).mean() == pytest.approx(expected, abs=0.08)


def test_seeds_differ():
    one, other = (Lognormal(seed, 0.1).sample(GRID, WHOLE) for seed in (0, 1))
    correlation = np.corrcoef(np.log(one).ravel(), np.log(other).ravel())[0, 1]
    assert abs(correlation) < 0.3  # of some 60 independent values


def test_a_field_takes_the_text():
    problem = m.Problem(GRID.shape, "diffusion", {"a": TEXT, "f": 1.0})
    assert problem.described["a"] == TEXT
    expected = Lognormal(3, 0.1, 1e4).sample(GRID, WHOLE)
    np.testing.assert_array_equal(problem.arrays["a"].sample(GRID, WHOLE)[0], expected)
    other = problem.with_fields(f=2.0)  # solved with the same plan
    assert plan_fingerprint(other, GRID, WHOLE) == plan_fingerprint(problem, GRID, WHOLE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lognormal:sed=1", "lognormal: has no setting 'sed' .did you mean 'seed'"),
        ("lognormal:seed=1,seed=2", "lognormal:seed is given twice"),
        ("lognormal:seed=-1", r"lognormal:seed must be in \[0, 1e\+12\), got -1"),
        ("lognormal:length=x", "lognormal:length must be a number, got 'x'"),
        ("lognormal:length=-0.5", r"lognormal:length must be in \[0, 1e\+12\), got -0.5"),
        ("lognormal:contrast=0.5", r"lognormal:contrast must be in \[1, 1e\+12\), got 0.5"),
        ("lognormal:contrast=nan", "lognormal:contrast must be in"),
    ],
)
def test_bad_texts_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Field("a", text)


def test_a_length_below_half_a_cell_is_refused():
    with pytest.raises(
        ValueError, match=r"0.001 is below half of the grid's spacing, 0.015625; take"
    ):
        m.Problem(GRID.shape, "diffusion", {"a": "lognormal:length=0.001"})
