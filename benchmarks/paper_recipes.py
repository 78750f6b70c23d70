"""The paper's own training recipe, and each single change on the way to this package's own.

Every run has the same processor time on one core, its schedule included, and is judged on the same
held-out problems, those of the paper's kind of data. Each recipe is the one before it with one change;
the last rows leave out solutions or the PDE loss. The first recipe is ``data/paper.toml``.

    mosaicdd generate paper-data.h5 --length-scale 0.1 1 --amplitude 0.5 2 --noise 0
    mosaicdd generate laplace-data.h5

``--only`` are so many of the recipes, ``--output`` the CSV file in ``benchmarks/paper``, ``--models`` a folder to keep the
models in.
"""

import tempfile
import time
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common import ROOT, write_csv

from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.loop import train
from mosaicdd.training.settings import TrainingSettings

_RECIPE = ROOT / "data" / "paper.toml"
_COLUMNS = ["run", "recipe", "losses", "budget", "seconds", "step", "validation_mse", "window_mse"]


@dataclass(frozen=True)
class Recipe:
    """What a network is trained with.

    Parameters
    ----------
    title
        What differs from the recipe before.
    network, own, settings
        Its name, its settings and those of the training.
    noisy
        Whether the samples are this package's, short length scales and noise among them.
    """

    title: str
    network: str
    own: dict[str, Any] = field(default_factory=dict)
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    noisy: bool = False

    @property
    def losses(self) -> str:
        """Which losses it is trained on."""
        labels = "solutions" if self.settings.labels else "boundary data"
        return f"{labels}, PDE" if self.settings.pde_weight else labels


def recipes() -> list[Recipe]:
    """List the paper's recipe and what becomes of it, change by change."""
    told = tomllib.loads(_RECIPE.read_text())
    own, network = told.pop("settings"), told.pop("network")
    settings = TrainingSettings(**{name.replace("-", "_"): told[name] for name in told})
    paper = Recipe("the paper's recipe", network, own, settings)
    rows = [paper]

    def change(title: str, own: dict | None = None, **changes: Any) -> None:
        last = rows[-1]
        names = {"network", "noisy"} & changes.keys()
        outer = {name: changes.pop(name) for name in names}
        kept = last.own if own is None else last.own | own
        rows.append(
            replace(
                last, title=title, own=kept, settings=replace(last.settings, **changes), **outer
            )
        )

    change("Taylor propagation for double backward", laplacian="taylor")
    change("no PDE loss", pde_weight=0.0)
    change("lifting of degree 2, unit size", lifting="2")
    change("32 Fourier features", {"features": 32})
    change("points folded by the symmetries", {"symmetric": True})
    change("SOAP at 3e-3, not clipped", optimizer="soap", lr=3e-3, clip=0.0, warmup=0.01)
    change("short length scales and noise", noisy=True)
    rows.append(Recipe("linear in the boundary data", "linear", noisy=True))
    unlabelled = replace(settings, labels=False, laplacian="taylor")
    rows.append(Recipe("the paper's recipe by Taylor, no solutions", network, own, unlabelled))
    multilevel = replace(rows[-3].settings, labels=False, pde_weight=1.0, residual="multilevel")
    multilevel = replace(multilevel, points=0, batch_size=16)
    rows.append(
        Recipe(
            "ours, no solutions, residual on all grids", network, settings=multilevel, noisy=True
        )
    )
    return rows


SMALL = {"seconds": 0.3, "only": 1}


def main(
    paper_data: str,
    own_data: str,
    *,
    seconds: float = 30.0,
    only: int | None = None,
    output: str = "recipes",
    models: Path | None = None,
) -> None:
    """Train all recipes and write their curves."""
    of_paper, of_package = Dataset.read(paper_data), Dataset.read(own_data)
    curves = []
    for number, recipe in enumerate(recipes()[:only]):
        data = judged_alike(of_package, of_paper) if recipe.noisy else of_paper
        with tempfile.TemporaryDirectory() as temporary:
            model = Path(models or temporary) / f"recipe-{number}.h5"
            reports = curve(recipe, data, seconds, model)
        for report in reports:
            errors = (report.validation_mse, report.window_mse)
            row = [number, recipe.title, recipe.losses, f"{seconds:g}", f"{report.seconds:.1f}"]
            curves.append([*row, report.step, *(f"{error:.3e}" for error in errors)])
        print(" ".join(map(str, curves[-1])), flush=True)
        write_csv(output, _COLUMNS, curves)


def judged_alike(own: Dataset, paper: Dataset) -> Dataset:
    """Return a dataset of the first one's samples with the other's held-out problems and windows."""
    learned, held_out = slice(0, len(own.boundary) - own.held_out), slice(-paper.held_out, None)
    joined = {
        name: np.concatenate([getattr(own, name)[learned], getattr(paper, name)[held_out]])
        for name in ("boundary", "solution")
    }
    windows = {
        name: getattr(paper, name)
        for name in ("window_boundary", "window_solution", "window_parameters")
    }
    return replace(own, **joined, **windows)


def curve(recipe: Recipe, data: Dataset, seconds: float, model: Path) -> list:
    """Train for some seconds of processor time, by which the schedule goes, too."""
    reports: list = []
    validations = min(40, max(5, round(seconds / 2)))  # which take a good part of a short training
    settings = replace(
        recipe.settings, max_seconds=seconds, epochs=100_000, validations=validations
    )
    with mock.patch("time.perf_counter", time.process_time):
        train(
            *(data, model, settings),
            network=recipe.network,
            network_settings=recipe.own,
            progress=reports.append,
        )
    return reports
