"""``generate`` and ``train`` on the command line: their JSON, their files, options from flags and TOML."""

import json
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest

import mosaicdd as m
from mosaicdd.cli.main import cli
from mosaicdd.schwarz.local_solvers.loading import find_local_solver
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import read_model

PAPER = Path(__file__).parents[2] / "data" / "paper.toml"
SMALL = "--cells 8 --size 0.125 --samples 200 --windows 50"


@pytest.fixture
def train(data, mosaicdd, tmp_path, monkeypatch):
    """Return a function that trains model.h5 in a folder of the test's: how that ended, and the model's card."""
    monkeypatch.chdir(tmp_path)

    def run(words):
        ended = mosaicdd(f"train {data} -o model.h5 {words}")
        assert ended.code == 0, ended.err
        return ended, read_model("model.h5")[0]

    return run


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("train", (m.TrainingSettings, m.ExecutionSettings)), ("generate", (m.GenerationSettings,))],
)
def test_every_setting_is_an_option_with_its_default_help_and_choices(command, kinds):
    options = {param.name: param for param in cli.get_command(None, command).params}
    for entry in (entry for kind in kinds for entry in fields(kind) if entry.metadata):
        option = options[entry.name]
        assert (option.default, option.help) == (entry.default, entry.metadata["help"])
        choices = getattr(option.type, "choices", ())
        assert tuple(choices) == entry.metadata["choices"]


def test_help_imports_no_torch():
    script = "import sys, mosaicdd.cli.main, mosaicdd.cli.train, mosaicdd.cli.generate"
    script += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_train_prints_one_json_object_and_writes_a_model(train, tmp_path):
    ended, card = train("--epochs 2 --set width=16 --json")
    figures = json.loads(ended.out)
    times = {"seconds", "samples_per_second", "steps", "status", "ranks"}
    assert set(figures) == times | {"validation_mse", "window_mse", "network", "parameters", "model"}  # fmt: skip
    assert figures["model"] == "model.h5"
    assert (tmp_path / "model.h5.png").read_bytes().startswith(b"\x89PNG")
    rows = [*map(json.loads, (tmp_path / "model.h5.metrics.jsonl").read_text().splitlines())]
    assert rows[0]["data_loss"] is None  # before the first step
    assert rows[-1]["step"] == figures["steps"]
    assert figures["validation_mse"] in [row["validation_mse"] for row in rows]
    assert (card.network, card.settings["width"]) == ("linear", 16)
    assert card.validation["mse"] == figures["validation_mse"]
    assert find_local_solver("model.h5").as_trained().linear


def test_options_that_are_not_given_are_the_defaults_of_the_settings(train):
    _, card = train("--max-seconds 1 --epochs 1")
    assert card.training.items() >= asdict(m.TrainingSettings(max_seconds=1.0, epochs=1)).items()


def test_settings_come_from_toml_and_flags_override_them(train, tmp_path):
    (tmp_path / "train.toml").write_text(
        'network = "mlp"\nepochs = 2\nbatch-size = 90\noptimizer = "adamw"\nlabels = true\n'
        "[settings]\nwidth = 12\ndepth = 2\n"
    )
    ended, card = train("--config train.toml --epochs 1 --set depth=1 --json")
    assert json.loads(ended.out)["steps"] == 3
    assert (card.network, card.settings["width"], card.settings["depth"]) == ("mlp", 12, 1)
    chosen = {"epochs": 1, "batch_size": 90, "optimizer": "adamw", "micro_batch": 0}
    assert card.training.items() >= chosen.items()


def test_an_sdnet_trains_with_the_pde_loss(train):
    _, card = train("--network sdnet --epochs 1 --pde-weight 1e-4 --collocation 4")
    assert (card.network, card.training["pde_weight"]) == ("sdnet", 1e-4)
    assert not find_local_solver("model.h5").as_trained().linear


def test_a_network_of_faces_is_made_for_cubes_and_refused_on_rectangles(mosaicdd, refuse, tmp_path, monkeypatch):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    learn = "--network faces --no-labels --batch-size 16 --epochs 40 --lr 0.01"
    solve = "solve -o out.h5 --boundary expr:x*y --spacing 0.1 --local-solver model.h5"
    for words in (
        "generate cubes.h5 --samples 40 --windows 20 --cells 4x4x4",
        f"train cubes.h5 -o model.h5 {learn}",
        f"{solve} --cells 6x4x8",
    ):
        assert mosaicdd(words).code == 0
    rectangle = "is of cubes, and 32x32 cells are a rectangle: take 'exact', or"
    refuse(f"{solve} --cells 32x32", rectangle)
    other = "the network linear is not for cubes of 4x4x4 cells"
    refuse("train cubes.h5 -o other.h5", other)


def test_without_json_a_short_training_prints_one_line_and_says_what_it_replaces(train):
    outputs = [train("--epochs 1")[0].out for _ in range(2)]
    for out in outputs:
        assert len(out.splitlines()) == 1
        assert "validation MSE" in out
    assert ["(replaced)" in out for out in outputs] == [False, True]


def test_a_dataset_that_is_there_is_replaced_only_with_overwrite(mosaicdd, refuse, tmp_path):
    generated = mosaicdd(f"generate {tmp_path / 'data.h5'} {SMALL} --json")
    dataset = Dataset.read(tmp_path / "data.h5")
    assert json.loads(generated.out)["dataset_hash"] == dataset.content_hash
    refuse(f"generate data.h5 {SMALL}", "--overwrite")
    assert mosaicdd(f"generate data.h5 {SMALL} --seed 1 --overwrite").code == 0
    assert Dataset.read(tmp_path / "data.h5").seed == 1


def test_a_network_of_the_users_own_trains_and_names_itself(train, tmp_path):
    own = "from mosaicdd.networks.trunk import DeepONet\n\nclass Mine(DeepONet):\n    pass\n"
    (tmp_path / "of_the_user.py").write_text(own)
    assert train("--network of_the_user:Mine --epochs 1")[1].network == "of_the_user:Mine"


def test_a_dry_run_prints_memory_per_level_and_trains_nothing(data, mosaicdd, tmp_path):
    words = f"train {data} -o {tmp_path / 'model.h5'} --dry-run"
    assert "lowest level that fits: --sharding none" in mosaicdd(words).out
    figures = json.loads(mosaicdd(f"{words} --json").out)
    assert figures["fits"] == "none"
    parts = ("weights", "gradients", "optimiser", "activations", "samples")
    (level,) = figures["levels"]
    assert level["total"] == sum(level[part] for part in parts)
    assert not list(tmp_path.iterdir())


def test_tensorboard_gets_the_metrics_of_the_other_file(train, tmp_path):
    pytest.importorskip("tensorboard")
    train("--epochs 2 --set width=8 --tensorboard events")
    (events,) = (tmp_path / "events").iterdir()
    assert b"validation_mse" in events.read_bytes()


def test_without_labels_the_pde_loss_is_the_default(train):
    ended, card = train("--no-labels --epochs 60 --batch-size 90")
    assert (card.training["pde_weight"], card.training["residual"]) == (1.0, "multilevel")
    assert "far off" not in ended.err
    assert card.validation["relative_error"] < 0.1


def test_a_model_that_is_far_off_ends_with_a_word_about_it(train):
    ended, card = train("--epochs 1 --lr 1e-9")
    share = card.validation["relative_error"]
    assert share > 0.1
    assert f"far off: its validation error is {share:.0%} of what the lifting" in ended.err
    assert "--epochs" in ended.err


def test_the_paper_s_recipe_trains_its_network_without_a_lifting(train, mosaicdd):
    _, card = train(f"--config {PAPER} --epochs 1")
    assert (card.network, card.lifting_degree) == ("sdnet", None)
    assert (card.settings["features"], card.settings["symmetric"]) == (0, False)
    how = {"optimizer": "lamb", "always_adapt": False, "clip": 1.0, "pde_weight": 256.0}
    assert card.training.items() >= how.items()
    solve = "solve -o out.h5 --cells 32x32 --boundary expr:x --local-solver model.h5"
    assert json.loads(mosaicdd(f"{solve} --certify 1e-8 --json").out)["status"] == "converged_rtol"
