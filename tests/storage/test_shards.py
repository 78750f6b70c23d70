"""Shards: together they are the field; one that is missing or foreign is one line."""

import shutil

import h5py
import numpy as np
import pytest
from stored_fields import store

from mosaicdd import read

FIELD = np.random.default_rng(0).standard_normal((5, 7))
PLACES = [(r, c) for r in (slice(0, 2), slice(2, 5)) for c in (slice(0, 4), slice(4, 7))]


def write(path, run="0a", field=FIELD, places=PLACES, **more):
    """Write a field in shards, as as many ranks do."""
    return store(path, [field], run=run, places=places, **more)


def folder(path):
    return path.with_name(f"{path.name}.shards")


def names(path):
    return sorted(file.name for file in folder(path).iterdir())


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "out.h5")


def test_the_shards_together_are_the_field(path, tmp_path):
    np.testing.assert_array_equal(read(path).field, FIELD)
    with h5py.File(path) as file:
        assert file["solution"].is_virtual
        # What a rank that has written nothing would leave.
        assert np.isnan(file["solution"].fillvalue)
    # HDF5 would expand such names.
    np.testing.assert_array_equal(read(write(tmp_path / "a%b c%%.h5")).field, FIELD)


def test_the_folder_can_be_moved_as_a_whole_and_linked_to(path, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.h5"
    link.symlink_to(path)
    np.testing.assert_array_equal(read(link).field, FIELD)
    moved = tmp_path / "elsewhere" / path.name
    shutil.move(folder(path), tmp_path / "elsewhere")
    path.rename(moved)
    np.testing.assert_array_equal(read(moved).field, FIELD)
    monkeypatch.chdir(moved.parent)
    np.testing.assert_array_equal(read(path.name).field, FIELD)


def missing(path):
    (folder(path) / "0a-0002.h5").unlink()


def of_another_run(path):
    other = write(path.parent / "other.h5", "0b", field=FIELD + 1)
    shutil.copy(folder(other) / "0b-0001.h5", folder(path) / "0a-0001.h5")


def damaged(path):
    shard = folder(path) / "0a-0003.h5"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)


def without_seal(path):
    shard = folder(path) / "0a-0003.h5"
    shard.write_bytes(shard.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (missing, "out.h5: its shard .*0a-0002.h5 is missing; keep the folder"),
        (lambda path: shutil.rmtree(folder(path)), "0a-0000.h5 is missing"),
        (of_another_run, "0a-0001.h5 is of another run"),
        (damaged, "0a-0003.h5: damaged or changed"),
        (without_seal, "0a-0003.h5 is of another run"),
    ],
)
def test_a_shard_of_no_use_is_one_line_that_names_it(fault, message, path):
    fault(path)
    with pytest.raises(ValueError, match=message) as refused:
        read(path)
    assert "\n" not in str(refused.value)


def test_a_new_file_replaces_the_shards_of_the_one_before_and_nothing_else(path):
    (folder(path) / "note.txt").write_text("mine")
    write(path, "0b", FIELD + 1)
    assert names(path) == [*(f"0b-{rank:04d}.h5" for rank in range(4)), "note.txt"]
    np.testing.assert_array_equal(read(path).field, FIELD + 1)
    (folder(path) / "note.txt").unlink()
    store(path, [FIELD])
    assert not folder(path).exists()


def test_a_file_that_is_not_completed_leaves_the_one_before_with_its_shards(path, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("mosaicdd.storage.solution_writer.SolutionWriter.describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, "0b", FIELD + 1)
    assert names(path) == [f"0a-{rank:04d}.h5" for rank in range(4)]
    np.testing.assert_array_equal(read(path).field, FIELD)


def test_any_changed_byte_of_a_shard_is_refused(path):
    shard = folder(path) / "0a-0001.h5"
    content, rng = shard.read_bytes(), np.random.default_rng(1)
    for place in rng.choice(len(content), 100, replace=False):
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        shard.write_bytes(changed)
        with pytest.raises(ValueError, match=r"0a-0001\.h5"):
            read(path)
