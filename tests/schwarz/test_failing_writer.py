"""What the root alone writes fails on all ranks: a program that catches the error goes on, on all of them."""

import h5py
import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.storage.metrics_file import MetricsFile
from mosaicdd.storage.solution_writer import SolutionWriter

RANKS = pytest.mark.ranks(1, 2, 3)
CUT = "hypot(x - 0.5, y - 0.5) - 0.4"


def _fail(*arguments, **options):
    raise OSError("the file is full of something else")


@RANKS
@pytest.mark.parametrize(
    "method",
    ["on_root", "create", "into", "inputs", "describe"],
)
def test_a_writer_that_fails_is_caught_on_all_ranks(common_path, monkeypatch, comm, method):
    domain = m.Domain.from_distance(CUT, (32, 32), 1 / 32)
    problem = m.Problem(
        domain, "diffusion", {"a": "1 + x", "f": 1.0}, {"outline": m.Dirichlet(0.0)}
    )
    with monkeypatch.context() as patch:
        patch.setattr(SolutionWriter, method, _fail)
        with pytest.raises(OSError, match="something else"):
            m.Solver(problem, ranks=comm, output=m.Output(common_path / "out.h5"))()
    assert comm.allreduce(1) == comm.size
    assert not (common_path / "out.h5").exists()
    assert m.Solver(problem, ranks=comm)().converged


@RANKS
@pytest.mark.parametrize(
    ("kind", "method"),
    [(h5py.Group, "create_dataset"), (h5py.Group, "__setitem__"), (h5py.Dataset, "__setitem__")],
)
def test_a_checkpoint_that_fails_is_caught_on_all_ranks(
    common_path, monkeypatch, comm, kind, method
):
    problem = m.Problem((64, 64), "laplace", None, m.Dirichlet("x"))
    output = m.Output(common_path / "out.h5", checkpoint_minutes=0)
    with monkeypatch.context() as patch:
        patch.setattr(kind, method, _fail)
        with pytest.raises(OSError, match="something else"):
            m.Solver(problem, "laplace", ranks=comm, output=output)()
    assert comm.allreduce(1) == comm.size


def test_rows_of_an_earlier_training_are_there_until_new_ones_are(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).append({"step": 1})
    before = path.read_text()
    monkeypatch.setattr("mosaicdd.storage.metrics_file.json_line", _fail)
    with pytest.raises(OSError, match="something else"):
        MetricsFile(path, kept=1)
    assert path.read_text() == before
