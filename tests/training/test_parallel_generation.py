"""Datasets on ranks: the same file for any number of them, and no finished part made twice."""

import errno
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from drawn_data import generate_dataset, generation

from mosaicdd import GenerationSettings, generate
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training import generation as generation_module
from mosaicdd.training.generation import Generation, PartGenerator

SETTINGS = generation(samples=600, windows=300, method="direct")


@pytest.mark.ranks(1, 2, 3)
def test_the_samples_are_the_same_for_any_number_of_ranks(comm, common_path):
    path = common_path / "data.h5"
    written = generate(path, SETTINGS, ranks=comm)
    assert (written is None) == (comm.rank > 0)
    comm.Barrier()
    expected, result = generate_dataset(SETTINGS), Dataset.read(path)
    for name in ("boundary", "solution", "hyperparameters", "window_boundary", "window_solution"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    assert not list(common_path.glob("*.parts"))


def test_what_was_made_is_kept_and_what_is_damaged_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "data.h5"
    made = []
    original = PartGenerator.part

    def part(self, number):
        made.append(number)
        if len(made) == 4:
            raise KeyboardInterrupt
        return original(self, number)

    monkeypatch.setattr(PartGenerator, "part", part)
    with pytest.raises(KeyboardInterrupt):
        generate(path, SETTINGS)
    assert made == [0, 1, 2, 3]
    assert not path.exists()
    damaged = tmp_path / "data.h5.parts" / "part-000001.npz"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    generate(path, SETTINGS)
    assert made[4:] == [1, 3, 4]
    assert Dataset.read(path).content_hash == generate_dataset(SETTINGS).content_hash


def unreadable(monkeypatch, name):
    """Let no rank read a file of this name, as where a network file system is late."""
    load = np.load

    def reading(path, **options):
        if Path(path).name == name:
            raise OSError(errno.ESTALE, "Stale file handle")
        return load(path, **options)

    monkeypatch.setattr(np, "load", reading)


SQUARE = ("--cells", "8", "--size", "0.125")
KINDS = {"part-000003.npz": (600, "--windows", "300", "--method", "direct")}


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("part", KINDS)
def test_parts_that_cannot_be_read_are_named_and_all_are_kept(
    comm, common_path, monkeypatch, mosaicdd, part
):
    path, (samples, *how) = common_path / "data.h5", KINDS[part]
    command = "generate", path, *SQUARE, "--samples", samples, *how
    with monkeypatch.context() as patch:
        unreadable(patch, part)
        ended = mosaicdd(*command)
    assert ended.code == 1
    progress = r"(solving samples: .*\n)*"  # on a slow machine
    error = rf"Error: .*{part}: .*Stale file handle.*all parts are kept.*\n"
    assert re.fullmatch(progress + error, ended.err)
    assert not path.exists()
    assert part in [path.name for path in common_path.glob("data.h5.parts/*.npz")]
    comm.Barrier()
    assert mosaicdd(*command).code == 0
    comm.Barrier()
    with h5py.File(path) as file:
        assert len(file["boundary"]) == samples
    assert not list(common_path.glob("*.parts"))


def test_parts_of_another_dataset_are_refused(tmp_path):
    Generation(tmp_path / "data.h5", SETTINGS)
    other = GenerationSettings(**{**SETTINGS.__dict__, "seed": 1})
    with pytest.raises(ValueError, match="its seed is 0, not 1"):
        generate(tmp_path / "data.h5", other)


def test_an_error_of_multigrid_is_the_error_of_the_generation(tmp_path, monkeypatch):
    def fail(system):
        raise RuntimeError("multigrid stopped")

    monkeypatch.setattr(generation_module, "MultigridSolver", fail)
    settings = GenerationSettings(**{**SETTINGS.__dict__, "method": "amg"})
    with pytest.raises(RuntimeError, match="multigrid stopped"):
        generate(tmp_path / "data.h5", settings)


def test_a_dataset_that_is_there_is_replaced_only_if_that_is_asked_for(tmp_path):
    path = tmp_path / "data.h5"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        generate(path, SETTINGS)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["data.h5"]
    generate(path, SETTINGS, overwrite=True)
    assert len(Dataset.read(path).boundary) == 600


@pytest.mark.ranks(1, 2)
def test_more_samples_than_the_memory_holds_are_refused_before_the_first(comm, common_path):
    from dataclasses import replace

    with pytest.raises(ValueError, match=r"10000000000000 samples .* GiB, this machine has"):
        generate(common_path / "data.h5", replace(SETTINGS, samples=10**13), ranks=comm)
    assert not list(common_path.iterdir())
