"""The statistics of the random boundary data.

Seeds are fixed, so a test passes or fails for ever; its tolerance is 5 standard errors.
"""

import numpy as np
import pytest

from mosaicdd.problems.fields.random_media import sample_closed_curve, sobol_hyperparameters

SAMPLES = 10_000


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
