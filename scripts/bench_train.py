"""Training time to the paper's validation MSE of 2.5e-6, and models of 1, 2 and 4 ranks.

After Fig. 6 (validation MSE over time for several numbers of GPUs) and Fig. 7 (error of the
predictor with ``g = sin(2 pi x)`` for one model per number of GPUs) of the paper.

    python scripts/bench_train.py laplace-data.h5

takes about 15 minutes on two cores; the dataset is the one of ``data/README.md``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from serial import local_solver, schwarz_solver
from tables import publish, table

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary_spec import boundary_of_spec
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.references import solve_by_sine_transform
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import StoppingRule
from mosaicdd.storage.metrics_file import read_metrics

_TARGET = 2.5e-6
_POINTS = ["--points", "64", "--batch-size", "128", "--epochs", "400"]
# Each network with its best recipe; the schedule ends with the time.
_RECIPES = {
    "linear": (8, []),
    "sdnet": (220, _POINTS),
    "deeponet": (60, ["--epochs", "400"]),
    "mlp": (60, _POINTS),
}
_DOMAINS = (128, 256, 512, 1024)


def main() -> None:
    """Train, solve, print the tables and write them to ``benchmarks/``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--networks", nargs="*", default=list(_RECIPES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [_race(options.data, name, 1, Path(folder)) for name in options.networks]
        rows += [_race(options.data, "linear", ranks, Path(folder)) for ranks in (2, 4)]
        errors = [_errors(Path(folder), ranks) for ranks in (1, 2, 4)]
    header = ["network", "ranks", "seconds to 2.5e-6", "final MSE", "windows MSE", "after seconds"]
    race = table([*header, "samples/s"], rows)
    domains = [f"{n} x {n}" for n in _DOMAINS]
    predictor = table(["`linear`, trained on", *domains], errors)
    text = (
        f"Validation MSE over time; a run ends, with its schedule, after a set time.\n\n{race}\n\n"
        "The paper (Fig. 6): over 30 minutes on one A30, 2 minutes on 32.\n\n"
        f"MAE of the predictor with g = sin(2 pi x) against the 5-point solution (Fig. 7):\n\n"
        f"{predictor}\n\nThe paper: no difference between models of 1 to 32 GPUs."
    )
    publish("train", "Training to the paper's error", text)


def _model(folder: Path, name: str, ranks: int) -> Path:
    return folder / f"{name}-{ranks}.h5"


def _race(data: str, name: str, ranks: int, folder: Path) -> list[str]:
    """Train a network and find when it first reached the target."""
    seconds, options = _RECIPES[name]
    model = _model(folder, name, ranks)
    command = [sys.executable, "-m", "mosaicdd.cli.main", "train", data, "-o", str(model), "--json"]
    command += ["--network", name, "--max-seconds", str(seconds), *options]
    if ranks > 1:
        beside = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        command = [beside, "-n", str(ranks), *command]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    job = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    figures = json.loads(job.stdout)
    rows = read_metrics(f"{model}.metrics.jsonl")
    reached = [row["seconds"] for row in rows if row["validation_mse"] <= _TARGET]
    return [
        name,
        str(ranks),
        f"{reached[0]:.1f}" if reached else "not reached",
        f"{figures['validation_mse']:.1e}",
        f"{figures['window_mse']:.1e}",
        f"{figures['seconds']:.0f}",
        f"{figures['samples_per_second']:.0f}",
    ]


def _errors(folder: Path, ranks: int) -> list[str]:
    """Solve on several domains with the model of some ranks."""
    solver = local_solver(str(_model(folder, "linear", ranks)))
    settings = SolveSettings(stopping=StoppingRule(rtol=1e-8))
    cells = [f"{ranks} rank{'s' * (ranks > 1)}"]
    for size in _DOMAINS:
        schwarz = schwarz_solver(solver, (size, size), settings)
        boundary = boundary_of_spec(
            "expr:sin(2*pi*x)", Grid((size, size), solver.subdomain.spacing)
        )
        field = schwarz.solve(boundary).field.numpy()
        error = abs(field - solve_by_sine_transform(LAPLACE, boundary)).mean()
        cells.append(f"{error:.1e}")
    return cells


if __name__ == "__main__":
    main()
