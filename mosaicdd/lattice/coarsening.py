"""The coarse nodes of a lattice: every ``s / q``-th node of its lines.

They are the interface of the same lattice on a grid ``s / q`` times coarser, so subdomains gather the
coarse values of their perimeters, ``8 q``, as they gather perimeters. With ``q = 1`` they are the
lattice nodes.

Unknowns, the coarse nodes inside the domain, are numbered in three parts: lattice nodes ``(K_y - 1,
K_x - 1)``; those between on lines constant in y, ``(K_y - 1, K_x, q - 1)``; and on lines constant in x,
``(K_x - 1, K_y, q - 1)``. With ``q = 1``, which serves any number of axes, the first alone has any.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice


class Coarsening:
    """Coarse nodes of a lattice.

    ``points``: ``q``, coarse nodes per lattice cell along a line; it must divide ``s``.

    Attributes
    ----------
    step
        Distance of coarse nodes, in cells.
    lattice
        The same lattice on the coarse grid.
    shapes, size
        Of the three parts of the unknowns, and their number.
    """

    def __init__(self, lattice: Lattice, points: int):
        if points < 1 or lattice.spacing % points:
            raise ValueError(
                f"{points} coarse nodes per lattice cell must divide its {lattice.spacing} cells"
            )
        self.points = points
        self.step = lattice.spacing // points
        if points > 1 and len(lattice.cells) != 2:
            raise ValueError(
                f"{points} coarse nodes per lattice cell: more than 1 are for lattices of 2 axes, this "
                f"one has {len(lattice.cells)}"
            )
        cells = tuple(count * points for count in lattice.cells)
        grid = lattice.grid.coarser(cells, self.step)
        coarse = dataclasses.replace(lattice.subdomain, cells=2 * points)
        self.lattice = Lattice(grid, coarse)
        nodes = tuple(count - 1 for count in lattice.cells)
        self.shapes: list[tuple[int, ...]] = [nodes]
        if points > 1:
            y, x = lattice.cells
            self.shapes += [(y - 1, x, points - 1), (x - 1, y, points - 1)]
        self.size = sum(map(math.prod, self.shapes))

    def block(self, block: Block) -> Block:
        """Return a block of the fine lattice on the coarse one."""
        return Block(self.lattice, block.start, block.stop, block.halo)

    def parts(self, unknowns: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return views ``(n, *shape)`` of the parts of unknowns ``(n, size)``."""
        split = unknowns.split([math.prod(shape) for shape in self.shapes], dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(split, self.shapes, strict=True)]

    def touched(self, block: Block) -> np.ndarray:
        """Return the numbers of the unknowns that the sweep of a block's subdomains computes."""
        numbers = self.parts(torch.arange(self.size)[None])
        places = self._touched(block)
        chosen = [part[0][*place].reshape(-1) for part, place in zip(numbers, places, strict=True)]
        return torch.cat(chosen).numpy()

    def _touched(self, block: Block) -> list[tuple[slice, ...]]:
        """Return where those lie in the three parts: between blocks, cells are touched by both."""
        nodes = [slice(a - 1, b - 1) for a, b in zip(block.start, block.stop, strict=True)]
        cells = [slice(a - 1, b) for a, b in zip(block.start, block.stop, strict=True)]
        if self.points == 1:
            return [tuple(nodes)]
        return [tuple(nodes), (nodes[0], cells[1]), (nodes[1], cells[0])]

    def sample(
        self, v: Interface, out: torch.Tensor, *, minus: Interface | None = None, alone: bool
    ) -> None:
        """Write values at the touched coarse nodes of a block, ``(n, touched)``.

        Parameters
        ----------
        v
            On the fine lattice.
        minus
            Subtracted at the nodes that the block owns.
        alone
            Whether, at nodes that the block touches and does not own, ``v`` holds what its own
            subdomains contribute; otherwise zeros are written there.
        """
        block, q, s = v.block, self.points, v.block.lattice.spacing
        nodes = v.nodes() if minus is None else v.nodes() - minus.nodes()
        count = nodes[0].numel()
        out[:, :count] = nodes.flatten(1)
        if q == 1:
            return
        for axis in (0, 1):
            along = 1 - axis
            lines = slice(
                block.start[axis] - block.first[axis], block.stop[axis] - block.first[axis]
            )
            low = block.start[along] - 1 - block.first[along]
            cells = slice(low, block.stop[along] - block.first[along])
            owned = block.owned_cells(along).start - low  # cells before are another block's

            def between(
                w: Interface, axis: int = axis, lines: slice = lines, cells: slice = cells
            ) -> torch.Tensor:
                inner = w.lines[axis][:, lines, :-1].unflatten(2, (-1, s))
                return inner[:, :, cells, self.step :: self.step]

            values = between(v)
            part = out[:, count : count + values[0].numel()].view(values.shape)
            part.copy_(values)
            if minus is not None:
                part[:, :, owned:] -= between(minus)[:, :, owned:]
            if not alone:
                part[:, :, :owned].zero_()
            count += values[0].numel()

    def spread(self, unknowns: torch.Tensor, coarse: Interface) -> None:
        """Write unknowns ``(n, size)`` to the interface of a block of the coarse lattice."""
        block, q = coarse.block, self.points
        ends = list(zip(block.first, block.last, block.lattice.subdomains, strict=True))
        here = [slice(max(a, 1) - a, min(b, n) + 1 - a) for a, b, n in ends]  # among its lines
        whole = [slice(max(a, 1) - 1, min(b, n)) for a, b, n in ends]  # among the inner lines
        nodes, *between = self.parts(unknowns)
        inner = nodes[:, *whole]
        for axis, lines in enumerate(coarse.lines):
            places = (slice(p.start * q, (p.stop - 1) * q + 1, q) for p in here)
            part = tuple(here[axis] if axis == other else p for other, p in enumerate(places))
            coarse.in_order(axis)[:, *part] = inner
            if q > 1:
                along = 1 - axis
                cells = slice(block.first[along], block.last[along])
                target = lines[:, here[axis], :-1].unflatten(2, (-1, q))
                target[..., 1:] = between[axis][:, whole[axis], cells]
