"""Fields in files: parts of them are read, as of an array."""

import pickle

import h5py
import numpy as np
import pytest

from mosaicdd.storage.field_file import FieldFile

FIELD = np.random.default_rng(0).standard_normal((5, 7))
MANY = np.random.default_rng(1).standard_normal((3, 5, 7)).astype("f4")


@pytest.fixture(params=["npy", "h5"])
def store(request, tmp_path):
    """Return a function that stores an array, and returns how it is asked for."""

    def write(array):
        path = tmp_path / f"field.{request.param}"
        if request.param == "npy":
            np.save(path, array)
            return path
        with h5py.File(path, "w") as file:
            file["group/f"] = array
        return f"{path}:/group/f"

    return write


@pytest.mark.parametrize("array", [FIELD, MANY], ids=["one", "many"])
def test_parts_are_those_of_the_array(array, store):
    field = FieldFile(store(array))
    assert (field.shape, field.dtype, field.ndim) == (array.shape, array.dtype, array.ndim)
    for place in ((..., slice(1, 4), slice(0, 3)), (slice(0, 2),), ()):
        part = field[place]
        assert type(part) is np.ndarray
        np.testing.assert_array_equal(part, array[place])


def test_it_can_be_sent_to_other_ranks(store):
    sent = pickle.loads(pickle.dumps(FieldFile(store(FIELD))))
    np.testing.assert_array_equal(sent[...], FIELD)


def test_a_file_that_has_changed_is_refused(store):
    field = FieldFile(store(FIELD))
    store(MANY)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        field[...]


def test_what_does_not_hold_real_numbers_is_refused(store):
    with pytest.raises(ValueError, match="must hold real numbers, got complex128"):
        FieldFile(store(FIELD + 1j))


def test_one_number_is_no_field(store):
    with pytest.raises(ValueError, match="holds one number, not values at nodes"):
        FieldFile(store(np.float64(3.0)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npy", "the file of field values is missing"),
        ("missing.h5:/f", "the file of field values is missing"),
        ("text.npy", "not an array of numpy's: it begins with"),
        ("text.h5:/f", "not a complete field file"),
        ("text.h5", "FILE.npy or FILE.h5:/dataset"),
        ("other.h5:/f", "holds no array /f"),
        ("other.h5:/group", "holds no array /group"),
    ],
)
def test_a_field_that_cannot_be_read_is_one_line_that_names_it(name, message, tmp_path):
    for text in ("text.npy", "text.h5"):
        (tmp_path / text).write_text("no array at all")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["group/x"] = 1.0
    with pytest.raises((OSError, ValueError), match=message) as refused:
        FieldFile(tmp_path / name)
    assert name.partition(":")[0] in str(refused.value)
    assert "\n" not in str(refused.value)
