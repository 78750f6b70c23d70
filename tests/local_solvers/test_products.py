"""Products of many small matrices."""

import numpy as np
import pytest
import torch

from mosaicdd.local_solvers.elements import products
from mosaicdd.local_solvers.elements.products import rows_at, rows_times


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 47])
def test_many_rows_are_multiplied_some_at_a_time(rows, monkeypatch):
    monkeypatch.setattr(products, "_SMALL", 8 * 5 * 3)  # eight rows
    rng = np.random.default_rng(0)
    values, matrix = rng.standard_normal((rows, 9))[:, 2:7], rng.standard_normal((5, 3))
    out = torch.full((rows, 4), np.nan, dtype=torch.float64)
    rows_times(torch.from_numpy(values), torch.from_numpy(matrix), out[:, :3])
    np.testing.assert_allclose(out[:, :3], values @ matrix, rtol=0, atol=1e-14)
    assert out[:, 3].isnan().all()


def test_rows_are_taken_by_their_numbers():
    values, numbers = torch.arange(24.0).view(6, 4), torch.tensor([5, 0, 0, 2])
    for given in (values, values.mT.contiguous().mT):
        np.testing.assert_array_equal(rows_at(given, numbers), values[numbers])
