"""Model files come back as they were written, and refuse, in one line, what they are not."""

import json
from contextlib import contextmanager

import h5py
import numpy as np
import pytest

from mosaicdd.storage.atomic import append_seal
from mosaicdd.storage.model_file import ModelCard, read_model, write_model


def card(**changes):
    content = {
        "pde": "laplace",
        "cells": 32,
        "size": 0.5,
        "network": "linear",
        "settings": {"width": 8},
        "lifting_degree": 2,
        "boundary_range": [-4.0, 4.0],
    }
    return ModelCard(**{**content, **changes})


@contextmanager
def changing(path):
    """Open a file to change it, and seal it again."""
    with h5py.File(path, "a") as file:
        yield file
    with path.open("r+b") as sealed:
        append_seal(sealed)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.h5"
    write_model(path, card(), {"trunk.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return path


def refusal(path, kind=ValueError):
    with pytest.raises(kind) as error:
        read_model(path)
    assert "\n" not in str(error.value)
    assert path.name in str(error.value)
    return str(error.value)


def test_card_and_weights_come_back(model):
    read, weights = read_model(model)
    assert read == card()
    assert weights["trunk.0.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read.versions["torch"]


def test_a_missing_file_is_named(tmp_path):
    assert "missing" in refusal(tmp_path / "none.h5", FileNotFoundError)
    assert "folder" in refusal(tmp_path, FileNotFoundError)


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(model, kept):
    content = model.read_bytes()
    model.write_bytes(content[: int(kept * len(content))])
    assert "not a complete" in refusal(model)


def test_a_file_that_is_not_hdf5_is_refused(tmp_path):
    path = tmp_path / "model.h5"
    path.write_text("import os; os.remove('everything')")
    assert "not a complete model file" in refusal(path)


def test_a_foreign_hdf5_file_is_refused(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file["weights/a"] = np.zeros(3)
    assert "something else" in refusal(path)


def test_a_format_of_the_future_is_refused(model):
    with changing(model) as file:
        file.attrs["format_version"] = 3
    assert "format 3, this version of mosaicdd reads 1 to 2" in refusal(model)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(model, value):
    with changing(model) as file:
        file["weights/trunk.0.weight"][0, 0] = value
    assert "'trunk.0.weight' holds NaN or infinity" in refusal(model)


def test_weights_that_are_not_plain_arrays_are_refused(model):
    with changing(model) as file:
        file["weights/code"] = "print()"
    assert "not an array" in refusal(model)
    with changing(model) as file:
        del file["weights/code"]
        file.create_group("weights/more")
    assert "plain arrays" in refusal(model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "Expecting value"),
        ("[]", "not a JSON object"),
        ('{"pde": "laplace"}', "missing"),
        (json.dumps({**vars(card()), "extra": 1}), "unknown entries: extra"),
        (json.dumps({**vars(card()), "cells": "32"}), "cells is '32'"),
        (json.dumps({**vars(card()), "cells": 31}), "even number"),
        (json.dumps({**vars(card()), "cells": 10**9}), "at most 4096"),
    ],
)
def test_a_malformed_card_is_refused(model, text, message):
    with changing(model) as file:
        file.attrs["card"] = text
    assert message in refusal(model)


def test_a_file_without_a_card_is_refused(model):
    with changing(model) as file:
        del file.attrs["card"]
    assert "card" in refusal(model)


def test_a_file_that_was_changed_after_it_was_sealed_is_refused(model):
    with h5py.File(model, "a") as file:
        file["weights/trunk.0.weight"][0, 0] = 0.5
    assert "its checksum is missing" in refusal(model)


def test_files_from_before_the_seals_are_read(model):
    with h5py.File(model, "a") as file:
        file.attrs["format_version"] = 1
    assert read_model(model)[0] == card()
