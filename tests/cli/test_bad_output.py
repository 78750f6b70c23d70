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
