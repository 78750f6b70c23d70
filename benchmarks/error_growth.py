"""The error against the domain's size, for both shipped models, smooth and rough boundary data.

Two-level iteration to convergence; over the whole field against the fast sine transform, the mean absolute
error and the largest one: a mean falls by itself where errors stay near the boundary.
"""

from common import publish, table
from serial import local_solver, schwarz_solver

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.references import solve_by_sine_transform
from mosaicdd.solvers.settings import SolveSettings

_DATA = {
    "smooth: length scale 1/16 of the perimeter": {},
    "rough: length scale 0.1, one fifth of a subdomain": {"length": 0.1},
    "white noise": {"amplitude": 0.0, "noise": 1.0},
}
_RTOL = {"laplace": 1e-8, "laplace-sdnet": 1e-6}

SMALL = {"sizes": [64, 128]}


def main(sizes: list[int] = (256, 512, 1024, 2048)) -> None:
    """Run everything, print the table and write it to ``benchmarks/``."""
    rows = []
    for name in _RTOL:
        for label, data in _DATA.items():
            results = [_error(name, cells, data) for cells in sizes]
            iterations = ", ".join(str(count) for *_, count in results)
            errors = (f"{mean:.1e}, {largest:.1e}" for mean, largest, _ in results)
            rows.append([name, label, *errors, iterations])
    header = ["model", "boundary data", *(f"{n} x {n}" for n in sizes), "iterations"]
    title = "MAE and largest error against the domain's size"
    publish("error_growth", title, table(header, rows))


def _error(name: str, cells: int, data: dict) -> tuple[float, float, int]:
    solver = local_solver(name)
    boundary = Boundary.of_gaussian_process(
        Grid((cells, cells), solver.subdomain.spacing), seed=0, **data
    )
    settings = SolveSettings(rtol=_RTOL[name])
    solution = schwarz_solver(solver, (cells, cells), settings).solve(boundary)
    truth = solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
    errors = abs(solution.field.numpy() - truth)
    return errors.mean(), errors.max(), solution.iterations
