"""Time and memory of a whole solve on one core, beside pyAMG and the fast sine transform.

Set-up (from the model file on), iterations, error estimate and fill of a 2048 x 2048 problem in
float64, medians of several rounds in one process in which all methods take turns; memory is the peak
above what the imports take. pyAMG, which takes 2 kB per node, is left out beyond 4096 x 4096. It and the
paper's network, which take long, run once; that network also in float32 within a float64 iteration, to
1e-6 and certified, and all in float32, to 1e-5.
"""

from statistics import median

import numpy as np
from common import in_turns, peak_bytes, publish, resident_bytes, table, timed
from serial import local_solver, schwarz_solver

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.references import (
    solve_and_count_by_multigrid,
    solve_by_sine_transform,
)
from mosaicdd.solvers.settings import SolveSettings

_LARGEST_FOR_LONG = 4096

SMALL = {"cells": 128, "runs": 1}


def main(cells: int = 2048, runs: int = 5) -> None:
    """Run everything, print the table and write it to ``benchmarks/``."""
    boundary = Boundary.of_gaussian_process(Grid((cells, cells), 0.5 / 32), seed=0)
    before = resident_bytes()
    methods = {
        "mosaicdd, laplace": lambda: _solve("laplace", boundary),
        "mosaicdd, exact": lambda: _solve("exact", boundary),
        "fast sine transform (scipy)": lambda: (
            solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary)),
            None,
        ),
    }
    fields, iterations, peaks = {}, {}, {}
    for name, solve in methods.items():  # warms up; not timed
        fields[name], iterations[name] = solve()
        peaks[name] = f"{(peak_bytes() - before) / 2**20:.0f}" if iterations[name] else "-"
    calls = {name: lambda solve=solve: timed(solve)[1] for name, solve in methods.items()}
    seconds = in_turns(calls, runs)
    transform = "fast sine transform (scipy)"
    truth, reference = fields[transform], "the sine transform"
    if cells <= _LARGEST_FOR_LONG:
        problem = Problem(boundary.shape, LAPLACE, sides=boundary)
        once = {
            "mosaicdd, laplace-sdnet": lambda: _solve("laplace-sdnet", boundary),
            "mosaicdd, laplace-sdnet, network in float32": lambda: _solve(
                "laplace-sdnet", boundary, "float32", rtol=1e-6
            ),
            "mosaicdd, laplace-sdnet, all in float32": lambda: _solve(
                "laplace-sdnet", boundary, rtol=1e-5, dtype="float32"
            ),
            "mosaicdd, laplace-sdnet, network in float32, certified": lambda: _solve(
                "laplace-sdnet", boundary, "float32", rtol=1e-6, certify=1e-10
            ),
            "pyAMG, Ruge-Stueben + CG to 1e-10": lambda: solve_and_count_by_multigrid(problem),
        }
        for name, solve in once.items():
            (fields[name], iterations[name]), spent = timed(solve)
            seconds[name] = [spent]
        truth, reference = fields[name], "pyAMG"
    times = {name: median(runs) for name, runs in seconds.items()}
    ours = times["mosaicdd, laplace"]
    rows = [
        [
            name,
            str(iterations.get(name) or "-"),
            f"{times[name]:.3f}",
            f"{min(seconds[name]):.3f}",
            f"{times[name] / ours:.2f}",
            peaks.get(name, "-"),
            f"{np.abs(field - truth).mean():.1e}" if field is not truth else "-",
        ]
        for name, field in fields.items()
    ]
    columns = ["method", "iterations", "seconds", "fastest", "ratio", "peak MiB"]
    text = table([*columns, f"MAE against {reference}"], rows)
    note = (
        f"Medians of {runs} rounds in which the methods take turns (pyAMG and laplace-sdnet: one run) in "
        "one process, float64; set-up and error estimate included. The ratio is to the first row; peak memory is "
        "above the bare imports."
    )
    publish(f"solve_{cells}", f"Laplace, {cells} x {cells}, one core", text, note)


def _solve(
    name: str, boundary: Boundary, inside: str | None = None, **changes
) -> tuple[np.ndarray, int]:
    settings = SolveSettings(**({"rtol": 1e-7} | changes))
    solver = local_solver(name)
    if inside is not None:
        solver = solver.in_precision(inside)
    solution = schwarz_solver(solver, boundary.shape, settings).solve(boundary)
    return solution.field.numpy(), solution.iterations
