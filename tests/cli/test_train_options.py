"""Options of ``train``: all fields of its settings, from flags or TOML, and their refusals."""

import importlib.util
import json
from dataclasses import fields

import pytest
from click.testing import CliRunner

from mosaicdd.cli import train_options
from mosaicdd.cli.train import train
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.dataset_file import write_dataset
from mosaicdd.storage.model_file import read_model
from mosaicdd.training import settings as settings_module
from mosaicdd.training.dataset import generate_dataset
from mosaicdd.training.execution_settings import SHARDINGS, ExecutionSettings
from mosaicdd.training.generation_settings import GenerationSettings
from mosaicdd.training.settings import TrainingSettings

OWN = """
from mosaicdd.local_solvers.networks.deeponet import DeepONet

class Mine(DeepONet):
    pass

class Lacking:
    pass
"""


def run(*arguments):
    return CliRunner().invoke(train, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.h5"
    settings = GenerationSettings(
        subdomain=Subdomain(cells=8, size=0.125), samples=100, windows=20, method="direct"
    )
    write_dataset(path, generate_dataset(settings))
    return path


def test_every_setting_is_an_option_with_the_choices_that_it_knows():
    names = {param.name for param in train.params}
    for kind in (TrainingSettings, ExecutionSettings):
        assert {field.name for field in fields(kind)} <= names
    known = settings_module._CHOICES | {"sharding": SHARDINGS}
    assert {k: tuple(v) for k, v in train_options._CHOICES.items()} == known


def test_settings_come_from_toml_and_flags_override_them(data, tmp_path):
    config, model = tmp_path / "train.toml", tmp_path / "model.h5"
    config.write_text(
        'network = "mlp"\nepochs = 2\nbatch-size = 30\noptimizer = "adamw"\nlabels = true\n'
        "[settings]\nwidth = 12\ndepth = 2\n"
    )
    result = run(data, "-o", model, "--config", config, "--epochs", 1, "--set", "depth=1", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"] == 3
    card, _ = read_model(model)
    assert (card.network, card.settings["width"], card.settings["depth"]) == ("mlp", 12, 1)
    chosen = {"epochs": 1, "batch_size": 30, "optimizer": "adamw", "micro_batch": 0}
    assert card.training.items() >= chosen.items()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "train has no option 'epoch'"),
        ("epochs = ", "not TOML"),
        ("settings = 3", "settings must be a table"),
        ('epochs = "many"', "'many' is not a valid integer"),
        ("[settings]\nwide = 3", "no setting 'wide'"),
    ],
)
def test_a_wrong_config_is_refused_in_one_line(data, tmp_path, text, message):
    config = tmp_path / "train.toml"
    config.write_text(text)
    result = run(data, "-o", tmp_path / "model.h5", "--config", config)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--network", "resnet"], "unknown network 'resnet'; known: deeponet, linear, mlp"),
        (["--network", "mine:Lacking"], "lacks the base class torch.nn.Module"),
        (["--network", "mine:Gone"], "cannot be imported"),
        (["--sharding", "zero1"], "there is 1; start several, as in mpiexec"),
        (["--no-labels"], "needs a PDE loss"),
        (["--no-labels", "--pde-weight", "1"], "kinks where it folds points"),
        (["--optimizer", "sgd"], "'sgd' is not one of"),
        (["--lr", "nan"], "learning rate must be positive"),
        (["--resume"], "there is no checkpoint; start without --resume"),
        (["--config", "none.toml"], "there is no such file"),
    ],
)
def test_bad_options_are_refused_in_one_line(data, tmp_path, monkeypatch, options, message):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    result = run(data, "-o", "model.h5", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "model.h5").exists()


def test_a_truncated_dataset_and_one_of_another_equation_are_refused(data, tmp_path):
    import h5py

    truncated, other = tmp_path / "truncated.h5", tmp_path / "other.h5"
    truncated.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    other.write_bytes(data.read_bytes())
    with h5py.File(other, "r+") as file:
        file.attrs["pde"] = "heat"
    for path, message in ((truncated, "not a complete dataset"), (other, "unknown pde 'heat'")):
        result = run(path, "-o", tmp_path / "model.h5")
        assert result.exit_code == 2
        assert message in result.stderr


def test_a_network_of_the_users_own_trains_and_names_itself(data, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    result = run(data, "-o", "model.h5", "--network", "mine:Mine", "--epochs", 1)
    assert result.exit_code == 0, result.output
    assert read_model("model.h5")[0].network == "mine:Mine"


def test_a_dry_run_prints_memory_per_level_and_trains_nothing(data, tmp_path):
    result = run(data, "-o", tmp_path / "model.h5", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "lowest level that fits: --sharding none" in result.stdout
    figures = json.loads(run(data, "-o", tmp_path / "model.h5", "--dry-run", "--json").stdout)
    assert figures["fits"] == "none"
    parts = ("weights", "gradients", "optimiser", "activations", "samples")
    (level,) = figures["levels"]
    assert level["total"] == sum(level[part] for part in parts)
    assert not list(tmp_path.iterdir())


def test_tensorboard_gets_the_metrics_of_the_other_file(data, tmp_path):
    pytest.importorskip("tensorboard")
    folder, model = tmp_path / "events", tmp_path / "model.h5"
    options = ("--epochs", 2, "--set", "width=8", "--tensorboard", folder)
    assert run(data, "-o", model, *options).exit_code == 0
    (events,) = folder.iterdir()
    assert b"validation_mse" in events.read_bytes()


def test_a_missing_tensorboard_is_one_line_before_any_work(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "tensorboard" else find(name, *a),
    )
    # Before the dataset is looked for.
    result = run(tmp_path / "none.h5", "-o", tmp_path / "model.h5", "--tensorboard", tmp_path)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: --tensorboard: the package tensorboard is not installed: pip")
