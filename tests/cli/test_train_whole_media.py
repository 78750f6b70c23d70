"""``train --dims``: whole media, made and learned by the commands, and what is refused."""

import re

import h5py
import numpy as np
import pytest

from mosaicdd.storage.hdf5 import reseal
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.data import generate
from mosaicdd.training.settings import MediaSettings


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        ("conductances", ["--dims", "3x2"], r"dims 3x2 need 6 ranks, there are \d"),
        ("conductances", ["--dims", "1x2", "--replicas", 2], "dims 1x2 need 4 ranks|must divide"),
        ("conductances", ["--dims", "1x1x1"], "dims 1x1x1: media are of the plane"),
    ],
)
def test_meshes_and_networks_that_do_not_fit_are_refused(
    lesson_data, comm, common_path, mosaicdd, network, options, message
):
    ended = mosaicdd(
        "train", lesson_data("whole"), "-o", common_path / "m.h5", "--network", network, *options
    )
    assert ended.code == 2
    assert re.search(message, ended.err)
    assert not list(common_path.glob("m.h5*"))


@pytest.mark.ranks(2)
def test_data_that_do_not_fit_are_refused_on_all_ranks(lesson_data, comm, common_path, mosaicdd):
    media, squares = lesson_data("whole"), lesson_data("conductances")
    broken, odd = common_path / "broken.h5", common_path / "odd.h5"
    generate(odd, MediaSettings(cells=36, samples=2, validation=0.5), ranks=comm)
    if comm.rank == 0:
        broken.write_bytes(media.read_bytes())
        with h5py.File(broken, "r+") as file:
            file["solution"][1, 1, 2, -3] = np.nan
        reseal(broken)
    comm.Barrier()
    for data, message in (
        (broken, "the solution of rows 0 to 2 must be finite"),
        (odd, "2 ranks along x do not divide media of 36 cells into parts of a multiple of 4, 32"),
        (squares, "dims 2x1: what conductances learns from here are small problems"),
    ):
        how = ["--network", "conductances", "--dims", "2x1"]
        ended = mosaicdd("train", data, "-o", common_path / "m.h5", *how)
        assert ended.code == 2
        assert message in ended.err
        assert not list(common_path.glob("m.h5*"))


@pytest.mark.ranks(1, 2)
def test_the_commands_make_and_learn_whole_media(comm, common_path, mosaicdd):
    data, model = common_path / "m.h5", common_path / "model.h5"
    drawn = ["--media", "--pde", "diffusion", "--cells", 64, "--samples", 3, "--validation", 0.3]
    assert mosaicdd("generate", data, *drawn).code == 0
    assert MediaDataset.read(data).cells == 64
    how = ["--network", "conductances", "--batch-size", 1, "--epochs", 1, "--validations", 1]
    how += ["--set", "filters=3", "--set", "width=4", "--dims", f"{comm.size}x1"]
    assert mosaicdd("train", data, "-o", model, *how, "--dry-run").code == 0
    assert not model.exists()
    comm.Barrier()
    assert mosaicdd("train", data, "-o", model, *how).code == 0
    assert model.is_file()
