"""``train`` of networks that learn from rows of a dataset: on any ranks, and what they refuse."""

import h5py
import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.storage.hdf5 import reseal
from mosaicdd.storage.metrics_file import read_metrics
from mosaicdd.training.course import LESSONS, find_lesson

pytestmark = pytest.mark.ranks(1, 2)
CASES = tuple(LESSONS)
OWN = """
from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator

OWN = Equation(name="own", text="-lap u = f", parameters={}, operator=EllipticOperator)
"""


@pytest.mark.parametrize("case", CASES)
def test_data_are_made_and_every_network_is_trained_from_python(
    lesson_data, small_networks, comm, common_path, case
):
    model, reports = common_path / "model.h5", []
    settings = m.TrainingSettings(epochs=1, batch_size=4, validations=1)
    result = m.train(
        lesson_data(case),
        model,
        settings,
        network=case,
        network_settings=small_networks[case],
        progress=reports.append,
        ranks=comm,
    )
    assert result.finished
    assert result.card.network == case
    assert result.card.dataset_hash == find_lesson(case).read(lesson_data(case)).content_hash
    assert result.card.training["ranks"] == comm.size
    assert result.figures["error"] == min(report.error for report in reports)
    assert model.is_file()
    assert [row["error"] for row in read_metrics(f"{model}.metrics.jsonl")] == [
        report.error for report in reports
    ]


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        ("conductances", ["--pde-weight", 0.5], "no use for --pde-weight 0.5: it has no loss at"),
        ("conductances", ["--points", 5], "no use for --points 5: it learns at nodes of its own"),
        ("conductances", ["--lifting", "none"], "no use for --lifting none: nothing is lifted"),
        (
            "conductances",
            ["--precision", "bf16"],
            "it trains in float32, float64, tf32; leave it out",
        ),
        ("conductances", ["--recompute"], "cannot recompute its hidden layers"),
        ("conductances", ["--no-labels"], "conductances learns from solutions alone: leave"),
        ("conductances", ["--pde", "own.py:OWN"], "--pde: it is the equation own, the data are of"),
        ("conductances", ["--set", "filter=2"], "no setting 'filter' (did you mean 'filters'?)"),
        ("conductances", ["--batch-size", 1, "--sharding", "fsdp"], "rank"),
        (
            "unrolled",
            [],
            "the network 'unrolled' has left: nonlinear equations are solved by Newton",
        ),
        ("family", ["--points", 5], "no use for --points 5: it learns from solutions alone"),
    ],
)
def test_what_a_network_cannot_use_is_refused_on_all_ranks(
    lesson_data, comm, common_path, mosaicdd, monkeypatch, network, options, message
):
    monkeypatch.chdir(common_path)
    case = {"family": "linear", "unrolled": "conductances"}.get(network, network)
    if comm.rank == 0:
        (common_path / "own.py").write_text(OWN)
    comm.Barrier()
    if case == "linear":
        data = common_path / "linear.h5"
        settings = m.GenerationSettings(samples=8, windows=1, method="direct")
        m.generate(data, settings, ranks=comm)
    else:
        data = lesson_data(case)
    ended = mosaicdd("train", data, "-o", "model.h5", "--network", network, *options)
    assert ended.code == 2
    assert message in ended.err
    assert not list(common_path.glob("model*"))


def test_what_is_not_finite_in_the_rows_of_one_rank_is_refused_on_all(
    lesson_data, comm, common_path, mosaicdd
):
    path = common_path / "broken.h5"
    if comm.rank == 0:
        path.write_bytes(lesson_data("conductances").read_bytes())
        with h5py.File(path, "r+") as file:
            file["solution"][24, 1, 2, 2] = np.nan
        reseal(path)
    else:
        lesson_data("conductances")
    comm.Barrier()
    ended = mosaicdd("train", path, "-o", common_path / "m.h5", "--network", "conductances")
    assert ended.code == 2
    assert "the solution of rows" in ended.err
    assert "to 24 must be finite" in ended.err
    assert not (common_path / "m.h5.metrics.jsonl").exists()
