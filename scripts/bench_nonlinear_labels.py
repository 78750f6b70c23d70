"""Networks for nonlinear equations that learn from solutions, and those that learn from the equation alone.

Usage: bench_nonlinear_labels.py EQUATION [EPOCHS [SAMPLES]], by default 80 and 8192: generates squares with and without
labels, and trains for as many steps on each. The same squares are held out of both, and solved in both. One thread,
float32; seconds are the processor's. The error on held-out squares is relative, as is that of fields on 512 x 512 cells over smooth random boundary
data that no training has seen, against certified solutions. Rows go to ``benchmarks/nonlinear_labels.csv`` and
``nonlinear_labels.md``.
"""

import csv
import sys
import tempfile
import time
from pathlib import Path

import torch
from bench_nonlinear_networks import random_problem, reference, relative
from tables import BENCHMARKS, publish, table

import mosaicdd as m
from mosaicdd.training.settings import SquareSettings, TrainingSettings

NETWORKS = {"poisson-boltzmann": "correction", "minimal-surface": "unrolled"}
_SEEDS = (911, 1, 2)
_CELLS = 512
_COLUMNS = (
    "equation",
    "labels",
    "squares",
    "s for data",
    "steps",
    "s of training",
    "held-out error",
    *(f"field, seed {seed}" for seed in _SEEDS),
)
_FILE = BENCHMARKS / "nonlinear_labels.csv"


def row(equation: str, epochs: int, samples: int, *, labels: bool) -> list[object]:
    """Generate, train, solve."""
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder) / "squares.h5", Path(folder) / "model.h5"
        begun = time.process_time()
        m.generate(data, SquareSettings(equation, samples=samples, labels=labels))
        generated = time.process_time()
        settings = TrainingSettings(labels=labels, epochs=epochs)
        best = m.train(data, model, settings, network=NETWORKS[equation]).best
        trained = time.process_time()
        errors = [field_error(equation, str(model), seed) for seed in _SEEDS]
    word, seconds = "yes" if labels else "no", (generated - begun, trained - generated)
    return [
        equation,
        word,
        samples,
        seconds[0],
        best.step,
        seconds[1],
        best.figures["error"],
        *errors,
    ]


def field_error(equation: str, model: str, seed: int) -> float:
    """Return the relative error of a field."""
    one = random_problem(equation, _CELLS, "smooth", seed)
    truth = reference(f"{equation}-{_CELLS}-smooth-{seed}", one)
    return relative(m.solve(one, model, settings=m.SolveSettings(rtol=1e-5)).field, truth)


def keep(rows: list[list[object]]) -> list[list[str]]:
    """Put rows into the file, in the place of those of the same equation and labels; return all."""
    known: list[list[str]] = []
    if _FILE.exists():
        with _FILE.open(newline="") as file:
            known = list(csv.reader(file))[1:]
    new = [[str(v) if isinstance(v, (int, str)) else f"{v:.3g}" for v in one] for one in rows]
    measured = [one[:2] for one in new]
    every = sorted([one for one in known if one[:2] not in measured] + new, key=lambda one: one[:2])
    with _FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *every])
    return every


def main(equation: str, epochs: int = 80, samples: int = 8192) -> None:
    """Measure, and write the table."""
    torch.set_num_threads(1)
    rows = [row(equation, epochs, samples, labels=labels) for labels in (True, False)]
    text = (
        f"{table(list(_COLUMNS), keep(rows))}\n\nBy `python scripts/bench_nonlinear_labels.py`; its head says "
        "what was measured. Without labels, squares are solved for the validation alone."
    )
    publish("nonlinear_labels", "Networks for nonlinear equations with and without labels", text)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
