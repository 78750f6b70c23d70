"""From the values at coarse nodes to the field, band by band, and to what it leaves of the equation.

Along the lines through coarse nodes the one-dimensional equation is solved between each two of them,
inside each coarse cell the equation itself; then, five times, on the lines again, given what is inside, with
over-relaxation, and inside the cells. All of it is local: a value depends on coarse nodes at most six
cells away.

Shape letters: ``n`` problems; sources are times the squared spacing.
"""

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.upscaled.cell_solves import Cells, CellValues, Lines, residual_at_nodes

_ROUNDS = 5  # after which estimates cover the errors (`scripts/bench_field_networks.py`)
Slot = tuple[slice | int, slice | int]
REACH = 6
"""Coarse cells around a fine node that its value depends on."""


@dataclass(frozen=True)
class OnLines:
    """Values at the nodes of the lines through coarse nodes, but for the outermost: ``R x C`` nodes of a band.

    What a fill leaves of the equation is there: inside the coarse cells it is solved.
    """

    nodes: torch.Tensor  # at the coarse nodes, ``(n, R - 2, C - 2)``
    # along_x, along_y: at the nodes between them on the lines constant in y, ``(n, R - 2, C - 1)``,
    # and in x, ``(n, R - 1, C - 2)``, from the first of a coarse cell to the last
    along_x: list[torch.Tensor]
    along_y: list[torch.Tensor]

    def over(self, other: "OnLines") -> "OnLines":
        """Return the quotients."""
        return OnLines(
            self.nodes / other.nodes,
            [a / b for a, b in zip(self.along_x, other.along_x, strict=True)],
            [a / b for a, b in zip(self.along_y, other.along_y, strict=True)],
        )

    def squares(self, cells: Slices) -> torch.Tensor:
        """Return the sums of the squares over some coarse cells with their lower left nodes, ``(n,)``."""
        rows, columns = cells
        below, left = (slice(max(p.start - 1, 0), max(p.stop - 1, 0)) for p in cells)
        parts = [self.nodes[:, below, left]]
        parts += [values[:, below, columns] for values in self.along_x]
        parts += [values[:, rows, left] for values in self.along_y]
        return sum((part.square().sum(dim=(1, 2)) for part in parts), torch.zeros(()).to(parts[0]))

    def restricted(self, heights: tuple[list[torch.Tensor], ...]) -> torch.Tensor:
        """Share values out to the coarse nodes, ``(n, R, C)``, right at those that are not outermost.

        It is the transpose of the interpolation along lines.
        ``heights``: how high nodes lie on the way to the next coarse one, of all lines of the band along x and along
        y.
        """
        n, rows, columns = self.nodes.shape
        total = self.nodes.new_zeros(n, rows + 2, columns + 2)
        inner = total[:, 1:-1, 1:-1]
        inner += self.nodes
        for values, high in zip(self.along_x, heights[0], strict=True):
            upper = values * high[1:-1].to(values)
            total[:, 1:-1, 1:] += upper
            total[:, 1:-1, :-1] += values - upper
        for values, high in zip(self.along_y, heights[1], strict=True):
            upper = values * high[:, 1:-1].to(values)
            total[:, 1:, 1:-1] += upper
            total[:, :-1, 1:-1] += values - upper
        return total


@dataclass(frozen=True)
class Band:
    """Some rows of coarse cells, with what lies between their nodes in the fine medium."""

    conductances: Conductances  # between the fine nodes
    source: torch.Tensor | None  # at the fine nodes, ``(n or 1, rows, columns)``; None for zero
    # Where the band ends at the edge of the domain: which nodes, rows and columns, and the values
    # there, ``(n, nodes)``
    edges: list[tuple[Slot, torch.Tensor]]

    def fill(self, coarse: torch.Tensor) -> "Filled":
        """Return the values at the fine nodes from those at coarse ones ``(n, rows, columns)``."""
        up, right, reaction = (
            torch.from_numpy(np.ascontiguousarray(values)).to(coarse)
            for values in (*self.conductances.along, self.conductances.reaction)
        )
        u = CellValues(coarse)
        u.interpolate(*self.heights)
        for (rows, columns), values in self.edges:
            u.impose(rows, columns, values)
        fine = up, right, reaction, self.source
        cells, lines = Cells(*fine), (Lines(0, *fine), Lines(1, *fine))
        cells.solve(u)
        for _ in range(_ROUNDS):
            for line_solve in lines:
                line_solve.solve(u)
            cells.solve(u)
        diagonal, left = residual_at_nodes(u, *fine)
        return Filled(
            self,
            u,
            OnLines(diagonal, *(solve.diagonal for solve in lines)),
            OnLines(left, *(solve.residual(u) for solve in lines)),
        )

    def given(self, problems: int) -> torch.Tensor:
        """Return the right-hand side at the fine nodes, ``(n, rows, columns)``."""
        shape = problems, *self.conductances.reaction.shape
        b = torch.zeros(shape, dtype=torch.float64)
        if self.source is not None:
            b += self.source.to(b)
        for (rows, columns), values in self.edges:
            # The first grid edges, or the last, and the nodes that they join to the outermost.
            along = self.conductances.along[0 if isinstance(rows, int) else 1]
            beside = [1 if at == 0 else -2 if at == -1 else at for at in (rows, columns)]
            b[:, *beside] += values.to(b) * torch.from_numpy(along[rows, columns])
        return b

    @functools.cached_property
    def heights(self) -> tuple[list[torch.Tensor], ...]:
        """How high nodes between coarse ones lie on the way from 0 to 1, along x and along y.

        For each of these nodes of a coarse cell, ``(rows, coarse cells)`` and ``(coarse cells, columns)``.
        """
        up, right = self.conductances.along
        right, up = right[::RATIO], up[:, ::RATIO]
        along = [right[:, i::RATIO] for i in range(RATIO)], [up[i::RATIO] for i in range(RATIO)]
        return tuple(_heights(parts) for parts in along)


@dataclass(frozen=True)
class Filled:
    """The values in a band.

    ``residual``, ``diagonal``: ``b - A u`` on the lines, and the diagonal of ``A`` there, of one problem.
    """

    band: Band
    planes: CellValues
    diagonal: OnLines
    residual: OnLines

    def values(self) -> torch.Tensor:
        """Return them at the fine nodes, ``(n, rows, columns)``."""
        return self.planes.joined()

    def restricted(self) -> torch.Tensor:
        """Share the residual out to the coarse nodes, ``(n, rows, columns)``, but for the outermost."""
        return self.residual.restricted(self.band.heights)

    def squares(self, inner: Slices) -> np.ndarray:
        """Return sums of squares at some fine nodes, none of them outermost, ``(3, n)``.

        Of the residual, of the right-hand side, and of the residual over the diagonal.
        ``inner``: whole coarse cells with their lower left nodes, but for outermost nodes.
        """
        cells = tuple(slice(p.start // RATIO, -(-p.stop // RATIO)) for p in inner)
        left, scaled = self.residual, self.residual.over(self.diagonal)
        b = self.band.given(len(left.nodes))[:, *inner].square().sum(dim=(1, 2))
        sums = left.squares(cells), b.to(left.nodes), scaled.squares(cells)
        return torch.stack(sums).cpu().numpy()


def _heights(conductances: list[np.ndarray]) -> list[torch.Tensor]:
    """Return the heights between conductances in series."""
    up_to = list(itertools.accumulate(1.0 / k for k in conductances))
    return [torch.from_numpy(height / up_to[-1]) for height in up_to[:-1]]
