"""Random media and curves: the same from any parts and on any grid, of the statistics that are asked for."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import (
    Lognormal,
    sample_closed_curve,
    sobol_hyperparameters,
)
from mosaicdd.problems.fingerprint import plan_fingerprint

GRID = m.Domain((150, 200), 1 / 64).grid()
WHOLE = (slice(0, 151), slice(0, 201))
TEXT = "lognormal:seed=3,length=0.1,contrast=1e4"
SAMPLES = 10_000


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


def samples(nodes, **settings):
    rng = np.random.default_rng(7)
    return np.array([sample_closed_curve(rng, nodes, **settings) for _ in range(SAMPLES)])


def periodic_kernel(distance, curve_length, length_scale):
    """Return the squared exponential summed over the windings of the curve, 1 at distance 0."""
    windings = curve_length * np.arange(-50, 51)

    def total(d):
        return np.exp(-((d + windings) ** 2) / (2 * length_scale**2)).sum()

    return total(distance) / total(0.0)


@pytest.mark.parametrize("nodes", [64, 45])
@pytest.mark.parametrize("length_scale", [0.1, 0.4])
def test_the_covariance_is_the_periodic_kernel_at_every_distance(nodes, length_scale):
    curve, amplitude = 2.0, 1.5
    settings = {"curve_length": curve, "length_scale": length_scale, "amplitude": amplitude}
    values = samples(nodes, **settings)
    for lag in (0, 1, 3, nodes // 4, nodes // 2, nodes - 1):
        # The mean over the nodes of one sample has at most the variance of one product of two
        # normal numbers, 2 amplitude**4.
        error = amplitude**2 * np.sqrt(2 / SAMPLES)
        found = (values * np.roll(values, -lag, axis=1)).mean()
        expected = amplitude**2 * periodic_kernel(lag * curve / nodes, curve, length_scale)
        assert found == pytest.approx(expected, abs=5 * error)


def test_the_curve_closes_as_smoothly_as_it_runs():
    nodes, curve, length_scale = 64, 2.0, 0.2
    values = samples(nodes, curve_length=curve, length_scale=length_scale)
    expected = 2 * (1 - periodic_kernel(curve / nodes, curve, length_scale))
    # The square of a normal number has a relative standard deviation of sqrt(2).
    found = ((values[:, 0] - values[:, -1]) ** 2).mean()
    assert found == pytest.approx(expected, rel=5 * np.sqrt(2 / SAMPLES))


def test_white_noise_adds_its_variance_at_distance_zero_only():
    values = samples(64, curve_length=2.0, length_scale=0.4, amplitude=1e-9, noise=0.5)
    error = 0.25 * np.sqrt(2 / SAMPLES)
    assert (values**2).mean() == pytest.approx(0.25, abs=5 * error)
    assert (values[:, 1:] * values[:, :-1]).mean() == pytest.approx(0.0, abs=5 * error)


def test_the_mean_is_zero():
    values = samples(64, curve_length=2.0, length_scale=0.4)
    # The mean over the nodes has at most the variance of one.
    assert values.mean() == pytest.approx(0.0, abs=5 / np.sqrt(SAMPLES))


def test_the_same_seed_gives_the_same_values():
    one, same, other = (
        sample_closed_curve(np.random.default_rng(seed), 40, 2.0, 0.3) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_the_first_hyperparameters_do_not_depend_on_how_many_are_drawn(count):
    lower, upper = np.array([0.01, 1.0]), np.array([1.0, 2.0])
    many = sobol_hyperparameters(1000, 5, lower, upper)
    some = sobol_hyperparameters(count, 5, lower, upper)
    assert some.shape == (count, 2)
    np.testing.assert_array_equal(some, many[:count])
    assert (sobol_hyperparameters(count, 6, lower, upper) != some).any()


def test_the_hyperparameters_are_uniform_in_the_logarithm():
    lower, upper = np.array([0.01, 1.0]), np.array([1.0, 2.0])
    drawn = sobol_hyperparameters(1024, 0, lower, upper)
    unit = np.log(drawn / lower) / np.log(upper / lower)
    # 2**10 points of a scrambled Sobol sequence: one in each of 1024 intervals, in each dimension.
    for column in unit.T:
        np.testing.assert_array_equal(np.sort((column * 1024).astype(int)), np.arange(1024))
