"""Time and memory of a whole solve on one core, beside pyAMG and the fast sine transform.

Set-up (from the model file on), iterations, error estimate and fill of a 2048 x 2048 problem in
float64, medians of several runs in one process; memory is the peak above what the imports take.
pyAMG, which takes 2 kB per node, is left out beyond 4096 x 4096.

Usage: bench_solve.py [CELLS]
"""

import resource
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from serial import local_solver, schwarz_solver
from tables import publish, table

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.references import solve_by_multigrid, solve_by_sine_transform
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import StoppingRule

_RUNS = 5
_LARGEST_FOR_PYAMG = 4096


def main(cells: int) -> None:
    """Run everything, print the table and write it to ``benchmarks/``."""
    torch.set_num_threads(1)
    boundary = Boundary.of_gaussian_process(Grid((cells, cells), 0.5 / 32), seed=0)
    before = _resident_bytes()
    fields, rows, ours = {}, [], None
    for name in ("laplace", "exact"):
        seconds, fields[name], iterations = _repeat(lambda name=name: _solve(name, boundary))
        peak = (_peak_bytes() - before) / 2**20
        ours = ours or seconds
        rows.append([f"mosaicdd, {name}", str(iterations), seconds, f"{peak:.0f}"])
    seconds, fields["dst"], _ = _repeat(lambda: (solve_by_sine_transform(LAPLACE, boundary), None))
    rows.append(["fast sine transform (scipy)", "direct", seconds, "-"])
    truth, reference = fields.pop("dst"), "the sine transform"
    if cells <= _LARGEST_FOR_PYAMG:
        seconds, amg, _ = _repeat(lambda: (solve_by_multigrid(LAPLACE, boundary), None), runs=1)
        rows.append(["pyAMG, Ruge-Stueben + CG to 1e-10", "-", seconds, "-"])
        fields["dst"], truth, reference = truth, amg, "pyAMG"
    errors = [f"{np.abs(field - truth).mean():.1e}" for field in fields.values()]
    text = table(
        ["method", "iterations", "seconds", "ratio", "peak MiB", f"MAE against {reference}"],
        [
            [name, iterations, f"{seconds:.3f}", f"{seconds / ours:.2f}", peak, error]
            for (name, iterations, seconds, peak), error in zip(rows, [*errors, "-"], strict=True)
        ],
    )
    note = (
        f"Medians of {_RUNS} runs (pyAMG: one) in one process, float64; set-up and error estimate "
        "included. The ratio is to the first row; peak memory is above the bare imports."
    )
    publish(f"solve_{cells}", f"Laplace, {cells} x {cells}, one core", f"{text}\n\n{note}")


def _solve(name: str, boundary: Boundary) -> tuple[np.ndarray, int]:
    solver = schwarz_solver(
        local_solver(name), boundary.shape, SolveSettings(stopping=StoppingRule(rtol=1e-7))
    )
    solution = solver.solve(boundary)
    return solution.field.numpy(), solution.iterations


def _repeat(run, runs: int = _RUNS) -> tuple[float, np.ndarray, int | None]:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        field, iterations = run()
        seconds.append(time.perf_counter() - start)
    return median(seconds), field, iterations


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
