"""Nonlinear equations by Newton's method here, and by Newton's method with other linear solvers.

Methods are ``newton``, ``cholmod``, ``pfmg``, ``pfmg-red-black``, ``hypre``, ``hypre-tuned`` and ``pyamg``. One thread, float64. The
problems: ``-lap u + 10 sinh u = f`` with smooth boundary data of amplitude 2 and a smooth source; a minimal surface over
smooth boundary data with slopes up to 1.2. Errors are root mean squares over all nodes, relative to the solution's,
against a solution to a residual of 1e-11, which is kept in the folder for temporary files. Peers begin at zero, so
that their first step solves the linear equation; of their seconds those in the linear solver are told apart. Their
matrices are made as fast as we can: one that does not change and a diagonal, or the derivative's conductances by this
package. Their linear systems are solved only as well as it pays (Eisenstat and Walker). Rows go to
``benchmarks/nonlinear_peers.csv`` and ``nonlinear_peers.md``.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse
from common import KeptRows, publish, table
from peers import PeerResult, by_petsc, by_pyamg, petsc_described

import mosaicdd as m
from mosaicdd.discretisation.discrete import DirichletSystem, MediumSystem
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.nonlinear_part import Linearised

_COLUMNS = (
    "equation",
    "cells",
    "method",
    "iterations",
    "seconds",
    "in the solver",
    "relative error",
)
_OURS = "newton"
_PEERS = ("cholmod", "pfmg", "pfmg-red-black", "hypre", "hypre-tuned", "pyamg")
_ORDER = (_OURS, *_PEERS)


def reference(name: str, one: m.Problem) -> np.ndarray:
    """Return the solution, computed once."""
    path = Path(tempfile.gettempdir()) / f"{name}.npy"
    if not path.exists():
        np.save(path, m.solve(one, rtol=1e-11).field)
    return np.load(path)


def ours(equation: str, cells: int, method: str, truth: np.ndarray) -> Iterator[list[object]]:
    """Measure Newton's method here, from the problem to the field."""
    m.solve(problem(equation, 64), rtol=_TIGHT)  # so that nothing has to be loaded
    begun = time.perf_counter()
    solution = m.solve(problem(equation, cells), rtol=_TIGHT)
    seconds = time.perf_counter() - begun
    if not solution.converged:
        raise RuntimeError(f"{method}: {solution.status}")
    error = relative(solution.field, truth)
    yield [equation, cells, method, solution.iterations, seconds, "", error]


BOLTZMANN, SURFACE = "poisson-boltzmann", "minimal-surface"
C = 10.0
_TIGHT = 1e-8  # relative residual of a certificate, and of the peers' last row


def waves(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the shape of the boundary data."""
    return np.sin(1.3 * x + 0.5 * y) * np.cos(0.7 * y - 0.3 * x)


def source(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the source."""
    return 3.0 * np.sin(2.0 * x) * np.cos(y)


def problem(equation: str, cells: int) -> m.Problem:
    """Make the problem, with the default spacing."""
    domain = m.Domain((cells, cells))
    if equation == BOLTZMANN:
        given = {"c": C, "f": source}
        return m.Problem(domain, equation, given, m.Dirichlet(lambda x, y: 2.0 * waves(x, y)))
    return m.Problem(domain, equation, {}, m.Dirichlet(lambda x, y: 0.8 * waves(x, y)))


def relative(field: np.ndarray, truth: np.ndarray) -> float:
    """Return the relative root mean square error."""
    return float(np.linalg.norm(field - truth) / np.linalg.norm(truth))


class Boltzmann:
    """The Poisson-Boltzmann equation as others would write it: a constant matrix, and a diagonal of ``u``."""

    def __init__(self, one: m.Problem):
        grid = one.domain.grid()
        (boundary,) = one.boundaries(grid)
        system = DirichletSystem(EllipticOperator(), grid)
        self.edges = boundary.impose(np.zeros(grid.nodes))
        y, x = (np.arange(n) * grid.spacing for n in grid.nodes)
        self.f = source(*np.meshgrid(x, y))
        self.h2 = grid.spacing**2
        sources = self.h2 * self.f[1:-1, 1:-1].ravel()
        self.b = system.right_hand_side(self.edges[..., None])[:, 0] + sources
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
        return _with_edges(self.edges, u)


class Surface:
    """Minimal surfaces: residuals and matrices by this package, which peers have no part in."""

    def __init__(self, one: m.Problem):
        self._grid = one.domain.grid()
        (boundary,) = one.boundaries(self._grid)
        whole = tuple(slice(0, nodes) for nodes in self._grid.nodes)
        self._operator = one.operator.on(self._grid, whole)
        self.edges = boundary.impose(np.zeros(self._grid.nodes))
        self.b = np.zeros((self._grid.nodes[0] - 2) * (self._grid.nodes[1] - 2))
        # At zero between the boundary data it is steep: the linear equation's matrix, to begin with.
        self._first: scipy.sparse.csr_array | None = scipy.sparse.csr_array(
            DirichletSystem(EllipticOperator(), self._grid).matrix
        )
        self._linear = DirichletSystem(EllipticOperator(), self._grid)

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return what is left of the equation at the inner nodes; at first, of the linear one."""
        if self._first is not None:
            return self._linear.right_hand_side(self.edges[..., None])[:, 0] - self._first @ u
        return -self._operator.residual(self.field(u)).ravel()

    def derivative(self, u: np.ndarray) -> scipy.sparse.csr_array:
        """Return the derivative; at first, that of the linear equation."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return MediumSystem(Linearised(self._operator, self.field(u)), self._grid).matrix

    def field(self, u: np.ndarray) -> np.ndarray:
        """Return the values at all nodes."""
        return _with_edges(self.edges, u)


def _with_edges(edges: np.ndarray, u: np.ndarray) -> np.ndarray:
    field = edges.copy()
    field[1:-1, 1:-1] = u.reshape(field[1:-1, 1:-1].shape)
    return field


def peer(equation: str, cells: int, method: str, truth: np.ndarray) -> Iterator[list[object]]:
    """Measure Newton's method with another linear solver: every step, until the residual is small."""
    begun = time.perf_counter()
    discrete = (Boltzmann if equation == BOLTZMANN else Surface)(problem(equation, cells))
    u = np.zeros(len(discrete.b))
    r = discrete.residual(u)
    spent, solving = time.perf_counter() - begun, 0.0
    first = float(np.linalg.norm(r))
    left = 1.0
    for step in range(1, 12):
        begun = time.perf_counter()
        derivative = discrete.derivative(u)
        spent += time.perf_counter() - begun
        rtol = max(0.1 * _TIGHT / left, min(1e-2, 0.1 * left))
        result = solved(derivative, r, method, rtol, (cells - 1, cells - 1))
        if result is None:
            return
        solving += result.seconds
        begun = time.perf_counter()
        u = u + result.solution
        r = discrete.residual(u)
        spent += time.perf_counter() - begun
        left = float(np.linalg.norm(r)) / first
        error = relative(discrete.field(u), truth)
        named = f"{method}, step {step}"
        yield [equation, cells, named, step, spent + solving, solving, error]
        if left <= _TIGHT:
            return


def solved(
    matrix: scipy.sparse.csr_array,
    r: np.ndarray,
    method: str,
    rtol: float,
    grid: tuple[int, int],
) -> PeerResult | None:
    """Solve a step."""
    if method == "pyamg":
        return by_pyamg(matrix, r, rtol)
    return by_petsc(matrix, r, method, rtol, grid)


SMALL = {"cells": 64, "methods": ["newton", "pyamg"]}


def main(
    cells: int = 1024, equations: list[str] = (BOLTZMANN, SURFACE), *, methods: list[str] = _ORDER
) -> None:
    """Measure, and write the table."""
    for equation in equations:
        truth = reference(f"{equation}-{cells}", problem(equation, cells))
        for method in methods:
            rows = KeptRows("nonlinear_peers", _COLUMNS[:3], _COLUMNS[3:])
            for key in [k for k in rows if k[:2] == (equation, str(cells))]:
                if key[2].partition(",")[0] == method:
                    del rows[key]
            for row in (ours if method == _OURS else peer)(equation, cells, method, truth):
                print(*row, flush=True)
                texts = [str(v) if isinstance(v, int | str) else f"{v:.4g}" for v in row]
                rows[tuple(texts[:3])] = dict(zip(_COLUMNS[3:], texts[3:], strict=True))
            rows.write()
    kept = [[*key, *row.values()] for key, row in rows.items()]
    kept.sort(key=lambda row: (row[0], int(row[1]), _ORDER.index(row[2].partition(",")[0])))
    note = (
        f"{petsc_described()} Each row of a peer is the state after another of its steps, so the one to compare with "
        "is the first that is as good."
    )
    publish("nonlinear_peers", "Nonlinear equations beside peers", table(_COLUMNS, kept), note)
