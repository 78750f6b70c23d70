"""Whether the PDE loss replaces solutions: the paper's thesis, at numbers of samples from few to its own.

Our recipe of `paper_recipes` (SDNet, short length scales and noise) on so many solutions, without and with
the PDE loss, and on boundary data alone. Every training has the same processor time on one core, its
schedule included; all are judged on the same held-out problems, those of the paper's kind of data.

    mosaicdd generate paper-data.h5 --length-scale 0.1 1 --amplitude 0.5 2 --noise 0
    mosaicdd generate laplace-data.h5
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import write_csv
from paper_recipes import Recipe, curve, judged_alike, recipes

from mosaicdd.storage.dataset_file import Dataset

_SAMPLES = (200, 2_000, 18_000)
_COLUMNS = ["samples", "trained on", "budget", "steps", "validation MSE", "windows MSE"]

SMALL = {"seconds": 0.3}


def main(paper_data: str, own_data: str, *, seconds: float = 30.0) -> None:
    """Train on each number of samples for so many seconds each, and write what came out."""
    whole = judged_alike(Dataset.read(own_data), Dataset.read(paper_data))
    rows: list[list[str]] = []
    for samples in _SAMPLES:
        data = _first(whole, samples)
        for recipe in _trainings():
            with tempfile.TemporaryDirectory() as temporary:
                last = curve(recipe, data, seconds, Path(temporary) / "model.h5")[-1]
            errors = (f"{last.validation_mse:.1e}", f"{last.window_mse:.1e}")
            rows.append([str(samples), recipe.losses, f"{seconds:g}", str(last.step), *errors])
            print(*rows[-1], flush=True)
            write_csv("samples", _COLUMNS, rows)


def _trainings() -> list[Recipe]:
    """List our recipe for solutions, the same with the PDE loss, and that for boundary data alone."""
    by_title = {recipe.title: recipe for recipe in recipes()}
    unlabelled = by_title["ours, no solutions, residual on all grids"]
    both = replace(unlabelled, settings=replace(unlabelled.settings, labels=True))
    return [by_title["short length scales and noise"], both, unlabelled]


def _first(data: Dataset, samples: int) -> Dataset:
    """Return a dataset of the first samples and all held-out ones."""
    kept = np.r_[:samples, len(data.boundary) - data.held_out : len(data.boundary)]
    names = ("boundary", "solution", "parameters", "hyperparameters")
    shortened = {name: getattr(data, name)[kept] for name in names}
    return replace(data, **shortened, validation=data.held_out / len(kept))
