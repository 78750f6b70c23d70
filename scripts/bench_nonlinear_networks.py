"""The Poisson-Boltzmann equation by its network, by Newton's method here, and by Newton's method with other solvers.

Usage: bench_nonlinear_networks.py CELLS [METHOD...], each METHOD one of ``network``, ``certified``, ``newton``,
``cholmod``, ``pyamg``, ``superlu``; by default all. One thread, float64. The problem: ``-lap u + 10 sinh u = f`` on
CELLS x CELLS with smooth boundary data of amplitude 2 and a smooth source. Errors are root mean squares over all nodes,
relative to the solution's, against Newton's method to a residual of 1e-11, which is kept in the folder for temporary
files. Peers begin at the solution of the linear equation, which they compute as their first step; of their seconds
those in the linear solver are told apart, the assembly being a diagonal that is added. Their linear
systems are solved only as well as it pays (Eisenstat and Walker). Rows go to
``benchmarks/nonlinear_networks.csv``, and all of them to ``benchmarks/nonlinear_networks.md``.
"""

import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from peers import PeerResult, by_petsc, by_pyamg, by_superlu, petsc_described
from tables import BENCHMARKS, publish, table

import mosaicdd as m
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.elliptic import EllipticOperator

C = 10.0
TIGHT = 1e-8  # relative residual of a certificate, and of the peers' last row
_COLUMNS = ("cells", "method", "iterations", "seconds", "in the solver", "relative error")
_ORDER = ("network", "certified", "newton", "cholmod", "pyamg", "superlu")
_FILE = BENCHMARKS / "nonlinear_networks.csv"


def sides(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the boundary data."""
    return 2.0 * np.sin(1.3 * x + 0.5 * y) * np.cos(0.7 * y - 0.3 * x)


def source(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the source."""
    return 3.0 * np.sin(2.0 * x) * np.cos(y)


def problem(cells: int) -> m.Problem:
    """Make the problem, with the spacing that networks are trained on."""
    sided = m.Dirichlet(sides)
    return m.Problem(m.Domain((cells, cells)), "poisson-boltzmann", {"c": C, "f": source}, sided)


def reference(cells: int) -> np.ndarray:
    """Return the solution, computed once."""
    path = Path(tempfile.gettempdir()) / f"poisson-boltzmann-{cells}.npy"
    if not path.exists():
        solution = m.solve(problem(cells), "exact", settings=m.SolveSettings(rtol=1e-11))
        np.save(path, solution.field)
    return np.load(path)


def relative(field: np.ndarray, truth: np.ndarray) -> float:
    """Return the relative root mean square error."""
    return float(np.linalg.norm(field - truth) / np.linalg.norm(truth))


def ours(cells: int, method: str, truth: np.ndarray) -> Iterator[list[object]]:
    """Measure one of our methods, from the problem to the field."""
    settings = {
        "network": m.SolveSettings(rtol=1e-5),
        "certified": m.SolveSettings(rtol=1e-4, certify=TIGHT),
        "newton": m.SolveSettings(rtol=TIGHT),
    }[method]
    name = "exact" if method == "newton" else "poisson-boltzmann"
    m.solve(problem(64), name, settings=settings)  # so that nothing has to be loaded any more
    begun = time.perf_counter()
    solution = m.solve(problem(cells), name, settings=settings)
    seconds = time.perf_counter() - begun
    if not solution.converged:
        raise RuntimeError(f"{method}: {solution.status}")
    yield [cells, method, solution.iterations, seconds, "", relative(solution.field, truth)]


class Discrete:
    """The equation on the grid as others would write it: a constant matrix, and a diagonal of ``u``."""

    def __init__(self, cells: int):
        one = problem(cells)
        grid = one.domain.grid()
        (boundary,) = one.boundaries(grid)
        system = DirichletSystem(EllipticOperator(), grid)
        self.edges = boundary.impose(np.zeros(grid.nodes))
        y, x = (np.arange(n) * grid.spacing for n in grid.nodes)
        f = source(*np.meshgrid(x, y))[1:-1, 1:-1].ravel()
        self.h2 = grid.spacing**2
        self.b = system.right_hand_side(self.edges[..., None])[:, 0] + self.h2 * f
        self.matrix = scipy.sparse.csr_array(system.matrix)

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return what is left of the equation at the inner nodes."""
        return self.b - self.matrix @ u - self.h2 * C * np.sinh(u)

    def derivative(self, u: np.ndarray) -> scipy.sparse.csr_array:
        """Return the derivative."""
        n = len(u)
        return self.matrix + scipy.sparse.dia_array((self.h2 * C * np.cosh(u)[None], [0]), (n, n))

    def field(self, u: np.ndarray) -> np.ndarray:
        """Return the values at all nodes."""
        field = self.edges.copy()
        field[1:-1, 1:-1] = u.reshape(field[1:-1, 1:-1].shape)
        return field


def peer(cells: int, method: str, truth: np.ndarray) -> Iterator[list[object]]:
    """Measure Newton's method with another linear solver: every step, until the residual is small."""
    begun = time.perf_counter()
    discrete = Discrete(cells)
    u = np.zeros(len(discrete.b))
    spent, solving = time.perf_counter() - begun, 0.0
    first = float(np.linalg.norm(discrete.residual(u)))
    left = 1.0
    for step in range(1, 12):
        begun = time.perf_counter()
        r = discrete.residual(u)
        derivative = discrete.derivative(u)
        spent += time.perf_counter() - begun
        rtol = max(0.1 * TIGHT / left, min(1e-2, 0.1 * left))
        result = solved(derivative, r, method, rtol)
        if result is None:
            return
        solving += result.seconds
        u = u + result.solution
        left = float(np.linalg.norm(discrete.residual(u))) / first
        error = relative(discrete.field(u), truth)
        yield [cells, f"{method}, step {step}", step, spent + solving, solving, error]
        if left <= TIGHT:
            return


def solved(
    matrix: scipy.sparse.csr_array, r: np.ndarray, method: str, rtol: float
) -> PeerResult | None:
    """Solve a step."""
    if method == "pyamg":
        return by_pyamg(matrix, r, rtol)
    return by_superlu(matrix, r) if method == "superlu" else by_petsc(matrix, r, method)


def keep(rows: list[list[object]]) -> list[list[str]]:
    """Put rows into the file, in the place of those of the same cells and method; return all."""
    known: list[list[str]] = []
    if _FILE.exists():
        with _FILE.open(newline="") as file:
            known = list(csv.reader(file))[1:]
    new = [[str(v) if isinstance(v, (int, str)) else f"{v:.4g}" for v in row] for row in rows]
    measured = {(row[0], row[1].partition(",")[0]) for row in new}
    kept = [row for row in known if (row[0], row[1].partition(",")[0]) not in measured]
    every = sorted(
        kept + new, key=lambda r: (int(r[0]), _ORDER.index(r[1].partition(",")[0]), r[1])
    )
    with _FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *every])
    return every


def main(cells: int, methods: list[str]) -> None:
    """Measure, and write the tables."""
    torch.set_num_threads(1)
    truth = reference(cells)
    rows: list[list[object]] = []
    for method in methods or _ORDER:
        measure = peer if method in _ORDER[3:] else ours
        rows += list(measure(cells, method, truth))
    text = (
        f"{table(list(_COLUMNS), keep(rows))}\n\nBy `python scripts/bench_nonlinear_networks.py`; its "
        f"head says what was measured. {petsc_described()} Each row of a peer is the state after another "
        "of its steps, so the one to compare with is the first that is as good."
    )
    publish("nonlinear_networks", "A network for a nonlinear equation beside Newton's method", text)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
