"""The discrete equation on a rectangle or box with Dirichlet data: its sparse system and direct solution.

Of constant coefficients by its stencil, in a medium by its conductances.

Fields are arrays ``(ny + 1, nx + 1, ...)`` whose edge holds the boundary data; trailing axes are
right-hand sides. Used by the exact local solver, the datasets and the references.
"""

import functools
import itertools
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch

from mosaicdd.axes import all_of, at, others
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.sides import mean_slope, slope_at

Places = tuple[slice, ...]
Array = TypeVar("Array", np.ndarray, torch.Tensor)
Operator = TypeVar("Operator")


class FactorisedSystem:
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


class RectangleSystem(FactorisedSystem, Generic[Operator]):
    """The system of the nodes inside a rectangle, both sides times the squared spacing."""

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
    """The system of a medium, on a grid of any number of axes."""

    def __init__(self, medium: Medium | Linearised, grid: Grid):
        super().__init__(medium, grid)
        whole = all_of(grid.nodes)
        self._conductances = medium.conductances(grid, whole)

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 A``, row by row from the bottom."""
        return self._conductances.matrix()

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` of a field ``(ny + 1, nx + 1)``: ``(ny - 1, nx - 1)``."""
        return self._conductances.apply(field)


class DirichletSystem(RectangleSystem[EllipticOperator]):
    """The system of constant coefficients.

    Parameters
    ----------
    operator
        Whose stencil of 3 nodes per axis is applied; ``A`` is positive definite where that is self-adjoint and its
        ``c`` not negative.
    grid
        Whose inner nodes are the unknowns.
    """

    def __init__(self, operator: EllipticOperator, grid: Grid):
        super().__init__(operator, grid)
        self.stencil = operator.stencil(grid.spacing, len(grid.shape))

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``A``, of ``(ny - 1) (nx - 1)`` rows, row by row from the bottom."""
        matrix = _banded(self.stencil, self.shape).tocsr()
        matrix.eliminate_zeros()
        return matrix

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues of sine modes, ``(ny - 1, nx - 1)``; `ValueError` if these are no eigenvectors."""
        if not self.operator.reflective:
            raise ValueError(f"sines are no eigenvectors of {self.operator}")
        axes = len(self.shape)
        values = np.full([cells - 1 for cells in self.shape], self.stencil[(1,) * axes])
        for axis, cells in enumerate(self.shape):
            cosines = 2 * np.cos(np.pi * np.arange(1, cells) / cells)
            values += self.stencil[at(axis, axes, 0, 1)] * cosines.reshape(at(axis, axes, -1, 1))
        return values

    def solve_by_sines(self, right_hand_side: np.ndarray) -> np.ndarray:
        """Solve for ``(N, ...)`` by sine transforms, of an operator whose eigenvectors sines are; else `ValueError`."""
        inner = tuple(cells - 1 for cells in self.shape)
        values = right_hand_side.reshape(*inner, -1)
        axes = tuple(range(len(inner)))
        modes = scipy.fft.dstn(values, type=1, axes=axes)
        modes /= self.eigenvalues[..., None]
        solved = scipy.fft.idstn(modes, type=1, axes=axes, overwrite_x=True)
        return solved.reshape(right_hand_side.shape)

    def apply(self, field: Array) -> Array:
        """Apply the stencil to any field with its edge.

        From ``(ny + 1, nx + 1, ...)`` it gives ``(ny - 1, nx - 1, ...)``.
        """
        axes = self.stencil.ndim
        inner = [nodes - 2 for nodes in field.shape[:axes]]
        total = float(self.stencil[(1,) * axes]) * field[(slice(1, -1),) * axes]
        for weight, places in self._neighbours_by_weight:
            first, *rest = (
                field[tuple(slice(a, a + n) for a, n in zip(place, inner, strict=True))]
                for place in places
            )
            total += weight * functools.reduce(operator.add, rest, first)
        return total

    @cached_property
    def _neighbours_by_weight(self) -> list[tuple[float, list[tuple[int, ...]]]]:
        """The other entries of the stencil, ``(weight, [(row, column), ..])``: few products."""
        groups: dict[float, list[tuple[int, ...]]] = {}
        for place in zip(*np.nonzero(self.stencil), strict=True):
            if place != (1,) * self.stencil.ndim:
                groups.setdefault(float(self.stencil[place]), []).append(place)
        return list(groups.items())

    def edge_terms(self, boundaries: Sequence[Boundary]) -> list[tuple[Places, np.ndarray]]:
        """Return the part of ``b`` that comes from the edges, at the nodes next to them.

        They are, for the inner nodes beside the bottom, the top, the left and the right edge of a grid of at least 4
        cells along each axis, each node once: where they lie in the field, as a slice per axis, and their values
        ``(rows, columns, n)``.
        """
        axes, count = len(self.shape), len(boundaries)
        strips: list[tuple[Places, np.ndarray]] = []
        for axis, end in itertools.product(range(axes), (0, 1)):
            # Next to axes before, the nodes are those of their strips.
            nodes = [slice(1, n) if k < axis else slice(0, n + 1) for k, n in enumerate(self.shape)]
            nodes[axis] = slice(self.shape[axis] - 2, None) if end else slice(0, 3)
            counts = [len(range(n + 1)[p]) for n, p in zip(self.shape, nodes, strict=True)]
            values = np.zeros((*counts, count))
            for edge in (*itertools.product(range(axis + 1, axes), (0, 1)), (axis, end)):
                along = tuple(nodes[k] for k in others(edge[0], axes))
                data = [boundary.edges[edge][along] for boundary in boundaries]
                values[at(edge[0], axes, -edge[1])] = np.stack(data, axis=-1)
            place = [slice(2, n - 1) if k < axis else slice(1, n) for k, n in enumerate(self.shape)]
            beside = self.shape[axis] - 1 if end else 1
            place[axis] = slice(beside, beside + 1)
            strips.append((tuple(place), -self.apply(values)))
        return strips

    def right_hand_side_norms(self, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the 2-norm of each ``b`` without a source, from the edges alone."""
        terms = [values.reshape(-1, len(boundaries)) for _, values in self.edge_terms(boundaries)]
        # One by one, by BLAS, which scales: the squares of large values would overflow.
        rows = np.concatenate(terms).T.copy()
        return np.array([scipy.linalg.norm(row, check_finite=False) for row in rows])


def _banded(stencil: np.ndarray, shape: tuple[int, ...]) -> scipy.sparse.sparray:
    """Return the matrix of a stencil on inner nodes, the last axis fastest."""
    nodes = shape[0] - 1
    if stencil.ndim == 1:
        return scipy.sparse.diags_array(stencil, offsets=[-1, 0, 1], shape=(nodes, nodes))
    bands = [
        scipy.sparse.kron(
            scipy.sparse.eye_array(nodes, k=step), _banded(stencil[step + 1], shape[1:])
        )
        for step in (-1, 0, 1)
    ]
    return sum(bands[1:], bands[0])


class GlobalSystem(FactorisedSystem):
    """The system ``A u = b`` of all nodes of a grid, with unit rows without unknowns.

    Nodes of the second of two periodic sides are those of the first.

    Parameters
    ----------
    problem
        With any sides.
    number
        Which of several problems.
    """

    def __init__(self, problem: Problem, grid: Grid, number: int = 0):
        self.operator = medium_of(problem.operator)
        self._discretisation = discretisation = Discretisation(problem, self.operator, grid)
        self._periodic = problem.conditions.periodic
        ends = zip(grid.nodes, self._periodic, strict=True)
        counts = [nodes - around for nodes, around in ends]  # of the nodes with an equation
        wide = tuple(slice(-1, nodes + 1) for nodes in counts)
        self._wide = discretisation.equations(wide)
        self._part = all_of(counts)
        self._equations = self._wide.part(*tuple(slice(1, nodes + 1) for nodes in counts))
        self._outline = discretisation.values(problem)
        self._problem, self._number = problem, number
        b = discretisation.right_hand_side(problem, self._outline, wide, self._wide)
        inner = (slice(1, -1),) * len(counts)
        self._b = b[number % len(b)][inner]

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 A``, of ``(ny + 1) (nx + 1)`` rows, row by row from the bottom; a pair of sides is one."""
        return self._wide.conductances.matrix(self._periodic)

    @property
    def right_hand_side(self) -> np.ndarray:
        """``b``, of all nodes; without any given value it is made compatible."""
        b = self._b.copy()
        if self._discretisation.floating:
            volumes = self._equations.volumes
            b -= b.sum() / volumes.sum() * volumes
            b[~self._equations.active] = 0.0
        return b.ravel()

    def field(self, u: np.ndarray) -> np.ndarray:
        """Return the field ``(ny + 1, nx + 1)`` of a solution: with given values, or mean zero."""
        field = u.reshape(self._b.shape).copy()
        sides, grid = self._problem.conditions, self._discretisation.grid
        if self._discretisation.floating:
            volumes = self._equations.volumes
            slope = mean_slope(sides, grid, self._part, halves=True)
            field -= ((field if slope is None else field + slope) * volumes).sum() / volumes.sum()
        outlines = self._equations.outlines
        if outlines is not None:
            field[~outlines.reported] = np.nan
        if not self._discretisation.floating:
            place, values = self._discretisation.given(
                self._problem, self._outline, self._part, outlines
            )
            nodes = np.stack(place, axis=1)
            slope_there = slope_at(sides, grid, nodes)
            field[place] = values[self._number % len(values)] - slope_there
        field = np.pad(field, [(0, int(around)) for around in self._periodic], mode="wrap")
        whole = all_of(field.shape)
        slope = mean_slope(sides, grid, whole)
        return field if slope is None else field + slope
