"""Shards: together they are the field; one that is missing or foreign is one line."""

import shutil

import h5py
import numpy as np
import pytest

from mosaicdd import read
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.shards import complete_shard, shard_folder, writing_shard
from mosaicdd.storage.solution_writer import writing_solutions

GRID = Grid((4, 6), 0.25)
FIELD = np.random.default_rng(0).standard_normal(GRID.nodes)
PLACES = [
    (rows, columns) for rows in (slice(0, 2), slice(2, 5)) for columns in (slice(0, 4), slice(4, 7))
]


def write(path, run="0a", field=FIELD, places=PLACES, window=None):
    """Write a field in shards, as as many ranks do."""
    shards = []
    for rank, place in enumerate(places):
        values = field[place]
        shard = shard_folder(path) / f"{run}-{rank:04d}.h5"
        with writing_shard(shard, values.shape, "float64") as writer:
            writer.write("solution", values, (slice(None), slice(None)))
        shards.append(complete_shard(shard, place))
    boundaries = [Boundary.of_field(FIELD)]
    with writing_solutions(
        path, GRID, boundaries, "float64", window=window, shards=shards
    ) as writer:
        writer.describe({"status": "converged_rtol"}, [{"update": [1.0]}])


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "out.h5")
    return tmp_path / "out.h5"


def names(path):
    return sorted(file.name for file in shard_folder(path).iterdir())


def test_the_shards_together_are_the_field(path):
    np.testing.assert_array_equal(read(path).field, FIELD)
    with h5py.File(path) as file:
        assert file["solution"].is_virtual
        # What a rank that has written nothing would leave.
        assert np.isnan(file["solution"].fillvalue)


def test_the_folder_can_be_moved_as_a_whole(path, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / path.name
    shutil.move(shard_folder(path), tmp_path / "elsewhere")
    path.rename(moved)
    np.testing.assert_array_equal(read(moved).field, FIELD)
    monkeypatch.chdir(moved.parent)
    np.testing.assert_array_equal(read(path.name).field, FIELD)


def test_a_link_to_the_file_is_as_good(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.h5"
    link.symlink_to(path)
    np.testing.assert_array_equal(read(link).field, FIELD)


def test_names_that_hdf5_would_expand_are_taken_as_they_are(tmp_path):
    path = tmp_path / "a%b c%%.h5"
    write(path)
    np.testing.assert_array_equal(read(path).field, FIELD)


def test_a_window_may_lie_in_shards(tmp_path):
    path = tmp_path / "out.h5"
    window = Window((1, 2), (4, 7))
    places = [(slice(0, 1), slice(0, 5)), (slice(1, 3), slice(0, 5))]
    write(path, field=FIELD[window.place], places=places, window=window)
    solution = read(path)
    assert (solution.grid, solution.window) == (GRID, window)
    np.testing.assert_array_equal(solution.field, FIELD[window.place])


def missing(path):
    (shard_folder(path) / "0a-0002.h5").unlink()
    return "out.h5: its shard .*0a-0002.h5 is missing; keep the folder"


def folder_left_behind(path):
    shutil.rmtree(shard_folder(path))
    return "0a-0000.h5 is missing"


def of_another_run(path):
    other = path.parent / "other.h5"
    write(other, "0b", field=FIELD + 1)
    shutil.copy(shard_folder(other) / "0b-0001.h5", shard_folder(path) / "0a-0001.h5")
    return "0a-0001.h5 is of another run"


def damaged(path):
    shard = shard_folder(path) / "0a-0003.h5"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    return "0a-0003.h5: damaged or changed"


def without_seal(path):
    shard = shard_folder(path) / "0a-0003.h5"
    shard.write_bytes(shard.read_bytes()[:-10])
    return "0a-0003.h5 is of another run"


@pytest.mark.parametrize(
    "fault", [missing, folder_left_behind, of_another_run, damaged, without_seal]
)
def test_a_shard_of_no_use_is_one_line_that_names_it(fault, path):
    with pytest.raises(ValueError, match=fault(path)) as refused:
        read(path)
    assert "\n" not in str(refused.value)


def test_a_new_file_replaces_the_shards_of_the_one_before(path):
    write(path, "0b", FIELD + 1)
    assert names(path) == [f"0b-{rank:04d}.h5" for rank in range(4)]
    np.testing.assert_array_equal(read(path).field, FIELD + 1)


def test_a_file_without_shards_replaces_those_before_too(path):
    with writing_solutions(path, GRID, [Boundary.of_field(FIELD)], "float64") as writer:
        writer.describe({}, [{"update": []}])
    assert not shard_folder(path).exists()


def test_what_is_not_ours_stays_in_the_folder(path):
    note = shard_folder(path) / "note.txt"
    note.write_text("mine")
    write(path, "0b")
    assert names(path) == [*(f"0b-{rank:04d}.h5" for rank in range(4)), "note.txt"]


def test_a_file_that_is_not_completed_leaves_the_one_before_with_its_shards(path, monkeypatch):
    def interrupted(self, attributes, history):
        raise KeyboardInterrupt

    monkeypatch.setattr("mosaicdd.storage.solution_writer.SolutionWriter.describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, "0b", FIELD + 1)
    assert names(path) == [f"0a-{rank:04d}.h5" for rank in range(4)]
    np.testing.assert_array_equal(read(path).field, FIELD)


def test_any_changed_byte_of_a_shard_is_refused(path):
    shard = shard_folder(path) / "0a-0001.h5"
    content, rng = shard.read_bytes(), np.random.default_rng(1)
    for place in rng.choice(len(content), 100, replace=False):
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        shard.write_bytes(changed)
        with pytest.raises(ValueError, match=r"0a-0001\.h5"):
            read(path)
