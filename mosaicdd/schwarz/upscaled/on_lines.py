"""Values at the nodes of the lines through coarse nodes, but for the outermost lines of a band.

What a fill leaves of the equation is there: inside the coarse cells it is solved.
"""

from dataclasses import dataclass

import torch

from mosaicdd.lattice.axes import Slices


@dataclass(frozen=True)
class OnLines:
    """Values of ``n`` problems, for ``R x C`` coarse nodes of a band.

    Parameters
    ----------
    nodes
        At the coarse nodes, ``(n, R - 2, C - 2)``.
    along_x, along_y
        At the nodes between them on the lines constant in y, ``(n, R - 2, C - 1)``, and in x, ``(n, R - 1,
        C - 2)``, from the first of a coarse cell to the last.
    """

    nodes: torch.Tensor
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

        Parameters
        ----------
        heights
            How high nodes lie on the way to the next coarse one, of all lines of the band along x and
            along y.
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
