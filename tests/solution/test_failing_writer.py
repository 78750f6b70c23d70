"""What the root alone writes fails on all ranks: a program that catches the error goes on, on all of them."""

import h5py
import pytest

import mosaicdd as m
from mosaicdd.storage.field_file import RawFrames
from mosaicdd.storage.metrics_file import MetricsFile
from mosaicdd.storage.solution_writer import SolutionWriter

RANKS = pytest.mark.ranks(1, 2, 3)
CUT = "hypot(x - 0.5, y - 0.5) - 0.4"


def _fail(*arguments, **options):
    raise OSError("the file is full of something else")


@RANKS
@pytest.mark.parametrize("method", ["on_root", "create", "into", "inputs", "describe"])
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


HOT = m.Problem((32, 32), "heat", {"f": "1"}, m.Dirichlet("x"))
LAPLACE = m.Problem((64, 64), "laplace", None, m.Dirichlet("x"))
POINTS = [(0.1, 0.2), (0.3, 0.4), (0.5, 0.6)]
_set = h5py.Dataset.__setitem__


def _fail_at_values(array, place, values):
    if array.name == "/values":
        _fail()
    _set(array, place, values)


WRITES = {
    "values at points": (
        lambda comm, out: m.solve(
            LAPLACE, ranks=comm, output=m.Output(out), keep="interface", points=POINTS
        ),
        lambda: (h5py.Dataset, "__setitem__", _fail_at_values),
    ),
    "lines": (
        lambda comm, out: m.solve(LAPLACE, ranks=comm, output=m.Output(out), keep="interface"),
        lambda: (h5py.Dataset, "__setitem__"),
    ),
    "frames": (
        lambda comm, out: m.march(HOT, 0.0, dt=0.1, steps=2, ranks=comm, output=m.Output(out)),
        lambda: (RawFrames, "write"),
    ),
    "series": (
        lambda comm, out: m.march(HOT, 0.0, dt=0.1, steps=2, ranks=comm, output=m.Output(out)),
        lambda: (h5py.Dataset, "__setitem__"),
    ),
    "saved series": (
        lambda comm, out: m.march(HOT, 0.0, dt=0.1, steps=2, ranks=comm).save(out),
        lambda: (h5py.Group, "create_dataset"),
    ),
    "saved solution": (
        lambda comm, out: m.solve(LAPLACE, ranks=comm).save(out),
        lambda: (h5py.Dataset, "__setitem__"),
    ),
    "shards": (
        lambda comm, out: m.solve(LAPLACE, ranks=comm, output=m.Output(out, shards=True)),
        lambda: (h5py.Dataset, "__setitem__"),
    ),
}


@RANKS
@pytest.mark.limit(60)
@pytest.mark.parametrize("what", WRITES)
def test_what_the_root_cannot_write_is_the_same_error_on_all_ranks(
    common_path, monkeypatch, comm, what
):
    write, place = WRITES[what]
    with monkeypatch.context() as patch:
        if comm.rank == 0:
            kind, method, *fail = place()
            patch.setattr(kind, method, *(fail or [_fail]))
        with pytest.raises(OSError, match="the file is full of something else") as failed:
            write(comm, common_path / "out.h5")
    assert len(set(comm.allgather(str(failed.value)))) == 1
    assert not (common_path / "out.h5").exists()
    write(comm, common_path / "out.h5")
    comm.Barrier()
    assert (common_path / "out.h5").exists()
