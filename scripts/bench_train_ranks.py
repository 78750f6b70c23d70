"""The same training on 1, 2 and 4 ranks: its curves, and the models' errors on large domains.

After Fig. 6 (validation MSE for several numbers of GPUs) and Fig. 7 (error of the predictor with
``g = sin(2 pi x)``, one model per number of GPUs) of the paper.

    python scripts/bench_train_ranks.py laplace-data.h5

takes about 4 minutes on two cores; the dataset is the one of ``data/README.md``.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from serial import local_solver, schwarz_solver
from tables import publish, table
from train_command import seconds_to, train

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.problems.sides.boundary import BoundarySpec
from mosaicdd.schwarz.settings import SolveSettings

_RANKS = (1, 2, 4)
_OPTIONS = ["--network", "linear", "--epochs", "12", "--validations", "12", "--optimizer", "adamw"]
_OPTIONS += ["--batch-size", "256", "--base-batch-size", "256"]
_DOMAINS = (128, 256, 512, 1024)


def main() -> None:
    """Train, solve, print the tables and write them to ``benchmarks/``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    data = parser.parse_args().data
    torch.set_num_threads(1)
    curves, errors = [], []
    with tempfile.TemporaryDirectory() as folder:
        for ranks in _RANKS:
            model = Path(folder) / f"{ranks}.h5"
            figures, metrics = train(data, model, ranks, *_OPTIONS)
            shown = [row for row in metrics if row["step"]][::3]
            curve = [f"{row['validation_mse']:.4e}" for row in shown]
            seconds = [seconds_to(1e-4, metrics), f"{figures['seconds']:.1f}"]
            curves.append([str(ranks), *curve, *seconds])
            errors.append([str(ranks), *(f"{_error(model, size):.3e}" for size in _DOMAINS)])
    steps = [f"step {row['step']}" for row in shown]
    text = (
        "The same global batch of 256 on all numbers of ranks, so the same steps to rounding.\n\n"
        "Validation MSE (after Fig. 6, where batches grow with the ranks; here they are equal by construction):\n\n"
        f"{table(['ranks', *steps, 'seconds to 1e-4', 'seconds'], curves)}\n\n"
        "MAE of the predictor with g = sin(2 pi x) against the 5-point solution (after Fig. 7):\n\n"
        f"{table(['ranks', *(f'{n} x {n}' for n in _DOMAINS)], errors)}\n\n"
        "The paper: all numbers of GPUs end within 1.5e-6 of each other (MSE), and the predictor's "
        "error does not depend on it. Seconds on a shared machine with two cores: four ranks gain "
        "nothing there."
    )
    publish("train_ranks", "Training on 1, 2 and 4 ranks", text)


def _error(model: Path, size: int) -> float:
    """Solve on a square domain; return the mean absolute error."""
    solver = local_solver(str(model))
    settings = SolveSettings(rtol=1e-8)
    schwarz = schwarz_solver(solver, (size, size), settings)
    grid = Grid((size, size), solver.subdomain.spacing)
    (boundary,) = BoundarySpec("expr:sin(2*pi*x)").boundaries(grid)
    field = schwarz.solve(boundary).field.numpy()
    return float(
        abs(
            field - solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
        ).mean()
    )


if __name__ == "__main__":
    main()
