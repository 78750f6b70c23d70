"""Fig. 1 of the paper, drivers and halos, and the choices that the method rests on, each left out.

*Fig. 1*: 128 x 128 from a Gaussian process, the difference to pyAMG; and the picture.
*Drivers*: iterations and seconds of every way to drive the iteration, and of every kind of halo on two
ranks. *Lifting*: linear networks of the same training under liftings of no, 0th, 1st and 2nd degree, on
growing domains. *Fill*: the field from tiles, from the mean of all overlapping subdomains (the paper's
way), and from the subdomain in whose middle a node lies. ``--model``: of the paper's own recipe, for
Fig. 1; ``--seconds``: of training, per lifting.
"""

import tempfile
import time
from unittest import mock

import matplotlib
import numpy as np
import torch
from common import PAPER, mosaicdd, write_csv
from serial import local_solver, schwarz_solver

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.references import solve_by_multigrid, solve_by_sine_transform
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.loop import train
from mosaicdd.training.settings import TrainingSettings

_SIZES = (128, 256, 512, 1024)
_DRIVERS = {
    "one level, four phases": {"levels": 1},
    "one level, additive": {"levels": 1, "sweep": "additive"},
    "one level, additive, GMRES": {"levels": 1, "accelerate": "gmres"},
    "two levels": {"accelerate": "none"},
    "two levels, Chebyshev (default)": {},
    "two levels, GMRES": {"accelerate": "gmres"},
    "two levels, Anderson": {"accelerate": "anderson"},
}
_HALOS = {
    "two ranks, depth 1 (default)": [],
    "two ranks, depth 2": ["--halo-depth", "2"],
    "two ranks, depth 3": ["--halo-depth", "3"],
    "two ranks, float32 halos": ["--halo-dtype", "float32"],
}


SMALL = {"only": ["fig1"]}


def main(
    data: str,
    *,
    model: str | None = None,
    only: list[str] = ("fig1", "fill", "drivers", "lifting"),
    seconds: float = 10.0,
) -> None:
    """Run all of it; write ``fig1``, ``drivers``, ``lifting`` and ``fill``."""
    parts = {
        "fig1": lambda: _fig1(model),
        "fill": lambda: _fill("laplace-sdnet", 512),
        "drivers": lambda: _drivers(1024),
        "lifting": lambda: _lifting(data, seconds),
    }
    for name in only:
        parts[name]()


def _solved(name: str, cells: int, smooth: bool = True, **changes) -> tuple[Outcome, np.ndarray]:
    """Solve on a square domain; return what came out and the discrete solution."""
    solver = local_solver(name)
    grid = Grid((cells, cells), solver.subdomain.spacing)
    length = None if smooth else 0.1
    boundary = Boundary.of_gaussian_process(grid, seed=0, length=length)
    outcome = schwarz_solver(solver, grid.shape, SolveSettings(**changes)).solve(boundary)
    return outcome, solve_by_sine_transform(Problem(grid.shape, LAPLACE, sides=boundary))


def _fig1(model: str | None) -> None:
    """Compare on 128 x 128 with pyAMG, and draw the three pictures of the paper."""
    from matplotlib.figure import Figure

    matplotlib.use("Agg")
    rows, fields = [], {}
    named = {"the paper's recipe": model} if model else {}
    named |= {"laplace-sdnet": "laplace-sdnet", "laplace": "laplace", "exact": "exact"}
    for title, name in named.items():
        outcome, _ = _solved(name, 128)
        grid = Grid((128, 128), 0.5 / 32)
        boundary = Boundary.of_gaussian_process(grid, seed=0)
        truth = solve_by_multigrid(Problem(grid.shape, LAPLACE, sides=boundary))
        error = np.abs(outcome.field.numpy() - truth)
        rows.append([title, outcome.status, f"{error.max():.1e}", f"{error.mean():.1e}"])
        fields[title] = outcome.field.numpy(), truth, error
        print(*rows[-1], flush=True)
    write_csv("fig1", ["local solver", "status", "largest difference", "MAE"], rows)
    prediction, truth, _ = fields["laplace-sdnet"]
    figure = Figure(figsize=(13, 3.2), layout="constrained")
    shown = [("laplace-sdnet", prediction), ("pyAMG", truth)]
    shown += [(f"difference: {title}", fields[title][2]) for title in named if title in fields][:2]
    for axes, (title, values) in zip(figure.subplots(1, len(shown)), shown, strict=True):
        image = axes.imshow(values, origin="lower", extent=(0, 2, 0, 2))
        axes.set_title(title, fontsize=9)
        figure.colorbar(image, ax=axes)
    figure.savefig(PAPER / "fig1.png", dpi=110)


def _drivers(cells: int) -> None:
    """Count the iterations of every driver and kind of halo to a relative update of 1e-7."""
    rows = []
    for title, changes in _DRIVERS.items():
        slow = {"rtol": 1e-7, "max_iterations": 500}
        start = time.process_time()
        outcome, truth = _solved("laplace", cells, **(slow | changes))
        seconds = time.process_time() - start
        error = np.abs(outcome.field.numpy() - truth).mean()
        rows.append([title, outcome.iterations, outcome.status, f"{seconds:.2f}", f"{error:.1e}"])
        print(*rows[-1], flush=True)
    for title, options in _HALOS.items():
        with tempfile.TemporaryDirectory() as folder:
            job = ["solve", "-o", f"{folder}/out.h5", "--cells", f"{cells}x{cells}", *options]
            said = mosaicdd(2, *job, "--boundary", "gp:seed=0")
            seconds = said["seconds"]["iterate"]
        rows.append([title, said["iterations"], said["status"], f"{seconds:.2f}", ""])
        print(*rows[-1], flush=True)
    write_csv("drivers", ["driver", "iterations", "status", "seconds", "MAE"], rows)


def _lifting(data: str, seconds: float) -> None:
    """Train a linear network under each lifting, and solve on growing domains."""
    dataset = Dataset.read(data)
    rows = []
    for lifting in ("none", "0", "1", "2"):
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/model.h5"
            settings = TrainingSettings(lifting=lifting, max_seconds=seconds, validations=4)
            with mock.patch("time.perf_counter", time.process_time):
                result = train(dataset, model, settings)
            for smooth in (True, False):
                for cells in _SIZES:
                    outcome, truth = _solved(model, cells, smooth, rtol=1e-8, max_iterations=60)
                    error = np.abs(outcome.field.numpy() - truth)
                    kind = "smooth" if smooth else "length scale 0.1"
                    what = f"{result.best.validation_mse:.1e}", kind, cells, outcome.status
                    rows.append([lifting, *what, f"{error.mean():.1e}", f"{error.max():.1e}"])
                    print(*rows[-1], flush=True)
    header = ["lifting", "validation MSE", "boundary data", "cells", "status", "MAE", "largest"]
    write_csv("lifting", header, rows)


def _fill(name: str, cells: int) -> None:
    """Fill the same interface in three ways."""
    rows = []
    for smooth in (True, False):
        outcome, truth = _solved(name, cells, smooth)
        mean, middle = _from_all(local_solver(name), outcome, cells)
        kind = "smooth" if smooth else "length scale 0.1"
        fields = {
            "tiles": outcome.field.numpy(),
            "mean of all (the paper)": mean,
            "middles": middle,
        }
        for way, field in fields.items():
            error = np.abs(field - truth)
            rows.append([kind, way, f"{error.mean():.3e}", f"{error.max():.3e}"])
            print(*rows[-1], flush=True)
    write_csv("fill", ["boundary data", "fill", "MAE", "largest"], rows)


def _from_all(solver, outcome: Outcome, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of what all subdomains predict, and what those around the nodes' middles do."""
    m, s = solver.subdomain.cells, solver.subdomain.cells // 2
    lines = [line[0].numpy() for line in outcome.interface.lines]
    field = np.empty((cells + 1, cells + 1))
    field[::s], field[:, ::s] = lines[0], lines[1].T
    inside, perimeter = solver.subdomain.interior, solver.subdomain.perimeter
    starts = np.arange(0, cells - m + 1, s)
    corners = np.stack(np.meshgrid(starts, starts, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    edges = corners + perimeter
    g = torch.from_numpy(field[edges[..., 0], edges[..., 1]])
    values = torch.empty(len(g), len(inside), dtype=torch.float64)
    solver.plan(inside, device=torch.device("cpu"), dtype=torch.float64)(g, values)
    nodes = corners + inside
    at = nodes[..., 0], nodes[..., 1]
    total, count = np.zeros_like(field), np.zeros_like(field)
    np.add.at(total, at, values.numpy())
    np.add.at(count, at, 1.0)
    mean = np.divide(total, count, out=field.copy(), where=count > 0)
    middle, nearest = field.copy(), np.full_like(field, np.inf)
    away = np.abs(inside - m / 2).max(axis=1)
    for corner, predicted in zip(corners[:, 0], values.numpy(), strict=True):
        y, x = (corner + inside).T
        closer = away < nearest[y, x]
        nearest[y[closer], x[closer]] = away[closer]
        middle[y[closer], x[closer]] = predicted[closer]
    for filled in (mean, middle):
        edge = np.ones_like(filled, bool)
        edge[1:-1, 1:-1] = False
        filled[edge] = field[edge]
    return mean, middle
