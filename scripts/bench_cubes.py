"""Half-overlapping cubes on boxes: iterations, errors and time beside multigrid and a sine transform.

Laplace's equation with smooth values on the six sides, to a relative update of 1e-8, on one rank; the three solve in
turns in one process, and times are medians of three turns, of the processor, so that others who use the
machine count little. Of cubes and multigrid a turn is a solve by a `Solver` that is planned, with the fill and the estimate; planning
stands beside. The sine transform is scipy's, along three axes, with the right-hand side. Errors are the largest, by the largest
value, from its field. *bytes per voxel* is what one interface, the values on the lattice planes, takes.
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
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.schwarz.settings import SolveSettings

_TURNS = 3
_DATA = "sin(2*x)*exp(y) + cos(5*z)*x"
T = TypeVar("T")


def main(arguments: argparse.Namespace) -> None:
    """Measure all sizes, print the table and write it."""
    rows = []
    for cells in arguments.cells:
        rows.append(_row(cells))
        print(*rows[-1], flush=True)
    header = ["cells", "cubes", "iterations", "error", "bytes per voxel", "planning", "cubes, s"]
    header += ["multigrid, iterations", "multigrid, planning", "multigrid, s", "sine transform, s"]
    said = "By `python scripts/bench_cubes.py`; its head says what is measured."
    publish("cubes", "Half-overlapping cubes on boxes", said + "\n\n" + table(header, rows))


def _row(cells: int) -> list[str]:
    shape = (cells,) * 3
    problem = m.Problem(m.Domain(shape, 1 / cells), "laplace", {}, m.Dirichlet(_DATA))
    settings = SolveSettings(rtol=1e-8)
    by_cubes, planned = _timed(lambda: m.Solver(problem, "exact", settings=settings))
    by_multigrid, prepared = _timed(lambda: m.Solver(problem, settings=settings))
    seconds: list[list[float]] = [[], [], []]
    for _ in range(_TURNS):
        for solver, spent in zip((by_cubes, by_multigrid), seconds, strict=False):
            spent.append(_timed(lambda solver=solver: solver(problem))[1])
        seconds[2].append(_timed(lambda: solve_by_sine_transform(problem))[1])
    cubes, multigrid = by_cubes(problem), by_multigrid(problem)
    truth = solve_by_sine_transform(problem)
    error = np.abs(cubes.field - truth).max() / np.abs(truth).max()
    lattice = Lattice(problem.domain.grid(), Subdomain(16, 16 / cells, 3))
    interface = Interface(Block.whole(lattice), **settings.tensors)
    medians = [f"{statistics.median(spent):.2f}" for spent in seconds]
    return [
        f"{cells}^3",
        str(cubes.report["subdomains"]),
        str(cubes.iterations),
        f"{error:.0e}",
        f"{interface.flat.nbytes / cells**3:.1f}",
        f"{planned:.2f}",
        medians[0],
        str(multigrid.iterations),
        f"{prepared:.2f}",
        *medians[1:],
    ]


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, nargs="+", default=[32, 64, 128])
    main(parser.parse_args())
