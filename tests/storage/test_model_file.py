"""Model files come back as they were written, and refuse, in one line, what they are not."""

import json

import h5py
import numpy as np
import pytest

from mosaicdd.storage.hdf5 import reseal
from mosaicdd.storage.model_file import ModelCard, read_model, write_model

CARD = {
    "pde": "laplace",
    "cells": 32,
    "size": 0.5,
    "network": "linear",
    "settings": {"width": 8},
    "lifting_degree": 2,
    "boundary_range": [-4.0, 4.0],
}
WHOLE, NAME = vars(ModelCard(**CARD)), "trunk.0.weight"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.h5"
    write_model(path, ModelCard(**CARD), {NAME: np.arange(6, dtype=np.float32).reshape(2, 3)})
    return path


def test_card_and_weights_come_back_from_files_of_today_and_from_before_the_seals(model):
    read, weights = read_model(model)
    assert read == ModelCard(**CARD)
    assert weights[NAME].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read.versions["torch"]
    with h5py.File(model, "a") as file:
        file.attrs["format_version"] = 1
    assert read_model(model)[0] == ModelCard(**CARD)


def cut(share):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def changed(change, seal=True):
    """Return what changes a file, and seals it again."""

    def damage(path):
        with h5py.File(path, "a") as file:
            change(file)
        if seal:
            reseal(path)

    return damage


def card(text):
    return changed(lambda file: file.attrs.update(card=text))


def weight(value, seal=True):
    return changed(lambda file: file[f"weights/{NAME}"].__setitem__((0, 0), value), seal)


def foreign(path):
    with h5py.File(path, "w") as file:
        file["weights/a"] = np.zeros(3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: (path.unlink(), path.mkdir()), "folder"),
        *((cut(share), "not a complete") for share in (0.0, 0.1, 0.5, 0.9)),
        (lambda path: path.write_text("import os; os.remove('everything')"), "not a complete model file"),
        (foreign, "something else"),
        (changed(lambda file: file.attrs.update(kind="mosaicdd dataset")), "a mosaicdd dataset file, a mosaicdd model file is needed"),
        (changed(lambda file: file.attrs.update(format_version=3)), "format 3, this version of mosaicdd reads 1 to 2"),
        (weight(np.nan), f"'{NAME}' holds NaN or infinity"),
        (weight(np.inf), f"'{NAME}' holds NaN or infinity"),
        (changed(lambda file: file.update({"weights/code": "print()"})), "not an array"),
        (changed(lambda file: file.create_group("weights/more")), "plain arrays"),
        (card("not json"), "Expecting value"),
        (card("[]"), "not a JSON object"),
        (card('{"pde": "laplace"}'), "missing"),
        (card(json.dumps(WHOLE | {"extra": 1})), "unknown entries: extra"),
        (card(json.dumps(WHOLE | {"cells": "32"})), "cells is '32'"),
        (card(json.dumps(WHOLE | {"cells": 31})), "even number"),
        (card(json.dumps(WHOLE | {"cells": 10**9})), "at most 4096"),
        (changed(lambda file: file.attrs.pop("card")), "card"),
        (weight(0.5, seal=False), "its checksum is missing"),
    ],
)  # fmt: skip
def test_a_file_of_no_use_is_refused_in_one_line(damage, message, model):
    damage(model)
    with pytest.raises(ValueError if model.is_file() else FileNotFoundError) as error:
        read_model(model)
    assert "\n" not in str(error.value)
    assert model.name in str(error.value)
    assert message in str(error.value)
