"""Bad output of ``solve``: one line, exit code 2, on every number of ranks, and nothing written."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.ranks(1, 2)
EXACT = ("--local-solver", "exact")
BOUNDARY = ("--boundary", "gp:seed=0")


def test_an_output_folder_that_does_not_exist(refused):
    line = refused(*EXACT, output="missing/out.h5")
    assert line.startswith("Error: --output: ")
    assert "does not exist; create it first" in line


@contextmanager
def unprivileged():
    """Be another user for a while where this is root, whom no permission stops."""
    if root := os.geteuid() == 0:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)


def test_an_output_folder_that_is_read_only(mosaicdd, comm):
    how = ("--cells", "64x64", *BOUNDARY, *EXACT)
    # The folders of tests are closed to other users.
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    assert mosaicdd("solve", "-o", folder / "before.h5", *how).code == 0  # has imported everything
    if comm.rank == 0:
        folder.chmod(0o555)
    comm.Barrier()
    with unprivileged():
        ended = mosaicdd("solve", "-o", folder / "out.h5", *how)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(f": the folder {folder} is read-only; choose another one\n")
    comm.Barrier()
    assert os.listdir(folder) == ["before.h5"]
    comm.Barrier()
    if comm.rank == 0:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_an_output_that_is_a_folder(mosaicdd, common_path):
    ended = mosaicdd("solve", "-o", common_path, "--cells", "64x64", *EXACT)
    assert ended.code == 2
    assert (
        ended.err == f"Error: --output: {common_path} is a folder, the name of a file is needed\n"
    )


def test_an_output_that_is_a_pipe(mosaicdd, common_path, comm):
    # Renaming would replace it; as root, even /dev/null.
    path = common_path / "pipe"
    if comm.rank == 0:
        os.mkfifo(path)
    comm.Barrier()
    ended = mosaicdd("solve", "-o", path, "--cells", "64x64", *EXACT)
    assert ended.code == 2
    assert ended.err.startswith(f"Error: --output: {path} is no regular file")
    assert path.is_fifo()
