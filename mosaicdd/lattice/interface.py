"""The interface: the values that the iteration works on, on lattice lines only.

Of a field of ``N^2`` values it holds ``O(N^2 / s)``: two families of lines, ``lines[0]`` constant
in y, of shape ``(n, lines_y, nx + 1)``, and ``lines[1]`` constant in x, of shape ``(n, lines_x, ny +
1)``, for ``n`` problems on the same lattice; all in one flat tensor, so that a Krylov method can
treat it as a vector. A lattice node stands in both families, with the same value.
"""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.tensors import Tensors


class Interface:
    """The interface values of a block.

    Parameters
    ----------
    problems
        Problems that are solved at once.
    flat
        Storage, by default zeros; lines are views of it.
    """

    def __init__(
        self,
        block: Block,
        *,
        device: torch.device,
        dtype: torch.dtype,
        problems: int = 1,
        flat: torch.Tensor | None = None,
    ):
        shapes = [block.line_shape(axis) for axis in (0, 1)]
        sizes = [rows * nodes for rows, nodes in shapes]
        if flat is None:
            flat = torch.zeros(problems * sum(sizes), device=device, dtype=dtype)
        self.block = block
        self.problems = problems
        self.flat = flat
        self.lines = tuple(
            part.unflatten(1, shape)
            for part, shape in zip(
                flat.view(problems, sum(sizes)).split(sizes, dim=1), shapes, strict=True
            )
        )

    @property
    def tensors(self) -> Tensors:
        """Device and type of the values."""
        return {"device": self.flat.device, "dtype": self.flat.dtype}

    def like(self, flat: torch.Tensor | None = None) -> "Interface":
        """Return another interface of the same block and problems, by default of zeros."""
        return Interface(self.block, problems=self.problems, flat=flat, **self.tensors)

    def part(self, block: Block) -> "Interface":
        """Return a copy of the values in the region of a block within this one."""
        part = Interface(block, problems=self.problems, **self.tensors)
        for axis, (own, lines) in enumerate(zip(part.lines, self.lines, strict=True)):
            across = block.first[axis] - self.block.first[axis]
            along = block.origin[1 - axis] - self.block.origin[1 - axis]
            count, nodes = own.shape[1:]
            own.copy_(lines[:, across : across + count, along : along + nodes])
        return part

    def like_boundary(self) -> "Interface":
        """Return another interface with the values on the edge of the domain, zero elsewhere."""
        other = self.like()
        other.copy_boundary(self)
        return other

    def copy_boundary(self, other: "Interface") -> None:
        """Take the values on the edge of the domain from another interface."""
        for axis, part in self.block.boundary_pieces():
            self.lines[axis][..., *part] = other.lines[axis][..., *part]

    def impose(self, boundaries: Sequence[Boundary]) -> None:
        """Write the boundary data of each problem to its values on the edge of the domain."""
        s, block = self.block.lattice.spacing, self.block
        for axis, lines in enumerate(self.lines):
            other = 1 - axis
            along = slice(block.origin[other], block.origin[other] + block.cells[other] + 1)
            across = slice(block.origin[axis], block.origin[axis] + block.cells[axis] + 1, s)
            for end, at in zip((0, -1), block.at_edge(axis), strict=True):
                if at:
                    edges = np.stack([b.edge(axis, end)[along] for b in boundaries])
                    lines[:, end] = torch.from_numpy(edges)
            for end, at in zip((0, -1), block.at_edge(other), strict=True):
                if at:
                    edges = np.stack([b.edge(other, end)[across] for b in boundaries])
                    lines[:, :, end] = torch.from_numpy(edges)

    def take(self, fields: torch.Tensor) -> None:
        """Take the values on the lines from those at all nodes of the region, ``(n, rows, columns)``."""
        s = self.block.lattice.spacing
        self.lines[0].copy_(fields[:, ::s])
        self.lines[1].copy_(fields[:, :, ::s].mT)

    def owned_parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of the values that this block owns: every node of the interface once.

        Over all blocks each interface node inside the domain is owned once. Of the two copies of a
        lattice node, the one in the lines constant in y counts, so the lines constant in x come as
        ``(n, lines, lattice cells, s - 1)``.
        """
        s, block = self.block.lattice.spacing, self.block
        cells, across = block.owned_cells(0), block.owned(1)[0]
        between = self.lines[1][:, across, 1:].unfold(2, s - 1, s)[:, :, cells]
        return self.lines[0][..., *block.owned(0)], between

    def ownership(self) -> "Interface":
        """Return ones at the values that this block owns and zeros elsewhere."""
        owned = self.like()
        for part in owned.owned_parts():
            part.fill_(1.0)
        return owned

    def nodes(self) -> torch.Tensor:
        """Return the values at the owned lattice nodes, a view ``(n, *block.subdomains)``."""
        return self.lines[0][:, *self.block.owned_lattice_nodes()]

    def match_copies(self) -> None:
        """Give both copies of each lattice node the value that counts: on the lines constant in y."""
        s = self.block.lattice.spacing
        self.lines[1][:, :, ::s] = self.lines[0][:, :, ::s].mT
