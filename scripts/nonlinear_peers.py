"""The peers of `bench_nonlinear_peers`: Newton's method with other linear solvers."""

import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse
from peers import PeerResult, by_petsc, by_pyamg

import mosaicdd as m
from mosaicdd.problems.discretisation.discrete import DirichletSystem, MediumSystem
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.nonlinear_part import Linearised

BOLTZMANN, SURFACE = "poisson-boltzmann", "minimal-surface"
C = 10.0
TIGHT = 1e-8  # relative residual of a certificate, and of the peers' last row


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
        rtol = max(0.1 * TIGHT / left, min(1e-2, 0.1 * left))
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
        if left <= TIGHT:
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
