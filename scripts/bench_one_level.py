"""One level, as in the paper: iterations against the domain's size, and the paper's own job.

The four phases of section 4.2 from a zero start, for K x K disjoint subdomains; then the 2048 x
2048 problem of its Fig. 9a and Table 4, stopped at an MAE of 0.05, with one level and with two.
The MAE is that of the interface against the fast sine transform. (`laplace-sdnet`, in float32 inside of a
float64 iteration, takes long for it with one level: with two only.) The paper does not say whether an
iteration of its own is all four phases or one of them: both are counted here.
"""

import itertools
import time

import torch
from serial import local_solver, schwarz_solver
from tables import publish, table

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings

_SOLVERS = ("exact", "laplace", "laplace-sdnet")
_PHASES = {"levels": 1, "sweep": "phases"}


def main() -> None:
    """Run everything, print the tables and write them to ``benchmarks/``."""
    torch.set_num_threads(1)
    rows = []
    for name in _SOLVERS:
        counts = [_to_mae(name, 32 * k, 1e-3, _PHASES)[0].iterations for k in (4, 8, 16)]
        ratios = [f"{b / a:.2f}" for a, b in itertools.pairwise(counts)]
        rows.append([name, *map(str, counts), ", ".join(ratios)])
    growth = table(["local solver", "K = 4", "K = 8", "K = 16", "ratios (K^2: 4)"], rows)
    rows = [["the paper, 1 A30 GPU", "1", "3200", "3200 or 12800", "880"]]
    two = {"levels": 2}
    for name, settings in (("laplace", _PHASES), ("laplace", two), ("laplace-sdnet", two)):
        solution, seconds = _to_mae(name, 2048, 0.05, settings)
        count, levels = solution.iterations, settings["levels"]
        phases = str(4 * count) if levels == 1 else "-"
        title = f"mosaicdd, {name}, 1 core"
        rows.append([title, str(levels), str(count), phases, f"{seconds:.2f}"])
    header = ["2048 x 2048 to an MAE of 0.05", "levels", "iterations", "phases", "seconds"]
    text = (
        f"Iterations of four phases to an MAE of 1e-3:\n\n{growth}\n\n{table(header, rows)}\n\n"
        "The paper's iteration may be four phases, or one: with one level our count of phases is close "
        "to its count of iterations."
    )
    publish("one_level", "One level, as in the paper", text)


def _to_mae(name: str, cells: int, mae: float, settings: dict) -> tuple[Outcome, float]:
    solver = local_solver(name)
    if not solver.linear:
        solver = solver.in_precision("float32")
    grid = Grid((cells, cells), solver.subdomain.spacing)
    boundary = Boundary.of_gaussian_process(grid, seed=0)
    settings = SolveSettings(until_mae=mae, max_iterations=100_000, **settings)
    schwarz = schwarz_solver(solver, (cells, cells), settings)
    reference = schwarz.reference(
        solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
    )
    start = time.perf_counter()
    solution = schwarz.solve(boundary, reference=reference)
    return solution, time.perf_counter() - start


if __name__ == "__main__":
    main()
