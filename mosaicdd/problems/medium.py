"""A medium: the coefficients of ``-div(a grad u) + c u`` as fields, and the discrete operator they make.

Between two neighbouring nodes flows the difference of their values times a *conductance*. Where ``a`` is
given at the nodes, it is the harmonic mean of the two; where it is given per cell, as images and
material maps are, the mean of the two cells beside the grid edge, which is exact where materials meet on
grid lines. ``c`` is given at the nodes. All is scaled by the squared spacing, so a conductance has the
units of ``a``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields import Field, Part


@dataclass(frozen=True)
class Conductances:
    """The discrete operator between the nodes ``(rows, columns)`` of a part of the grid.

    Parameters
    ----------
    up
        ``(rows - 1, columns)``: between a node and the one above it.
    right
        ``(rows, columns - 1)``: between a node and the one to its right.
    reaction
        ``(rows, columns)``: ``c`` times the squared spacing.
    """

    up: np.ndarray
    right: np.ndarray
    reaction: np.ndarray

    def part(self, rows: slice, columns: slice) -> "Conductances":
        """Return views of those between some of the nodes."""
        return Conductances(
            self.up[rows.start : rows.stop - 1, columns],
            self.right[rows, columns.start : columns.stop - 1],
            self.reaction[rows, columns],
        )

    def diagonal(self) -> np.ndarray:
        """Return the sum of a node's conductances and its reaction, ``(rows, columns)``."""
        total = self.reaction.copy()
        total[:-1] += self.up
        total[1:] += self.up
        total[:, :-1] += self.right
        total[:, 1:] += self.right
        return total

    def apply(self, u: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` at the nodes inside: ``(.., rows, columns)`` less one all around."""
        up = self.up[:, 1:-1] * (u[..., 1:, 1:-1] - u[..., :-1, 1:-1])
        right = self.right[1:-1] * (u[..., 1:-1, 1:] - u[..., 1:-1, :-1])
        inner = u[..., 1:-1, 1:-1] * self.reaction[1:-1, 1:-1]
        return inner + up[..., :-1, :] - up[..., 1:, :] + right[..., :-1] - right[..., 1:]

    def matrix(self) -> scipy.sparse.csr_array:
        """Return ``h^2 A`` of the nodes inside, row by row from the bottom."""
        numbers = np.arange((self.up.shape[0] - 1) * (self.up.shape[1] - 2))
        numbers = numbers.reshape(self.up.shape[0] - 1, -1)
        up, right = self.up[1:-1, 1:-1].ravel(), self.right[1:-1, 1:-1].ravel()
        pairs = (
            (numbers[:-1].ravel(), numbers[1:].ravel(), -up),
            (numbers[:, :-1].ravel(), numbers[:, 1:].ravel(), -right),
        )
        diagonal = numbers.ravel(), numbers.ravel(), self.diagonal()[1:-1, 1:-1].ravel()
        entries = [diagonal, *pairs, *((j, i, value) for i, j, value in pairs)]
        rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        return scipy.sparse.coo_array((values, (rows, columns)), shape=(numbers.size,) * 2).tocsr()


class Medium:
    """The coefficients ``a`` and ``c`` of a problem; two are equal if their values are the same objects.

    Parameters
    ----------
    a
        Positive; anything that `Field` takes, or values per cell ``(ny, nx)``.
    c
        Not negative, at the nodes.
    """

    self_adjoint = True
    reflective = False

    def __init__(self, a: Field, c: Field):
        self.a = a
        self.c = c

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Medium):
            return NotImplemented
        pairs = ((self.a, other.a), (self.c, other.c))
        return all(
            one.values is two.values or (one.number is not None and one.number == two.number)
            for one, two in pairs
        )

    def __hash__(self) -> int:
        return hash((self.a.number, self.c.number))

    def require_shape(self, grid: Grid) -> None:
        """Check that values belong to a grid, and serve all problems.

        Raises
        ------
        ValueError
            If they do not, with both shapes.
        """
        for field in (self.a, self.c):
            if field.problems > 1:
                raise ValueError(
                    f"the field {field.name} is of {field.problems} problems; problems that are solved "
                    "at once share their coefficients: solve them one by one"
                )
        self.c.require_shape(grid)
        if not self.a.per_cell(grid):
            self.a.require_shape(grid)

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part of a grid.

        Raises
        ------
        ValueError
            If a value is not finite, ``a`` is not positive, or ``c`` is negative, with its place.
        """
        c = _checked(self.c.sample(grid, part)[0], self.c, part, positive=False)
        if self.a.per_cell(grid):
            up, right = self._from_cells(grid, part)
        else:
            a = _checked(self.a.sample(grid, part)[0], self.a, part, positive=True)
            resistance = 0.5 / a
            up = 1.0 / (resistance[1:] + resistance[:-1])
            right = 1.0 / (resistance[:, 1:] + resistance[:, :-1])
        return Conductances(up, right, grid.spacing**2 * c)

    def _from_cells(self, grid: Grid, part: Part) -> tuple[np.ndarray, np.ndarray]:
        """Return ``up`` and ``right``; on the outline of the domain there is half of one cell only."""
        rows, columns = (
            slice(max(p.start - 1, 0), min(p.stop, cells))
            for p, cells in zip(part, grid.shape, strict=True)
        )
        a = self.a.sample_cells((rows, columns))
        a = _checked(a, self.a, (rows, columns), positive=True)
        ends = [
            (int(p.start == 0), int(p.stop == nodes))
            for p, nodes in zip(part, grid.nodes, strict=True)
        ]
        padded = np.pad(0.5 * a, ends)  # half cells, with none beyond the outline
        up = padded[1:-1, :-1] + padded[1:-1, 1:]
        right = padded[:-1, 1:-1] + padded[1:, 1:-1]
        return up, right


def _checked(values: np.ndarray, field: Field, part: Part, *, positive: bool) -> np.ndarray:
    """Check the sign of coefficients, and return them."""
    bad = values <= 0 if positive else values < 0
    if bad.any():
        first = np.argwhere(bad)[0]
        place = tuple(int(i) + p.start for i, p in zip(first, part, strict=True))
        raise ValueError(
            f"the field {field.name} must be {'positive' if positive else 'not negative'} everywhere; "
            f"{int(bad.sum())} of {bad.size} values are not, the first is {values[tuple(first)]:g} at "
            f"{place}"
        )
    return values


class MediumSystem:
    """The system ``A u = b`` of the nodes inside a domain, as `DirichletSystem`, in a medium."""

    def __init__(self, medium: Medium, grid: Grid):
        self.operator = medium
        self.grid = grid
        self.shape = grid.shape
        rows, columns = (slice(0, nodes) for nodes in grid.nodes)
        self._conductances = medium.conductances(grid, (rows, columns))

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 A``, of ``(ny - 1) (nx - 1)`` rows, row by row from the bottom."""
        return self._conductances.matrix()

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` of a field ``(ny + 1, nx + 1)``: ``(ny - 1, nx - 1)``."""
        return self._conductances.apply(field)

    def right_hand_side(self, field: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
        """Return ``b`` for the edge values of a field and a source ``f`` at the nodes."""
        edge = np.array(field)
        edge[1:-1, 1:-1] = 0.0
        b = -self.apply(edge)
        if source is not None:
            b += self.grid.spacing**2 * source[1:-1, 1:-1]
        return b.ravel()

    def solve(self, right_hand_side: np.ndarray) -> np.ndarray:
        """Solve by a sparse factorisation."""
        return scipy.sparse.linalg.splu(self.matrix.tocsc()).solve(right_hand_side)
