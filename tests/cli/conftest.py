"""Problems for the command line to solve, and what interrupts it."""

import signal

import h5py
import numpy as np
import pytest

from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.results.checkpoints import Checkpoints
from mosaicdd.storage.inputs import write_boundaries


@pytest.fixture
def signalled(mosaicdd, monkeypatch):
    """Return a function: ``mosaicdd ARGUMENTS``, and a signal once the first checkpoint is written."""

    def run(number, *arguments, checkpoints=Checkpoints):
        save, sent = checkpoints.save, []

        def save_and_signal(self, *given):
            save(self, *given)
            if not sent:
                sent.append(number)
                signal.raise_signal(number)

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save", save_and_signal)
            return mosaicdd(*arguments, "--checkpoint-minutes", "1e-6")

    return run


@pytest.fixture
def quick_layout(monkeypatch):
    """Let parts of pictures overlap: that they do not takes half of the time, and tests/report looks at it."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, drawing: None)


@pytest.fixture
def write_edges(comm):
    """Return a function that writes the edges of a field to a boundary file, once for all ranks."""

    def write(path, field):
        if comm.rank == 0:
            with h5py.File(path, "w") as file:
                write_boundaries(file, [Boundary.of_field(field)])
        comm.Barrier()
        return path

    return write


@pytest.fixture
def write(comm, common_path):
    """Return a function that writes an array or a text to a file, once for all ranks."""

    def write(name, content):
        if comm.rank == 0:
            if isinstance(content, str):
                (common_path / name).write_text(content)
            else:
                np.save(common_path / name, content)
        comm.Barrier()
        return common_path / name

    return write


@pytest.fixture
def solve_json(mosaicdd, common_path, strict_json):
    """Return a function that runs ``solve --json`` to a named file: exit code, report and path of the solution."""

    def run(*arguments, name="out"):
        path = common_path / f"{name}.h5"
        ended = mosaicdd("solve", "-o", path, "--json", *arguments)
        assert ended.err == ""
        return ended.code, strict_json(ended.out), path

    return run


@pytest.fixture
def refused(mosaicdd, comm, common_path):
    """Return a function that runs ``solve``, checks that it is refused, and returns the line."""

    def run(*arguments, output="out.h5", cells="256x128"):
        output = common_path / output
        boundary = ("--boundary", "gp:seed=0")
        ended = mosaicdd("solve", "-o", output, "--cells", cells, *boundary, *arguments)
        assert ended.code == 2
        assert ended.out == ""
        assert ended.err.startswith("Error: ")
        assert ended.err.count("\n") == 1, ended.err
        comm.Barrier()
        assert not output.is_file()
        # Not even under a temporary name.
        assert not list(common_path.glob("*out*"))
        return ended.err.rstrip()

    return run
