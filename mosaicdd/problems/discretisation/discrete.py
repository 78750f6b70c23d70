"""The discrete equation on a rectangle with Dirichlet data: its sparse system and direct solution.

Of constant coefficients by its stencil, in a medium by its conductances.

Fields are arrays ``(ny + 1, nx + 1, ...)`` whose edge holds the boundary data; trailing axes are
right-hand sides. Used by the exact local solver, the datasets and the references.
"""

import functools
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.problems.shapes.outline import sides
from mosaicdd.problems.sides.boundary import Boundary

Places = tuple[slice, ...]
Array = TypeVar("Array", np.ndarray, torch.Tensor)
Operator = TypeVar("Operator")


class LinearSystem:
    """A sparse system ``A u = b``."""

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``A``."""
        raise NotImplementedError

    @cached_property
    def _factors(self) -> scipy.sparse.linalg.SuperLU:
        return scipy.sparse.linalg.splu(self.matrix.tocsc())

    def solve(self, right_hand_side: np.ndarray) -> np.ndarray:
        """Solve by a sparse factorisation, kept for further calls."""
        return self._factors.solve(right_hand_side)


class RectangleSystem(LinearSystem, Generic[Operator]):
    """That of the nodes inside a rectangle, both sides times the squared spacing."""

    def __init__(self, operator: Operator, grid: Grid):
        self.operator = operator
        self.grid = grid
        self.shape = grid.shape

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` of any field with its edge, at the nodes inside."""
        raise NotImplementedError

    def right_hand_side(self, field: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
        """Return ``b`` for the edge values of ``field``, ``((ny - 1) (nx - 1), ...)``.

        ``source``: ``f`` at the nodes, of the shape of ``field``; only inner nodes count.
        """
        axes = len(self.shape)
        edge, inner = np.array(field), (slice(1, -1),) * axes
        edge[inner] = 0.0
        b = -self.apply(edge)
        if source is not None:
            b += self.grid.spacing**2 * source[inner]
        return b.reshape(-1, *field.shape[axes:])


class MediumSystem(RectangleSystem[Medium | Linearised]):
    """That in a medium, on a grid of any number of axes."""

    def __init__(self, medium: Medium | Linearised, grid: Grid):
        super().__init__(medium, grid)
        whole = tuple(slice(0, nodes) for nodes in grid.nodes)
        self._conductances = medium.conductances(grid, whole)

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 A``, row by row from the bottom."""
        return self._conductances.matrix()

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` of a field ``(ny + 1, nx + 1)``: ``(ny - 1, nx - 1)``."""
        return self._conductances.apply(field)


class DirichletSystem(RectangleSystem[EllipticOperator]):
    """That of constant coefficients.

    Parameters
    ----------
    operator
        Whose 3 x 3 stencil is applied; ``A`` is positive definite where that is self-adjoint and its
        ``c`` not negative.
    grid
        Whose inner nodes are the unknowns.
    """

    def __init__(self, operator: EllipticOperator, grid: Grid):
        super().__init__(operator, grid)
        self.stencil = operator.stencil(grid.spacing)

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``A``, of ``(ny - 1) (nx - 1)`` rows, row by row from the bottom."""
        ny, nx = (cells - 1 for cells in self.shape)
        rows = [
            scipy.sparse.kron(
                scipy.sparse.eye_array(ny, k=dy),
                scipy.sparse.diags_array(self.stencil[dy + 1], offsets=[-1, 0, 1], shape=(nx, nx)),
            )
            for dy in (-1, 0, 1)
        ]
        matrix = sum(rows[1:], rows[0]).tocsr()
        matrix.eliminate_zeros()
        return matrix

    def apply(self, field: Array) -> Array:
        """Apply the stencil to any field with its edge.

        From ``(ny + 1, nx + 1, ...)`` it gives ``(ny - 1, nx - 1, ...)``.
        """
        ny, nx = field.shape[0] - 2, field.shape[1] - 2
        total = float(self.stencil[1, 1]) * field[1:-1, 1:-1]
        for weight, places in self._neighbours_by_weight:
            first, *others = (field[dy : dy + ny, dx : dx + nx] for dy, dx in places)
            total += weight * functools.reduce(operator.add, others, first)
        return total

    @cached_property
    def _neighbours_by_weight(self) -> list[tuple[float, list[tuple[int, int]]]]:
        """The other entries of the stencil, ``(weight, [(row, column), ..])``: few products."""
        groups: dict[float, list[tuple[int, int]]] = {}
        for dy, dx in zip(*np.nonzero(self.stencil), strict=True):
            if (dy, dx) != (1, 1):
                groups.setdefault(float(self.stencil[dy, dx]), []).append((dy, dx))
        return list(groups.items())

    def edge_terms(self, boundaries: Sequence[Boundary]) -> list[tuple[Places, np.ndarray]]:
        """Return what the edges alone add to ``b``: only the nodes next to them have any.

        They are, for the inner nodes beside the bottom, the top, the left and the right edge of a grid of at least 4 x
        4 cells, each node once: where they lie in the field, as a slice per axis, and their values
        ``(rows, columns, n)``.
        """
        (ny, nx), count = self.shape, len(boundaries)
        edges = {
            side: np.stack([boundary.edges[side] for boundary in boundaries], axis=-1)
            for side in sides()
        }
        strips: list[tuple[Places, np.ndarray]] = []
        for end, three in enumerate((slice(0, 3), slice(-3, None))):
            rows = np.zeros((3, nx + 1, count))
            rows[:, 0], rows[:, -1] = edges[1, 0][three], edges[1, 1][three]
            rows[-end] = edges[0, end]
            at = ny - 1 if end else 1
            strips.append(((slice(at, at + 1), slice(1, nx)), -self.apply(rows)))
        for end in (0, 1):
            columns = np.zeros((ny - 1, 3, count))
            columns[:, -end] = edges[1, end][1:-1]
            at = nx - 1 if end else 1
            strips.append(((slice(2, ny - 1), slice(at, at + 1)), -self.apply(columns)))
        return strips

    def right_hand_side_norms(self, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the 2-norm of each ``b`` without a source, from the edges alone."""
        terms = [values.reshape(-1, len(boundaries)) for _, values in self.edge_terms(boundaries)]
        # One by one, by BLAS, which scales: the squares of large values would overflow.
        return np.array([_norm(row) for row in np.concatenate(terms).T.copy()])


def _norm(values: np.ndarray) -> float:
    return float(scipy.linalg.norm(values, check_finite=False))
