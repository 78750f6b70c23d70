"""Half-overlapping cubes on boxes: iterations, errors and time beside multigrid and transforms.

Laplace's equation with smooth values on the six sides, to a relative update of 1e-8, on one rank; in the cubes the exact
solution, or the shipped network. All solve in turns in one process, and times are medians of three turns, of the
processor, so that others who use the machine count little. Of cubes, multigrid and *transforms*, which is what
solves if nothing is asked for, a turn is a solve by a `Solver` that is planned, with the fill, the residual and the
estimate; planning stands beside. *scipy* is its sine transform along three axes alone, with the right-hand side. Errors are by the largest value, from its field: the largest, of the network the root mean square, too,
which is what its *estimate* is of. *bytes per voxel* is what one interface, the values on the lattice planes, takes.
Written to ``benchmarks/cubes.md``.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from tables import publish, table

import mosaicdd as m
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import BoundSolver
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.schwarz.settings import SolveSettings

_TURNS = 3
_DATA = "sin(2*x)*exp(y) + cos(5*z)*x"
T = TypeVar("T")


class _Multigrid(Exact):
    """Multigrid, also where transforms solve."""

    def bind(self, problem: m.Problem, grid: Grid) -> BoundSolver:
        return self.medium(problem, grid)


def main(arguments: argparse.Namespace) -> None:
    """Measure all sizes, print the table and write it."""
    rows, times = [], []
    for cells in arguments.cells:
        row, seconds = _row(cells)
        rows.append(row)
        times.append(seconds)
        print(*row, *seconds, flush=True)
    header = ["cells", "cubes", "bytes per voxel", "exact, iterations", "exact, error"]
    header += ["network, iterations", "network, error", "network, RMS error", "network, estimate"]
    spent = ["cells", "exact, planning", "exact, s", "network, planning", "network, s"]
    spent += ["multigrid, iterations", "multigrid, planning", "multigrid, s"]
    spent += ["transforms, planning", "transforms, s", "scipy, s"]
    said = "By `python scripts/bench_cubes.py`; its head says what is measured."
    text = f"{said}\n\n{table(header, rows)}\n\n{table(spent, times)}"
    publish("cubes", "Half-overlapping cubes on boxes", text)


def _row(cells: int) -> tuple[list[str], list[str]]:
    """Return what comes of a box of so many cells along each axis, and how long it takes."""
    shape = (cells,) * 3
    problem = m.Problem(m.Domain(shape, 1 / cells), "laplace", {}, m.Dirichlet(_DATA))
    settings = SolveSettings(rtol=1e-8)
    solvers, planned = [], []
    for local_solver in ("exact", "laplace-cubes", _Multigrid(), None):
        solver, seconds = _timed(lambda s=local_solver: m.Solver(problem, s, settings=settings))
        solvers.append(solver)
        planned.append(f"{seconds:.2f}")
    seconds: list[list[float]] = [[], [], [], [], []]
    for _ in range(_TURNS):
        for solver, spent in zip(solvers, seconds, strict=False):
            spent.append(_timed(lambda solver=solver: solver(problem))[1])
        truth, took = _timed(lambda: solve_by_sine_transform(problem))
        seconds[4].append(took)
    exact, network, multigrid = (solver(problem) for solver in solvers[:3])
    size = np.abs(truth).max()
    errors = [solution.field - truth for solution in (exact, network)]
    largest = [f"{np.abs(error).max() / size:.1e}" for error in errors]
    mean_square = np.sqrt(np.mean(errors[1][1:-1, 1:-1, 1:-1] ** 2)) / size
    lattice = Lattice(problem.domain.grid(), Subdomain(16, 16 / cells, 3))
    interface = Interface(Block.whole(lattice), **settings.tensors)
    medians = [f"{statistics.median(spent):.2f}" for spent in seconds]
    row = [f"{cells}^3", str(exact.report["subdomains"])]
    row += [f"{interface.flat.nbytes / cells**3:.1f}", str(exact.iterations), largest[0]]
    row += [str(network.iterations), largest[1], f"{mean_square:.1e}"]
    row.append(f"{network.error_estimate / size:.1e}")
    times = [f"{cells}^3", planned[0], medians[0], planned[1], medians[1]]
    times += [str(multigrid.iterations), planned[2], medians[2], planned[3], *medians[3:]]
    return row, times


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, nargs="+", default=[32, 64, 128])
    main(parser.parse_args())
