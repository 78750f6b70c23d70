"""Training as on more and more ranks, and by several optimisers, after Fig. 6 and 7 of the paper.

*Ranks*: a global batch that grows with them, as in the paper, the learning rate with its square root and
the warm-up with itself, the same epochs. A step on ``n`` ranks has the same gradient as one on a single
rank with that batch (``tests/training/test_ranks.py``), so one process stands for all of them. Each
number of ranks trains several seeds; the first one's models then solve larger domains.
*Optimisers*: each at three batches, the same epochs.
*Convolutions*: the paper's network against the same without them, the same processor time.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
from common import write_csv
from serial import local_solver, schwarz_solver

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import BoundarySpec
from mosaicdd.solvers.references import solve_by_sine_transform
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.loop import train
from mosaicdd.training.settings import TrainingSettings

_RANKS = (1, 2, 4, 8, 16, 32)
_BATCH = 64  # samples per rank
_PAPER = {"optimizer": "lamb", "clip": 1.0, "lr": 1e-3, "warmup": 1e-3}
_DOMAINS = (128, 256, 512, 1024)
_BATCHES = (64, 512, 4096)
_OPTIMISERS = {
    "LAMB as apex runs it": {"optimizer": "lamb", "lr": 3e-3},
    "LAMB, always adapting": {"optimizer": "lamb", "lr": 1e-2, "always_adapt": True},
    "AdamW": {"optimizer": "adamw", "lr": 3e-3},
    "Muon": {"optimizer": "muon", "lr": 3e-3},
    "SOAP": {"optimizer": "soap", "lr": 3e-3},
}
_POINTS = {"points": 64, "batch_size": 128, "epochs": 100_000}


SMALL = {"epochs": 1, "seeds": 1, "seconds": 0.5, "only": ["convolutions"]}


def main(
    data: str,
    *,
    epochs: int = 3,
    seeds: int = 10,
    seconds: float = 20.0,
    only: list[str] = ("optimisers", "convolutions", "ranks"),
) -> None:
    """Train everything; write ``fig6.csv``, ``fig7.csv``, ``optimisers.csv`` and ``convolutions.csv``."""
    samples = Dataset.read(data)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.h5"
        parts = {
            "optimisers": lambda: _by_optimisers(samples, model, epochs),
            "convolutions": lambda: _by_networks(samples, model, seconds),
            "ranks": lambda: _by_ranks(samples, model, epochs, seeds),
        }
        for name in only:
            parts[name]()


def _by_ranks(data: Dataset, model: Path, epochs: int, seeds: int) -> None:
    curves, errors = [], []
    for ranks in _RANKS:
        for seed in range(seeds):
            curves += _as_on(ranks, seed, data, model, epochs)
            if seed == 0:
                errors.append([ranks, *(f"{_error(model, size):.3e}" for size in _DOMAINS)])
        print(*curves[-1], flush=True)
    header = ["ranks", "seed", "epoch", "step", "cpu_seconds", "validation_mse"]
    write_csv("fig6", header, curves)
    write_csv("fig7", ["ranks", *(f"{size}" for size in _DOMAINS)], errors)


def _as_on(ranks: int, seed: int, data: Dataset, model: Path, epochs: int) -> Iterator[list]:
    """Train with the batch of so many ranks; yield the points of the curve."""
    settings = TrainingSettings(
        **_PAPER,
        batch_size=_BATCH * ranks,
        base_batch_size=_BATCH,
        epochs=epochs,
        validations=10,
        seed=seed,
    )
    reports: list = []
    with mock.patch("time.perf_counter", time.process_time):
        train(data, model, settings, progress=reports.append)
    for report in reports:
        epoch = report.progress * epochs
        yield [ranks, seed, f"{epoch:.2f}", report.step, *_point(report)]


def _point(report) -> list[str]:
    return [f"{report.seconds:.2f}", f"{report.validation_mse:.3e}"]


def _error(model: Path, size: int) -> float:
    """Return the mean absolute error on a square domain with ``g = sin(2 pi x)``."""
    solver = local_solver(str(model))
    grid = Grid((size, size), solver.subdomain.spacing)
    (boundary,) = BoundarySpec("expr:sin(2*pi*x)").boundaries(grid)
    outcome = schwarz_solver(solver, (size, size), SolveSettings(rtol=1e-8)).solve(boundary)
    truth = solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
    return float(np.abs(outcome.field.numpy() - truth).mean())


def _by_optimisers(data: Dataset, model: Path, epochs: int) -> None:
    rows = []
    for name, options in _OPTIMISERS.items():
        row = [name]
        for batch in _BATCHES:
            settings = TrainingSettings(
                **options, batch_size=batch, base_batch_size=256, epochs=epochs, validations=4
            )
            row.append(f"{train(data, model, settings).best.validation_mse:.1e}")
        rows.append(row)
        print(*row, flush=True)
    write_csv("optimisers", ["optimiser", *(f"batch {batch}" for batch in _BATCHES)], rows)


def _by_networks(data: Dataset, model: Path, seconds: float) -> None:
    rows = []
    for title, network in (("with convolutions", "sdnet"), ("without", "mlp")):
        settings = TrainingSettings(**_POINTS, max_seconds=seconds, validations=4)
        with mock.patch("time.perf_counter", time.process_time):
            result = train(data, model, settings, network=network)
        rows.append(
            [title, network, f"{seconds:g}", result.steps, f"{result.best.validation_mse:.1e}"]
        )
        print(*rows[-1], flush=True)
    header = ["first layers", "network", "seconds", "steps", "validation MSE"]
    write_csv("convolutions", header, rows)
