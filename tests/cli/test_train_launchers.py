"""``train`` and ``generate`` under mpiexec and torchrun: one result, one voice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forked

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.storage.dataset_file import Dataset

OPTIONS = ["--network", "sdnet", "--set", "width=16", "--epochs", "2", "--batch-size", "30"]
OPTIONS += ["--pde-weight", "1e-4", "--collocation", "4", "--optimizer", "adamw"]
MODULE = ["-m", "mosaicdd.cli.main"]


@pytest.fixture(scope="module")
def launch(mpiexec):
    """Return a function that runs a command on two ranks by a launcher."""
    torchrun = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node", "2"]
    launchers = {
        "mpiexec": [mpiexec, "-n", "2", sys.executable],
        "torchrun": [*torchrun, "--master-port", "29517"],
    }

    def run(launcher, *arguments):
        if launcher == "alone":
            process = Forked(["mosaicdd", *arguments])
            streams = process.communicate()
            return subprocess.CompletedProcess(arguments, process.returncode, *streams)
        command = [*launchers[launcher], *MODULE, *map(str, arguments)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=100, env=environment, check=False
        )

    return run


def test_every_launcher_trains_the_same_model(data, tmp_path, launch):
    figures = {}
    for launcher in ("alone", "mpiexec", "torchrun"):
        job = launch(launcher, "train", data, "-o", tmp_path / "model.h5", *OPTIONS, "--json")
        assert job.returncode == 0, job.stderr
        figures[launcher] = json.loads(job.stdout)  # one object: one rank speaks
        assert "Warning" not in job.stderr
    assert [f["ranks"] for f in figures.values()] == [1, 2, 2]
    alone = figures["alone"]["validation_mse"]
    for other in figures.values():
        # Rounding of float32, amplified by 18 steps of Adam.
        assert other["validation_mse"] == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize(
    "launcher", ["torchrun", pytest.param("mpiexec", marks=pytest.mark.nightly)]
)
def test_a_batch_smaller_than_the_ranks_is_one_line_of_one_rank(data, tmp_path, launch, launcher):
    job = launch(launcher, "train", data, "-o", tmp_path / "model.h5", "--batch-size", 1)
    lines = [line for line in job.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    assert "a batch of 1 samples cannot be shared out between 2 ranks" in lines[0]
    assert job.returncode == (2 if launcher == "mpiexec" else 1)  # torchrun has its own code


@pytest.mark.nightly
def test_generate_on_two_ranks_writes_the_dataset_of_one(tmp_path, launch):
    options = ["--cells", 8, "--size", 0.125, "--samples", 300, "--windows", 50, "--json"]
    figures = {}
    for launcher in ("alone", "mpiexec"):
        job = launch(launcher, "generate", tmp_path / f"{launcher}.h5", *options)
        assert job.returncode == 0, job.stderr
        figures[launcher] = json.loads(job.stdout)
    assert [f["ranks"] for f in figures.values()] == [1, 2]
    assert figures["alone"]["dataset_hash"] == figures["mpiexec"]["dataset_hash"]
    assert Dataset.read(tmp_path / "mpiexec.h5").subdomain == Subdomain(cells=8, size=0.125)
