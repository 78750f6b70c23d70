"""Calls of ``mosaicdd train`` for the benchmarks, alone or under mpiexec."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from mosaicdd.storage.metrics_file import read_metrics


def train(data: str, model: Path, ranks: int, *options: str) -> tuple[dict, list[dict]]:
    """Train a model; return what the command says, and its metrics."""
    command = [sys.executable, "-m", "mosaicdd.cli.main", "train", data, "-o", str(model), "--json"]
    if ranks > 1:
        beside = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        command = [str(beside), "-n", str(ranks), *command]
    job = subprocess.run(
        [*command, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return json.loads(job.stdout), read_metrics(f"{model}.metrics.jsonl")


def seconds_to(target: float, metrics: list[dict]) -> str:
    """Return when the validation MSE first was at a target."""
    reached = [row["seconds"] for row in metrics if row["validation_mse"] <= target]
    return f"{reached[0]:.1f}" if reached else "not reached"
