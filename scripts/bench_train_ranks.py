"""The same training on 1, 2 and 4 ranks: its curves, and the models' errors on large domains.

After Fig. 6 (validation MSE for several numbers of GPUs) and Fig. 7 (error of the predictor with
``g = sin(2 pi x)``, one model per number of GPUs) of the paper.

    python scripts/bench_train_ranks.py laplace-data.h5

takes about 4 minutes on two cores; the dataset is the one of ``data/README.md``.

    python scripts/bench_train_ranks.py --rows

prints instead, in two minutes of a quiet machine with two cores, the samples per second on two ranks over those on
one, of the networks that learn from rows of a dataset.

    python scripts/bench_train_ranks.py --whole 1024 --memory 2048

trains ``conductances`` on whole media of 1024 cells on meshes of 1, 2 and 4 ranks, compares losses and gradients with those
of one rank, counts the solves, and measures the memory of a step at 2048; some 20 minutes of two cores.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from ranks import mosaicdd, on_ranks
from serial import local_solver, schwarz_solver
from tables import publish, table
from train_command import seconds_to, train

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.problems.sides.edge_data import BoundarySpec
from mosaicdd.schwarz.settings import SolveSettings

_RANKS = (1, 2, 4)
_OPTIONS = ["--network", "linear", "--epochs", "12", "--validations", "12", "--optimizer", "adamw"]
_OPTIONS += ["--batch-size", "256", "--base-batch-size", "256"]
_DOMAINS = (128, 256, 512, 1024)
# Networks, samples, and what these are of.
_ROWS = {
    "conductances": ("512", "--media", "--pde", "diffusion"),
}


def main() -> None:
    """Train, solve, print the tables and write them to ``benchmarks/``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--whole", type=int, metavar="CELLS")
    parser.add_argument("--memory", type=int, metavar="CELLS")
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    if asked.whole:
        _whole(asked.whole, asked.memory, asked.steps)
        return
    if asked.rows:
        _rows()
        return
    data = asked.data
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


def _rows() -> None:
    """Time trainings on rows, on one rank and on two."""
    with tempfile.TemporaryDirectory() as folder:
        for network, (samples, *kind) in _ROWS.items():
            data, model = f"{folder}/{network}.h5", Path(folder) / "model.h5"
            mosaicdd(2, "generate", data, "--samples", samples, *kind)
            options = ("--network", network, "--epochs", "20", "--validations", "1")
            rates = []
            for ranks in (1, 2):
                begun, *_, ended = train(data, model, ranks, *options)[1]
                steps, seconds = (ended[key] - begun[key] for key in ("step", "seconds"))
                rates.append(256 * steps / seconds)
            print(
                f"{network}: {rates[0]:.0f} samples/s, on two ranks {rates[1] / rates[0]:.2f} times"
            )


# Ranks, and options of `train_steps.py`.
_MESHES = {
    "1": (1,),
    "1x2": (2, "--dims", "2", "1"),
    "1x2, zero1": (2, "--dims", "2", "1", "--sharding", "zero1"),
    "1x2, fsdp": (2, "--dims", "2", "1", "--sharding", "fsdp"),
    "2x2": (4, "--dims", "2", "2"),
    "2 replicas of 1x2": (4, "--dims", "2", "1", "--replicas", "2"),
    "2 replicas of 1x2, hybrid": (4, "--dims", "2", "1", "--replicas", "2", "--sharding", "hybrid"),
}
_BATCH, _PROBLEMS = 2, 2  # media of a step, and problems in each
_FILTERS = 8  # of a network that is quicker than the usual one, of 32


def _whole(cells: int, large: int | None, steps: int) -> None:
    """Train through the solve of whole media on several meshes, and write the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = _media(folder, cells)
        for mesh, how in _MESHES.items():
            gradient = f"{folder}/{len(rows)}.npy"
            checked = () if rows else ("--differences",)
            small = "--filters", str(_FILTERS), "--steps", str(steps)
            ours = _steps(data, gradient, *how, *small, *checked)
            if not rows:
                alone, slopes = ours, np.load(gradient)
            away = abs(np.array(ours["losses"]) / alone["losses"] - 1).max()
            wrong = abs(np.load(gradient) - slopes).max() / abs(slopes).max()
            media = _BATCH * steps
            solves = ours["solves"] / (media * _PROBLEMS)
            rows.append([mesh, f"{away:.0e}", f"{wrong:.0e}", f"{solves:g}"])
        peaks = []
        for mesh in ("1", "2x2") if large else ():
            single = ("--steps", "1", "--batch", "1", "--precision", "float32")
            peak = _steps(_media(folder, large), gradient, *_MESHES[mesh], *single)["peak"]
            peaks.append([mesh, f"{peak:.0f}"])
    text = (
        f"`conductances`, of {_FILTERS} filters, on media of {cells} x {cells} cells, batches of {_BATCH}, in float64, {steps} "
        "steps of AdamW on each mesh. "
        "Largest relative difference of the losses from one rank's, of the first gradient from one rank's, over its largest "
        "entry, and solves of a rank per problem and medium (two groups have a medium each, or one of them both):\n\n"
        f"{table(['mesh', 'losses', 'gradient', 'solves'], rows)}\n\n"
        f"Ten derivatives on one rank are those of central differences to {alone['differences']:.0e}."
    )
    if peaks:
        text += (
            f"\n\nLargest resident memory of a rank after a step of 32 filters on a medium of {large} x {large} cells, in float32, "
            f"Python and torch included:\n\n{table(['mesh', 'MB'], peaks)}"
        )
    publish("train_whole_media", "Training through the solve of whole media", text)


def _media(folder: str, cells: int) -> str:
    """Make media of so many cells, if they are not there."""
    data = f"{folder}/{cells}.h5"
    if not Path(data).exists():
        drawn = ("--media", "--pde", "diffusion", "--samples", "3", "--validation", "0.34")
        mosaicdd(1, "generate", data, "--cells", str(cells), *drawn)
    return data


def _steps(data: str, gradient: str, ranks: int, *options: str) -> dict:
    """Train some steps on a mesh."""
    worker = str(Path(__file__).with_name("train_steps.py"))
    return json.loads(on_ranks(ranks, worker, data, gradient, *options).splitlines()[-1])


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
