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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--validation", "2"], "validation fraction"),
        (["--pde", "nothing"], "unknown pde 'nothing'"),
        (["--cells", "7"], "even number"),
        (["--cells", "8x8x6"], "a subdomain has as many along each axis"),
        (["--pde", "poisson-boltzmann"], "poisson-boltzmann is not linear"),
        (["--cells", "8x8x8", "--pde", "screened-poisson"], "of cubes give their values"),
        (["--method", "guess"], "guess"),
    ],
)
def test_generate_refuses_bad_input_in_one_line(tmp_path, options, message):
    result = run(generate, tmp_path / "data.h5", *SMALL, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_output_folder_that_does_not_exist_is_refused_before_any_work(data, tmp_path):
    missing = tmp_path / "missing" / "out.h5"
    for result in (run(generate, missing), run(train, data, "-o", missing)):
        assert result.exit_code == 2
        assert "does not exist" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--set", "wide=3"], "no setting 'wide'"),
        (["--set", "width"], "NAME=VALUE"),
        (["--lifting", "-1"], "lifting must be a degree from 0, or none, got -1"),
    ],
)
def test_train_refuses_bad_input_in_one_line(data, tmp_path, options, message):
    result = run(train, data, "-o", tmp_path / "model.h5", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_train_refuses_what_is_not_a_dataset(tmp_path):
    (tmp_path / "data.h5").write_text("no")
    for name, message in (("data.h5", "not a complete"), ("none.h5", "missing")):
        result = run(train, tmp_path / name, "-o", tmp_path / "model.h5")
        assert result.exit_code == 2
        assert message in result.stderr


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
