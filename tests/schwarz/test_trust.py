"""The error estimate can be trusted: a small version of ``benchmarks/trust.py``."""

import numpy as np
import pytest
from trust import ratios_of, study, trustworthy

from mosaicdd import Ranks

PROBLEMS = range(24)  # every local solver with every kind of data, twice


@pytest.fixture(scope="module")
def outcomes():
    return study(PROBLEMS, Ranks.alone())


def test_the_median_estimate_is_at_least_the_error_and_at_most_10_times(outcomes):
    median, _, _ = trustworthy(outcomes)
    assert 1 <= median <= 10


def test_hardly_an_estimate_is_below_the_error(outcomes):
    _, below, _ = trustworthy(outcomes)
    assert len(ratios_of(outcomes)) >= 20
    assert below <= 0.02  # none of 24


def test_no_converged_run_is_off_by_more_than_10_times_its_estimate(outcomes):
    _, _, wrong = trustworthy(outcomes)
    assert not wrong
    assert np.mean([o.status.startswith("converged") for o in outcomes]) > 0.5
