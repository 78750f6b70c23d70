"""Problems for the command line to solve, and what interrupts it."""

import shlex
import signal

import numpy as np
import pytest

from mosaicdd.schwarz.engine import Engine
from mosaicdd.solution.checkpoints import Checkpoints


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


def _contents(folder):
    """Return what lies in a folder, and of files how much."""
    files = (p for p in folder.rglob("*") if not p.is_dir() and p.parent.name != "__pycache__")
    return {p: p.lstat().st_size for p in files}


@pytest.fixture
def refuse(mosaicdd, comm, common_path, monkeypatch):
    """Return a function: a command line is refused at once, in one line of these parts, and nothing is written.

    Parts of the line are parted by `` ... ``; of ``files``, by their names, those that the words name are made.
    """

    def make(words, files):
        for name in (n for n in files if n in words or n.replace(".py", ":") in words):
            content, path = files[name], common_path / name
            if callable(content):
                content(path)
            elif isinstance(content, str):
                path.write_text(content)
            else:
                np.save(path, content)

    def run(words, message, files=()):
        monkeypatch.chdir(common_path)
        if comm.rank == 0:
            make(words, files)
        monkeypatch.setattr(Engine, "solve_many", lambda *_, **__: pytest.fail("work was begun"))
        comm.Barrier()
        before = _contents(common_path)
        comm.Barrier()
        ended = mosaicdd(words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("Error: ")
        assert ended.err.count("\n") == 1, ended.err
        for part in message.replace("RANKS", str(comm.size)).split(" ... "):
            assert part in ended.err
        comm.Barrier()
        assert _contents(common_path) == before
        comm.Barrier()

    return run


@pytest.fixture
def succeed(mosaicdd, common_path, monkeypatch):
    """Return a function: a command line that ends well, or with ``code``, in a folder of all ranks; what it prints."""

    def run(words, code=0):
        monkeypatch.chdir(common_path)
        ended = mosaicdd(words)
        assert ended.code == code, ended.err
        return ended.out

    return run


@pytest.fixture
def report_of(succeed, strict_json):
    """Return a function: the report of a command line in JSON."""
    return lambda words, code=0: strict_json(succeed(f"{words} --json", code))


@pytest.fixture
def error_of(report_of):
    """Return a function: the largest error of a file against a reference."""
    return lambda path, to="direct": report_of(
        f"compare {path} --reference {shlex.quote(str(to))}"
    )["max_error"]
