"""Options of ``train``: all fields of its settings, from flags or TOML, and their refusals."""

import json
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from mosaicdd.cli.generate import generate
from mosaicdd.cli.solve import solve
from mosaicdd.cli.train import train
from mosaicdd.storage.model_file import read_model
from mosaicdd.training.settings import ExecutionSettings, GenerationSettings, TrainingSettings

PAPER = Path(__file__).parents[2] / "data" / "paper.toml"
OWN = """
from mosaicdd.local_solvers.networks.trunk import DeepONet

class Mine(DeepONet):
    pass

class Lacking:
    pass
"""


def run(*arguments):
    return CliRunner().invoke(train, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("command", "kinds"),
    [(train, (TrainingSettings, ExecutionSettings)), (generate, (GenerationSettings,))],
    ids=("train", "generate"),
)
def test_every_setting_is_an_option_with_its_default_help_and_choices(command, kinds):
    options = {param.name: param for param in command.params}
    for entry in (entry for kind in kinds for entry in fields(kind) if entry.metadata):
        option = options[entry.name]
        assert (option.default, option.help) == (entry.default, entry.metadata["help"])
        choices = getattr(option.type, "choices", ())
        assert tuple(choices) == entry.metadata["choices"]


def test_options_that_are_not_given_are_the_defaults_of_the_settings(data, tmp_path):
    command = ("-o", tmp_path / "model.h5", "--max-seconds", "1", "--epochs", "1")
    assert run(data, *command).exit_code == 0
    defaults = asdict(TrainingSettings(max_seconds=1.0, epochs=1))
    card, _ = read_model(tmp_path / "model.h5")
    assert card.training.items() >= defaults.items()


def test_help_imports_no_torch():
    script = "import sys, mosaicdd.cli.main, mosaicdd.cli.train, mosaicdd.cli.generate"
    script += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_settings_come_from_toml_and_flags_override_them(data, tmp_path):
    config, model = tmp_path / "train.toml", tmp_path / "model.h5"
    config.write_text(
        'network = "mlp"\nepochs = 2\nbatch-size = 90\noptimizer = "adamw"\nlabels = true\n'
        "[settings]\nwidth = 12\ndepth = 2\n"
    )
    result = run(data, "-o", model, "--config", config, "--epochs", 1, "--set", "depth=1", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"] == 3
    card, _ = read_model(model)
    assert (card.network, card.settings["width"], card.settings["depth"]) == ("mlp", 12, 1)
    chosen = {"epochs": 1, "batch_size": 90, "optimizer": "adamw", "micro_batch": 0}
    assert card.training.items() >= chosen.items()


def test_a_network_of_the_users_own_trains_and_names_itself(data, tmp_path, monkeypatch, mosaicdd):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    ended = mosaicdd("train", data, "-o", "model.h5", "--network", "mine:Mine", "--epochs", 1)
    assert ended.code == 0, ended.err
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


def test_without_labels_the_pde_loss_is_the_default(data, tmp_path):
    model = tmp_path / "model.h5"
    result = run(data, "-o", model, "--no-labels", "--epochs", 60, "--batch-size", 90)
    assert result.exit_code == 0, result.output
    card, _ = read_model(model)
    assert (card.training["pde_weight"], card.training["residual"]) == (1.0, "multilevel")
    assert "far off" not in result.stderr
    assert card.validation["relative_error"] < 0.1


def test_a_model_that_is_far_off_ends_with_a_word_about_it(data, tmp_path):
    model = tmp_path / "model.h5"
    result = run(data, "-o", model, "--epochs", 1, "--lr", "1e-9")
    assert result.exit_code == 0, result.output
    share = read_model(model)[0].validation["relative_error"]
    assert share > 0.1
    assert f"far off: its validation error is {share:.0%} of what the lifting" in result.stderr
    assert "--epochs" in result.stderr


def test_a_model_that_is_replaced_is_said_to_be(data, tmp_path):
    model = tmp_path / "model.h5"
    outputs = [run(data, "-o", model, "--epochs", 1).stdout for _ in range(2)]
    assert ["(replaced)" in output for output in outputs] == [False, True]


def test_the_paper_s_recipe_trains_its_network_without_a_lifting(data, tmp_path):
    model = tmp_path / "model.h5"
    assert run(data, "-o", model, "--config", PAPER, "--epochs", "1").exit_code == 0
    card = read_model(model)[0]
    assert (card.network, card.lifting_degree) == ("sdnet", None)
    assert (card.settings["features"], card.settings["symmetric"]) == (0, False)
    how = {
        name: card.training[name] for name in ("optimizer", "always_adapt", "clip", "pde_weight")
    }
    assert how == {"optimizer": "lamb", "always_adapt": False, "clip": 1.0, "pde_weight": 256.0}
    cells = ("--cells", "32x32", "--boundary", "expr:x", "--json")
    solved = CliRunner().invoke(
        solve,
        [*cells, "-o", str(tmp_path / "out.h5"), "--local-solver", str(model), "--certify", "1e-8"],
    )
    assert json.loads(solved.stdout)["status"] == "converged_rtol"
