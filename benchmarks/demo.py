"""Print the demo's table: the paper, this program and the baselines, side by side.

The folder has the ``laplace.h5``, ``sdnet.h5`` and ``exact.h5`` that demo.sh makes. The pyAMG solution is left beside
them as ``pyamg.h5``.
"""

from pathlib import Path

import numpy as np
from common import table, timed

from mosaicdd import read
from mosaicdd.problems.problem import Problem
from mosaicdd.report.stored import StoredSolution
from mosaicdd.solvers.references import (
    solve_and_count_by_multigrid,
    solve_by_sine_transform,
)
from mosaicdd.storage.solution_writer import RankPart, SolutionWriter

_OURS = {
    "laplace": "shipped network",
    "sdnet": "the paper's kind of network",
    "exact": "exact local solver",
}
_SPAN = (
    "Seconds from the boundary data to the field in memory, set-up included, start-up and files not; "
    "mosaicdd's include the error estimate, the paper's are its own and end at an MAE of 5e-2."
)


def main(folder: Path) -> None:
    """Solve by the baselines, compare, and print the table."""
    ours = [read(folder / f"{name}.h5") for name in _OURS]
    boundary = ours[0].boundary
    problem = Problem(boundary.shape, ours[0].attributes["pde"], sides=boundary)
    (amg, amg_iterations), amg_seconds = timed(solve_and_count_by_multigrid, problem)
    dst, dst_seconds = timed(solve_by_sine_transform, problem)
    _store(folder / "pyamg.h5", ours[0], amg, amg_seconds)
    rows = [["the paper (SC'23), 1 A30 GPU", "3200", "880", "5e-2"]]
    for solution, name in zip(ours, _OURS.values(), strict=True):
        facts = solution.attributes
        label = f"mosaicdd, {name}, {facts['ranks']} ranks"
        seconds = facts["seconds"]["total"] - facts["seconds"]["write"]
        error = np.abs(solution.field - amg).mean()
        rows.append([label, str(facts["iterations"]), f"{seconds:.2f}", f"{error:.1e}"])
    error = np.abs(dst - amg).mean()
    rows.append(["fast sine transform, 1 core", "direct", f"{dst_seconds:.2f}", f"{error:.1e}"])
    label = "pyAMG (Ruge-Stueben, CG) to 1e-10, 1 core"
    rows.append([label, str(amg_iterations), f"{amg_seconds:.2f}", "reference"])
    ny, nx = ours[0].grid.shape
    print(table([f"Laplace, {nx} x {ny}", "iterations", "seconds", "MAE against pyAMG"], rows))
    print(_SPAN)


def _store(path: Path, problem: StoredSolution, field: np.ndarray, seconds: float) -> None:
    window = problem.window
    part = RankPart(grid=problem.grid, window=window, own=window.place)
    with SolutionWriter(path, part, [problem.boundary]) as writer:
        writer.begin()
        writer.write("solution", field, (slice(None), slice(None)))
        facts = {"local_solver": "pyAMG", "pde": problem.attributes["pde"], "status": "reference"}
        writer.describe(facts | {"seconds": {"iterate": seconds}}, [{"update": []}])
