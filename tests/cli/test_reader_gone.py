"""A reader of the output that has gone, as in ``mosaicdd solve ... | true``."""

import os
import sys

import pytest


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_the_exit_code_is_that_of_the_work(mosaicdd, tmp_path, monkeypatch, json):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        how = ("--cells", "32x32", "--boundary", "expr:x")
        solved = mosaicdd("solve", "-o", tmp_path / "out.h5", *how, *json)
        assert (solved.code, solved.err) == (0, "")
        stopped = mosaicdd(
            *("solve", "-o", tmp_path / "no.h5", *how, "--max-iterations", "1", "--rtol", "1e-12"),
            *("--local-solver", "laplace", *json),
        )
        assert stopped.code == 1
        assert mosaicdd("info", tmp_path / "out.h5").code == 0
        monkeypatch.undo()
