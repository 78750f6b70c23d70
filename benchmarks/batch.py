"""Many problems on one core: one after the other, in batches, and by the classical methods.

64 problems of 256 x 256 with boundary data of their own, in float64, by solvers planned before the
clock starts; seconds are for everything else, the fill of one array included. All ways take turns in
one process, and CPU time counts, so that other work on the machine matters little.
"""

from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from common import in_turns, processor_timed, publish, table
from serial import local_solver, schwarz_solver

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.references import solve_by_multigrid, solve_by_sine_transform
from mosaicdd.solvers.settings import SolveSettings

_BATCHES = (8, 16, 32, 64)
_AMG = 4  # problems that pyAMG solves: all take it the same time

SMALL = {"cells": 64, "problems": 8, "runs": 1}


def main(cells: int = 256, problems: int = 64, runs: int = 5) -> None:
    """Run everything, print the table and write it to ``benchmarks/``."""
    grid = Grid((cells, cells), 0.5 / 32)
    boundaries = [Boundary.of_gaussian_process(grid, seed=seed) for seed in range(problems)]
    alone = "one after the other"
    ways = {alone: _in_batches(1, boundaries)}
    ways["one after the other, planned anew"] = _in_batches(1, boundaries, anew=True)
    ways |= {f"batches of {n}": _in_batches(n, boundaries) for n in _BATCHES if n <= problems}
    ways["fast sine transform, one by one"] = _one_by_one(solve_by_sine_transform, boundaries)
    fewer = boundaries[:_AMG]
    ways["pyAMG, one by one"] = _one_by_one(solve_by_multigrid, fewer)
    measured = in_turns({n: lambda run=run: processor_timed(run) for n, run in ways.items()}, runs)
    fields = {name: several[-1][0] for name, several in measured.items()}
    each = {name: median(s for _, s in measured[name]) / len(fields[name]) for name in ways}
    truth = np.stack(fields["fast sine transform, one by one"])
    rows = [
        [
            name,
            f"{each[name] * problems:.3f}",
            f"{each[name] * 1e3:.2f}",
            f"{each[alone] / each[name]:.2f}",
            f"{np.abs(np.stack(fields[name]) - truth[: len(fields[name])]).mean():.1e}",
        ]
        for name in ways
    ]
    text = table(
        ["method", "CPU seconds", "ms per problem", "speed-up", "MAE against sine transform"], rows
    )
    note = (
        f"{problems} problems, shipped network, float64, rtol 1e-7; medians of {runs} rounds in which "
        f"all methods take turns, of the process's CPU time, one thread; pyAMG solves {len(fewer)} of the problems, its seconds are scaled. "
        "Planning is counted in the second row only."
    )
    publish("batch", f"{problems} problems of {cells} x {cells}, one core", text, note)


def _in_batches(
    batch: int, boundaries: list[Boundary], *, anew: bool = False
) -> Callable[[], np.ndarray]:
    """Return a function that solves all problems, so many at once, with a solver planned before.

    Parameters
    ----------
    anew
        Whether to plan a solver for each batch instead, as separate calls of the command do.
    """
    settings = SolveSettings(rtol=1e-7, batch_subdomains=4096)
    network, shape = local_solver("laplace"), boundaries[0].shape
    planned = schwarz_solver(network, shape, settings, problems=batch)
    fields = torch.zeros(len(boundaries), *(n + 1 for n in shape), dtype=settings.tensors["dtype"])

    def run() -> np.ndarray:
        for first in range(0, len(boundaries), batch):
            solver = planned
            if anew:
                solver = schwarz_solver(network, shape, settings, problems=batch)
            here = fields[first : first + batch]

            def keep(strips, here=here) -> None:
                for strip in strips:
                    here[:, *strip.place].copy_(strip.owned)

            solver.solve_many(boundaries[first : first + batch], sink=keep)
        return fields.numpy()

    return run


def _one_by_one(solve: Callable, boundaries: list[Boundary]) -> Callable[[], list[np.ndarray]]:
    return lambda: [
        solve(Problem(boundary.shape, LAPLACE, sides=boundary)) for boundary in boundaries
    ]
