"""The command line, run inside the ranks of the test, and problems for it to solve."""

import json
import sys
from dataclasses import dataclass

import h5py
import pytest

import mosaicdd.cli.main as command_line
from mosaicdd.problems.boundary import Boundary
from mosaicdd.storage.boundary_file import write_boundary


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit codes and output of all ranks.

    Parameters
    ----------
    codes
        One per rank.
    out, err
        What all ranks printed, rank by rank.
    """

    codes: list[int]
    out: str
    err: str

    @property
    def code(self) -> int:
        """The exit code of all ranks, which must agree."""
        assert len(set(self.codes)) == 1, f"exit codes {self.codes}:\n{self.err}"
        return self.codes[0]


@pytest.fixture
def mosaicdd(comm, monkeypatch, capfd):
    """Return a function that runs ``mosaicdd ARGUMENTS`` on all ranks of the test."""
    # The job must survive a fault of the program to report it.
    monkeypatch.setattr(command_line, "abort_all_ranks", lambda: None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mosaicdd", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        out, err = capfd.readouterr()
        return Ended(
            comm.allgather(ended.value.code),
            "".join(comm.allgather(out)),
            "".join(comm.allgather(err)),
        )

    return run


@pytest.fixture
def write_edges(comm):
    """Return a function that writes the edges of a field to a boundary file, once for all ranks."""

    def write(path, field):
        if comm.rank == 0:
            with h5py.File(path, "w") as file:
                write_boundary(file, Boundary.of_field(field))
        comm.Barrier()
        return path

    return write


@pytest.fixture
def strict_json():
    """Return a function that parses exactly one JSON object, without Python's NaN and Infinity."""

    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    def parse(text):
        assert text.count("\n") == 1
        return json.loads(text, parse_constant=refuse)

    return parse
