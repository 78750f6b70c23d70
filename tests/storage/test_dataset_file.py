"""Dataset files come back as they were written, and refuse what they are not."""

import tracemalloc

import h5py
import numpy as np
import pytest

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.storage.dataset_file import Dataset, joined
from mosaicdd.storage.hdf5 import reseal


def small_dataset(samples=10, **changes):
    rng = np.random.default_rng(0)
    content = {
        "pde": "laplace",
        "subdomain": Subdomain(4, 0.25),
        "boundary": rng.standard_normal((samples, 16)),
        "solution": rng.standard_normal((samples, 5, 5)),
        "hyperparameters": rng.standard_normal((samples, 1)),
        "hyperparameter_names": ("length_scale",),
        "window_boundary": rng.standard_normal((3, 16)),
        "window_solution": rng.standard_normal((3, 5, 5)),
        "validation": 0.2,
        "seed": 7,
    }
    return Dataset(**{**content, **changes})


def test_a_dataset_comes_back_as_it_was_written(tmp_path):
    written = small_dataset()
    written.write(tmp_path / "data.h5")
    read = Dataset.read(tmp_path / "data.h5")
    for name, value in vars(written).items():
        np.testing.assert_array_equal(getattr(read, name), value)
    assert read.content_hash == written.content_hash
    assert read.content_hash != small_dataset(samples=11).content_hash
    assert read.held_out == 2
    with h5py.File(tmp_path / "data.h5") as file:
        shapes = {name: file[name].shape for name in ("boundary", "solution", "hyperparameters")}
        assert shapes == {"boundary": (10, 16), "solution": (10, 5, 5), "hyperparameters": (10, 1)}
        named = {"pde", "cells", "size", "seed", "format_version", "version_torch"}
        assert named <= set(file.attrs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boundary": np.zeros((10, 12))}, "must have the shapes"),
        ({"window_solution": np.zeros((2, 5, 5))}, "window boundaries"),
        ({"boundary": np.full((10, 16), np.nan)}, "must be finite"),
        ({"hyperparameters": np.zeros((9, 1))}, "do not fit"),
        ({"validation": 0.01}, "leaves none"),
    ],
)
def test_inconsistent_content_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_dataset(**changes)


def test_values_of_less_precision_are_taken_as_those_of_more(tmp_path):
    single = small_dataset().boundary.astype(np.float32)
    small_dataset(boundary=single).write(tmp_path / "data.h5")
    with h5py.File(tmp_path / "data.h5", "r+") as file:  # as a user writes it
        del file["boundary"]
        file["boundary"] = single
    reseal(tmp_path / "data.h5")
    read = Dataset.read(tmp_path / "data.h5")
    assert read.boundary.dtype == np.float64
    np.testing.assert_array_equal(read.boundary, single)


def test_parts_are_put_together_beside_one_of_them():
    part = 2**17  # bytes

    def parts():
        for number in range(40):
            yield {"few": np.full((3, 2), number), "many": np.full((4, part // 32), float(number))}

    tracemalloc.start()
    whole = joined(parts())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(whole["many"][:, 0], np.repeat(np.arange(40), 4))
    np.testing.assert_array_equal(whole["few"][:, 1], np.repeat(np.arange(40), 3))
    assert peak < (40 + 4) * part


def test_parts_in_the_order_of_columns_are_put_together_by_rows():
    parts = np.arange(24.0).reshape(2, 4, 3)
    whole = joined({"values": part.T} for part in parts)
    np.testing.assert_array_equal(whole["values"], np.concatenate([part.T for part in parts]))
