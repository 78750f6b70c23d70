"""``generate`` and ``train`` on the command line: their JSON, their files, their refusals."""

import json

import pytest
from click.testing import CliRunner

from mosaicdd.cli.generate import generate
from mosaicdd.cli.train import train
from mosaicdd.local_solvers.loading import find_local_solver
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.metrics_file import read_metrics

SMALL = ["--cells", "8", "--size", "0.125", "--samples", "200", "--windows", "50"]


def run(command, *arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.h5"
    result = run(generate, path, *SMALL, "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert figures["dataset_hash"] == Dataset.read(path).content_hash
    return path


def test_train_prints_one_json_object_and_writes_a_model(data, tmp_path):
    model = tmp_path / "model.h5"
    result = run(train, data, "-o", model, "--epochs", 2, "--set", "width=16", "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert set(figures) == {
        "status",
        "validation_mse",
        "window_mse",
        "steps",
        "seconds",
        "samples_per_second",
        "ranks",
        "network",
        "parameters",
        "model",
    }
    assert figures["model"] == str(model)
    assert (tmp_path / "model.h5.png").read_bytes().startswith(b"\x89PNG")
    rows = read_metrics(tmp_path / "model.h5.metrics.jsonl")
    assert rows[0]["data_loss"] is None  # before the first step
    assert rows[-1]["step"] == figures["steps"]
    assert figures["validation_mse"] in [row["validation_mse"] for row in rows]
    solver = find_local_solver(str(model)).as_trained()
    assert solver.linear
    assert solver.network.settings.width == 16
    assert solver.card.validation["mse"] == figures["validation_mse"]


def test_an_sdnet_trains_with_the_pde_loss(data, tmp_path):
    model = tmp_path / "model.h5"
    options = ("--network", "sdnet", "--epochs", 1, "--pde-weight", 1e-4, "--collocation", 4)
    assert run(train, data, "-o", model, *options).exit_code == 0
    assert not find_local_solver(str(model)).as_trained().linear


def test_a_network_of_faces_is_made_for_cubes_and_refused_on_rectangles(tmp_path, mosaicdd):
    data, model, out = (tmp_path / name for name in ("data.h5", "model.h5", "out.h5"))
    few = ("--samples", 40, "--windows", 20, "--cells", "4x4x4")
    assert run(generate, data, *few).exit_code == 0
    learn = ("--network", "faces", "--no-labels", "--batch-size", 16, "--epochs", 40, "--lr", 0.01)
    assert run(train, data, "-o", model, *learn).exit_code == 0
    refused = run(train, data, "-o", tmp_path / "other.h5")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "the network linear is not for cubes of 4x4x4 cells" in refused.stderr
    solve = ("solve", "-o", out, "--boundary", "expr:x*y", "--spacing", "0.1", "--local-solver")
    ended = mosaicdd(*solve, model, "--cells", "32x32")
    assert (ended.code, ended.err.count("\n"), out.exists()) == (2, 1, False)
    assert "is of cubes, and 32x32 cells are a rectangle: take 'exact', or" in ended.err
    assert mosaicdd(*solve, model, "--cells", "6x4x8").code == 0


def test_without_json_a_short_training_prints_one_line(data, tmp_path):
    result = run(train, data, "-o", tmp_path / "model.h5", "--epochs", 1)
    assert len(result.stdout.splitlines()) == 1
    assert "validation MSE" in result.stdout


def test_a_dataset_that_is_there_is_replaced_only_with_overwrite(data, tmp_path):
    path = tmp_path / "data.h5"
    path.write_bytes(data.read_bytes())
    result = run(generate, path, *SMALL)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "--overwrite" in result.stderr
    assert path.read_bytes() == data.read_bytes()
    assert run(generate, path, *SMALL, "--seed", 1, "--overwrite").exit_code == 0
    assert Dataset.read(path).seed == 1
