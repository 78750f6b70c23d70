"""Half-overlapping cubes on boxes: iterations, errors and time beside multigrid and transforms.

Laplace's equation with smooth values on the six sides, to a relative update of 1e-8, on one rank; in the cubes the exact
solution, or the shipped network. All solve one after another in one process, and times are of the processor, so that others
who use the machine count little: up to 128^3 medians of three solves, beyond of one. Of cubes, multigrid and *transforms*,
which is what solves if nothing is asked for, it is a solve by a `Solver` that is planned, with the fill, the residual and the
estimate; planning stands beside. *scipy* is its sine transform along three axes, there and back, in place, with the
right-hand side. Errors are by the largest value, from its field: the largest, of the network the root mean square, too,
which is what its *estimate* is of. *bytes per voxel* is what one interface, the values on the lattice planes, takes: two are
held. Multigrid is left out beyond 128^3, where transforms take 9 GB at 512^3, all others 5. Written to
``benchmarks/cubes.md``.
"""

import statistics

import numpy as np
import scipy.fft
from common import processor_timed, publish, table

import mosaicdd as m
from mosaicdd.discretisation.system import Method, linear_system
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.solvers.settings import SolveSettings

# Solves of each, up to so many cells along an axis; then one, and no multigrid.
_TURNS, _SEVERAL = 3, 128
_DATA = "sin(2*x)*exp(y) + cos(5*z)*x"


class _Multigrid(Exact):
    """Multigrid, also where transforms solve."""

    def bind(self, problem: m.Problem, grid: Grid) -> Method:
        return linear_system(problem, grid)


SMALL = {"cells": [32]}


def main(*, cells: list[int] = (32, 64, 128, 256, 512)) -> None:
    """Measure all sizes, print the table and write it."""
    rows, times = [], []
    for size in cells:
        row, seconds = _row(size)
        rows.append(row)
        times.append(seconds)
        print(*row, *seconds, flush=True)
    header = ["cells", "cubes", "bytes per voxel", "exact, iterations", "exact, error"]
    header += ["network, iterations", "network, error", "network, RMS error", "network, estimate"]
    spent = ["cells", "exact, planning", "exact, s", "network, planning", "network, s"]
    spent += ["multigrid, iterations", "multigrid, planning", "multigrid, s"]
    spent += ["transforms, planning", "transforms, s", "scipy, s"]
    title = "Half-overlapping cubes on boxes"
    publish("cubes", title, table(header, rows), table(spent, times))


def _row(cells: int) -> tuple[list[str], list[str]]:
    """Return what comes of a box of so many cells along each axis, and how long it takes."""
    problem = m.Problem(m.Domain((cells,) * 3, 1 / cells), "laplace", {}, m.Dirichlet(_DATA))
    several = cells <= _SEVERAL
    # What takes most memory first: of each that follows its field is kept, and the truth.
    transforms = _solved(problem, None)[1:]
    multigrid, *of_multigrid = _solved(problem, _Multigrid()) if several else (None, "-", "-")
    direct = [processor_timed(lambda: _by_scipy(cells)) for _ in range(_TURNS if several else 1)]
    truth, by_scipy = direct[0][0], f"{statistics.median(took for _, took in direct):.2f}"
    size = max(truth.max(), -truth.min())
    row, times = [f"{cells}^3"], [f"{cells}^3"]
    for local_solver in ("exact", "laplace-cubes"):
        solution, planned, solving = _solved(problem, local_solver)
        largest, mean_square = _errors(solution.field, truth)
        if local_solver == "exact":
            row += [str(solution.report["subdomains"]), f"{_interface_bytes(problem):.1f}"]
        row += [str(solution.iterations), f"{largest / size:.1e}"]
        times += [planned, solving]
    row += [f"{mean_square / size:.1e}", f"{solution.error_estimate / size:.1e}"]
    iterations = "-" if multigrid is None else str(multigrid.iterations)
    return row, [*times, iterations, *of_multigrid, *transforms, by_scipy]


def _solved(problem: m.Problem, local_solver: str | Exact | None) -> tuple[m.Solution, str, str]:
    """Return a solution, and the seconds of planning and of a solve."""
    turns = _TURNS if problem.domain.cells[0] <= _SEVERAL else 1
    settings = SolveSettings(rtol=1e-8)
    solver, planned = processor_timed(lambda: m.Solver(problem, local_solver, settings=settings))
    with solver:
        spent = []
        for _ in range(turns):
            solution = None  # of two fields one is held
            solution, seconds = processor_timed(lambda: solver(problem))
            spent.append(seconds)
    return solution, f"{planned:.2f}", f"{statistics.median(spent):.2f}"


def _by_scipy(cells: int) -> np.ndarray:
    """Return the field by the sine transform, put together apart from the package."""
    along = np.arange(cells + 1) / cells
    z, y, x = along[:, None, None], along[:, None], along
    field = np.sin(2 * x) * np.exp(y) + np.cos(5 * z) * x
    b = field[1:-1, 1:-1, 1:-1].copy()
    b[...] = 0
    for axis in range(3):
        for inner, edge in ((0, 0), (-1, -1)):
            np.moveaxis(b, axis, 0)[inner] += np.moveaxis(field, axis, 0)[edge][1:-1, 1:-1]
    heights = scipy.fft.dstn(b, type=1, overwrite_x=True)
    eigenvalues = 2 - 2 * np.cos(np.pi * along[1:-1])
    plane = eigenvalues[:, None] + eigenvalues
    for eigenvalue, part in zip(eigenvalues, heights, strict=True):
        part /= eigenvalue + plane
    field[1:-1, 1:-1, 1:-1] = scipy.fft.idstn(heights, type=1, overwrite_x=True)
    return field


def _errors(field: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return the largest difference, and the root mean square of those at the nodes inside, plane by plane."""
    largest, squares = 0.0, 0.0
    for plane, true in zip(field[1:-1], truth[1:-1], strict=True):
        difference = (plane - true)[1:-1, 1:-1]
        largest = max(largest, float(np.abs(difference).max()))
        squares += float(np.square(difference).sum())
    return largest, (squares / np.prod([n - 2 for n in truth.shape])) ** 0.5


def _interface_bytes(problem: m.Problem) -> float:
    """Return the bytes per voxel of an interface."""
    grid = problem.domain.grid()
    block = Block.whole(Lattice(grid, Subdomain(16, 16 * grid.spacing, 3)))
    values = sum(np.prod(block.line_shape(axis)) for axis in range(3))
    return values * np.dtype(float).itemsize / np.prod(grid.shape)
