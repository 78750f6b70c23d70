"""The paper's job by its own kind of network and its own method: SDNet, one level, four phases.

Laplace on 2048 x 2048 cells until the mean absolute error on the interface is 0.05; beside it the network
that is linear in the boundary data, and two levels. One core, seconds of the processor. By SDNet an
iteration of one level takes a second: a quarter of an hour in all.
"""

import time

from common import write_csv

import mosaicdd as m
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.sides.boundary import Boundary

_ROWS = [("laplace", "float64", 2), ("laplace-sdnet", "float32", 2), ("laplace", "float64", 1)]
_ROWS += [("laplace-sdnet", "float32", 1)]
_COLUMNS = ["cells", "local solver", "levels", "iterations", "status", "seconds", "until MAE"]

SMALL = {"cells": 64}


def main(*, cells: int = 2048) -> None:
    """Solve by each network and method and write what it took."""
    boundary = Boundary.of_gaussian_process(Grid((cells, cells), 0.5 / 32), seed=0)
    problem = m.Problem((cells, cells), "laplace", sides=boundary)
    rows = []
    for name, precision, levels in _ROWS:
        method = {"levels": levels} | ({"sweep": "phases"} if levels == 1 else {})
        linear = {} if precision == "float64" else {"network_dtype": precision}
        settings = m.SolveSettings(until_mae=0.05, max_iterations=5000, **method, **linear)
        start = time.process_time()
        solution = m.solve(problem, name, settings=settings, keep="interface")
        seconds = time.process_time() - start
        counted = [cells, name, levels, solution.iterations, solution.status, f"{seconds:.1f}"]
        rows.append([*counted, settings.until_mae])
        print(*rows[-1], flush=True)
        write_csv("job", _COLUMNS, rows)
