"""The interface: the values that the iteration works on, on lattice lines only.

Of a field of ``N^2`` values it holds ``O(N^2 / s)``: two families of lines, ``lines[0]`` constant
in y, of shape ``(lines_y, nx + 1)``, and ``lines[1]`` constant in x, of shape ``(lines_x, ny +
1)``, both in one flat tensor, so that a Krylov method can treat it as a vector. A lattice node
stands in both families, with the same value.
"""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.problems.boundary import Boundary


class Interface:
    """The interface values of a block.

    Parameters
    ----------
    flat
        Storage, by default zeros; lines are views of it.
    """

    def __init__(
        self,
        block: Block,
        *,
        device: torch.device,
        dtype: torch.dtype,
        flat: torch.Tensor | None = None,
    ):
        shapes = [block.line_shape(axis) for axis in (0, 1)]
        sizes = [rows * nodes for rows, nodes in shapes]
        self.block = block
        self.flat = torch.zeros(sum(sizes), device=device, dtype=dtype) if flat is None else flat
        self.lines = tuple(
            part.view(shape) for part, shape in zip(self.flat.split(sizes), shapes, strict=True)
        )

    def like(self, flat: torch.Tensor | None = None) -> "Interface":
        """Return another interface of the same block, by default of zeros."""
        return Interface(self.block, device=self.flat.device, dtype=self.flat.dtype, flat=flat)

    def clear_inner(self) -> None:
        """Set all values to zero but those on the edge of the domain."""
        for axis, lines in enumerate(self.lines):
            lines[self.block.inner(axis)].zero_()

    def copy_boundary(self, other: "Interface") -> None:
        """Take the values on the edge of the domain from another interface."""
        for axis, part in self.block.boundary_pieces():
            self.lines[axis][part] = other.lines[axis][part]

    def impose(self, boundary: Boundary) -> None:
        """Write boundary data to the values on the edge of the domain."""
        s, block = self.block.lattice.spacing, self.block
        for axis, lines in enumerate(self.lines):
            other = 1 - axis
            along = slice(block.origin[other], block.origin[other] + block.cells[other] + 1)
            across = slice(block.origin[axis], block.origin[axis] + block.cells[axis] + 1, s)
            for end, at in zip((0, -1), block.at_edge(axis), strict=True):
                if at:
                    lines[end] = torch.from_numpy(boundary.edge(axis, end)[along].copy())
            for end, at in zip((0, -1), block.at_edge(other), strict=True):
                if at:
                    lines[:, end] = torch.from_numpy(boundary.edge(other, end)[across].copy())

    def ownership(self) -> "Interface":
        """Return ones at the values that this block owns and zeros elsewhere.

        Over all blocks each interface node inside the domain is owned once; of the two copies of a
        lattice node, the one in the lines constant in y counts.
        """
        owned = self.like()
        for axis, lines in enumerate(owned.lines):
            lines[self.block.owned(axis)] = 1.0
        owned.lines[1][:, :: self.block.lattice.spacing] = 0.0
        return owned

    def nodes(self) -> torch.Tensor:
        """Return the values at the owned lattice nodes, a view of shape ``block.subdomains``."""
        s = self.block.lattice.spacing
        return self.lines[0][1:-1, s:-1:s]

    @staticmethod
    def values_of_field(block: Block, field: np.ndarray) -> np.ndarray:
        """Take the flat values of a block from a field of the whole domain."""
        s = block.lattice.spacing
        return Interface.values_of_lines(block, (field[::s], field[:, ::s].T))

    @staticmethod
    def values_of_lines(block: Block, lines: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Take the flat values of a block from the lines of the whole domain."""
        parts = []
        for axis, whole in enumerate(lines):
            across = slice(block.start[axis] - 1, block.stop[axis] + 1)
            first = block.origin[1 - axis]
            parts.append(whole[across, first : first + block.cells[1 - axis] + 1].ravel())
        return np.concatenate(parts)
