"""Nothing is lost: killed, interrupted and damaged trainings continue where they were."""

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from forked import Forked

import mosaicdd.cli.main as command_line
from mosaicdd.storage.checkpoint_file import read_training_checkpoint
from mosaicdd.storage.model_file import read_model

OPTIONS = (
    "--network sdnet --set width=16 --set channels=2 --points 8 "
    "--pde-weight 1e-4 --collocation 4 --epochs 6 --batch-size 16"
)
OFTEN = "--checkpoint-minutes 1e-6"
COMMAND = [sys.executable, "-m", "mosaicdd.cli.main", "train"]
PATIENCE = 60  # seconds


@pytest.fixture
def run(data, mosaicdd):
    """Return a function that trains a model as the one that is killed was to be."""
    return lambda model, words="": mosaicdd(f"train {data} -o {model} {OPTIONS} {words}")


def forked(data, model, words):
    return Forked(shlex.split(f"mosaicdd train {data} -o {model} {OPTIONS} {words}"))


def checkpoints(folder):
    return sorted(folder.glob("model.h5.checkpoint-*"))


def wait_for(condition, process):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.fixture(scope="module")
def killed(data, tmp_path_factory):
    """Return the folder of a training that kill -9 ended at a random step."""
    folder = tmp_path_factory.mktemp("killed")
    process = forked(data, folder / "model.h5", OFTEN)
    wait_for(lambda: len(checkpoints(folder)) == 2, process)
    time.sleep(np.random.default_rng().uniform(0, 0.5))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "model.h5").exists()
    return folder


@pytest.fixture
def folder(killed, tmp_path):
    """Return a copy of it, for one test."""
    return shutil.copytree(killed, tmp_path / "copy")


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Return the model of the same training without interruption."""
    path = tmp_path_factory.mktemp("whole") / "model.h5"
    process = forked(data, path, "")
    errors = process.communicate(PATIENCE)
    assert process.returncode == 0, errors
    return read_model(path)


def require_same_model(path, whole):
    card, weights = read_model(path)
    assert card.validation == whole[0].validation
    assert card.training["steps"] == whole[0].training["steps"]
    for name, values in whole[1].items():
        np.testing.assert_array_equal(weights[name], values)


def test_a_killed_training_continues_bitwise(run, folder, whole):
    assert checkpoints(folder)
    ended = run(folder / "model.h5", "--resume --json")
    assert ended.code == 0, ended.err
    require_same_model(folder / "model.h5", whole)
    assert not checkpoints(folder)  # of no use any more
    rows = (folder / "model.h5.metrics.jsonl").read_text().splitlines()
    steps = [json.loads(row)["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 96)


def test_a_damaged_newest_checkpoint_is_passed_over_and_the_one_used_is_named(
    run, folder, whole, caplog
):
    older, newest = checkpoints(folder)
    os.truncate(newest, newest.stat().st_size // 2)
    ended = run(folder / "model.h5", "--resume")
    assert ended.code == 0, ended.err
    assert f"continuing from {older}" in caplog.text + ended.err
    assert str(newest) in caplog.text + ended.err
    require_same_model(folder / "model.h5", whole)


def test_a_changed_byte_is_noticed(folder):
    newest = checkpoints(folder)[-1]
    content = bytearray(newest.read_bytes())
    _, state = read_training_checkpoint(newest)
    pattern = state["weights"]["boundary_layer.weight"].numpy().tobytes()
    content[content.index(pattern) + 5] ^= 1
    newest.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        read_training_checkpoint(newest)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lr 1e-4", "belongs to another training ... its lr is 0.003, not 0.0001"),
        ("--network linear --set depth=2", "belongs to another training"),
        ("--seed 7", "belongs to another training ... its seed is 0, not 7"),
    ],
)
def test_changed_settings_are_refused_in_one_line(data, folder, refuse, words, message):
    options = OPTIONS.split(" --points")[1] if "linear" in words else f" {OPTIONS}"
    options = f"--points{options}" if "linear" in words else options
    refuse(f"train {data} -o {folder}/model.h5 {options} {words} --resume", message)
    assert len(checkpoints(folder)) == 2


def test_resuming_without_a_whole_checkpoint_is_refused(data, folder, refuse):
    for path in checkpoints(folder):
        path.write_bytes(b"no")
    words = f"train {data} {OPTIONS} --resume -o"
    refuse(f"{words} {folder}/model.h5", "no checkpoint is whole")
    refuse(f"{words} other.h5", "there is no checkpoint; start without --resume")


def test_a_full_disk_leaves_the_previous_checkpoint_whole(data, run, folder, whole):
    before = {path: path.read_bytes() for path in checkpoints(folder)}
    limit = min(map(len, before.values())) // 2

    def on_a_full_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        words = f"mosaicdd train {data} -o {folder}/model.h5 {OPTIONS} {OFTEN} --resume"
        sys.argv = shlex.split(words)
        command_line.main()

    job = Forked(on_a_full_disk)
    _, errors = job.communicate(PATIENCE)
    assert job.returncode == 1, errors
    newest = checkpoints(folder)[-1]
    lines = [line for line in errors.splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    assert "could not be written" in lines[0]
    assert f"the last good checkpoint is {newest}" in lines[0]
    assert {path: path.read_bytes() for path in checkpoints(folder)} == before
    assert run(folder / "model.h5", "--resume").code == 0
    require_same_model(folder / "model.h5", whole)


def test_divergence_names_the_step_and_the_last_good_checkpoint(run, tmp_path):
    # Weights of 1e15 and more: their squares leave float32 after a few steps.
    ended = run(tmp_path / "model.h5", f"--optimizer adamw --lr 1e15 {OFTEN}")
    assert ended.code == 1
    newest = checkpoints(tmp_path)[-1]
    assert f"at step {int(newest.name[-9:]) + 1} of 96" in ended.err
    assert f"the last good checkpoint is {newest}" in ended.err


def test_after_sigusr1_the_exit_code_says_that_a_checkpoint_is_there(data, tmp_path):
    process = forked(data, tmp_path / "model.h5", "--epochs 2000")
    metrics = tmp_path / "model.h5.metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size, process)  # it is training
    process.send_signal(signal.SIGUSR1)  # as Slurm does before the time is up
    stdout, stderr = process.communicate(PATIENCE)
    assert process.returncode == os.EX_TEMPFAIL, stderr
    (newest,) = checkpoints(tmp_path)
    assert f"the last good checkpoint is {newest}: continue with --resume" in stdout


@pytest.mark.nightly
def test_sigterm_to_one_of_two_ranks_stops_all_with_a_checkpoint(data, whole, tmp_path, mpiexec):
    model, pids = tmp_path / "model.h5", tmp_path / "pids"
    pids.mkdir()
    shell = f'echo $$ > {pids}/$PMI_RANK.new; mv {pids}/$PMI_RANK.new {pids}/$PMI_RANK; exec "$@"'
    options = [str(data), "-o", str(model), *OPTIONS.split(), "--epochs", "2000", "--json"]
    process = subprocess.Popen(
        [mpiexec, "-n", "2", "sh", "-c", shell, "sh", *COMMAND, *options, *OFTEN.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
    )
    wait_for(lambda: len(checkpoints(tmp_path)) == 2, process)
    os.kill(int((pids / "1").read_text()), signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == os.EX_TEMPFAIL, stderr
    figures = json.loads(stdout)
    assert figures["status"] == "interrupted"
    newest = checkpoints(tmp_path)[-1]
    assert int(newest.name[-9:]) == figures["steps"]
    _, state = read_training_checkpoint(newest)  # whole
    assert state["step"] == figures["steps"]
    assert not model.exists()
