"""The sine transform against scipy's."""

import numpy as np
import pytest
import scipy.fft
import torch

from mosaicdd.schwarz.coarse_space import sine_transform


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (15, 16), (31, 1)])
def test_it_is_the_first_kind_and_its_own_inverse(shape, axis):
    values = np.random.default_rng(0).standard_normal(shape)
    once = sine_transform(torch.from_numpy(values), axis)
    n = shape[axis]
    # Sums of at most 31 numbers below 2 * 4, by two fast transforms.
    rounding = 31 * 8 * 2.3e-16
    np.testing.assert_allclose(once, scipy.fft.dst(values, 1, axis=axis), rtol=0, atol=rounding)
    twice = sine_transform(once, axis) / (2 * (n + 1))
    np.testing.assert_allclose(twice, values, rtol=0, atol=rounding)
