"""Everything that is planned once for a medium on the block of a rank: ``S`` and its preconditioner."""

import math

import numpy as np
import torch

from mosaicdd.lattice.axes import pair
from mosaicdd.lattice.block import Block
from mosaicdd.local_solvers.condensed import CondensedElements
from mosaicdd.parallel.machine import memory_share
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.medium import Conductances, Medium
from mosaicdd.problems.nonlinear import Linearised
from mosaicdd.schwarz.balanced_coarse import BalancedCoarse
from mosaicdd.schwarz.interface_operator import InterfaceOperator, Stars, region_interior
from mosaicdd.schwarz.stopwatch import Stopwatch

_WITH_FACTORS = 500  # bytes per node, where elements keep what is left of their inner nodes
_MOST = 0.5  # of a machine's memory for that; beyond, they do not keep it


class CondensedSystem:
    """The condensed elements of a block's region, and what the Krylov iterations need of them.

    Parameters
    ----------
    block
        With a halo of one lattice cell.

    Attributes
    ----------
    conductances
        Between the nodes of the region.
    inside
        ``(L,)``, 1 at the interface nodes inside the region, 0 on its edge.
    diagonal
        ``(L,)``, of ``S``; zero on the region's edge.
    signs
        ``(L,)``, +1 or -1 as if at random, a node's the same on all ranks.
    elements, operator, stars, coarse
        See their classes.

    Raises
    ------
    ValueError
        On all ranks, if the coefficients are not sound, or not positive to rounding.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        medium: Medium | Linearised,
        clock: Stopwatch,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.inside = torch.from_numpy(region_interior(block)).to(device=device, dtype=dtype)
        self.signs = torch.from_numpy(_signs(block)).to(device=device, dtype=dtype)
        keep = memory_share(ranks, _WITH_FACTORS * math.prod(block.cells)) <= _MOST
        lines = ranks.agree(lambda: self._condense(block, medium, clock, keep=keep))
        with clock.part("coarse"):
            schur = self.elements.schur
            symmetric = self.elements.symmetric
            self.coarse = BalancedCoarse(
                ranks, block, self.operator, schur, *lines, symmetric=symmetric
            )

    def _condense(
        self, block: Block, medium: Medium | Linearised, clock: Stopwatch, *, keep: bool
    ) -> tuple[list, list]:
        """Do what needs no other rank; return conductances and diagonals along the lines."""
        grid, s = block.lattice.grid, block.lattice.spacing
        low = [max(first - 1, 0) for first in block.origin]
        ends = zip(block.origin, block.cells, grid.nodes, strict=True)
        high = [min(first + cells + 2, nodes) for first, cells, nodes in ends]
        part = pair(slice(a, b) for a, b in zip(low, high, strict=True))
        with clock.part("sample"):
            wide = medium.conductances(grid, part)
        own = pair(
            slice(first - a, first - a + cells + 1)
            for first, a, cells in zip(block.origin, low, block.cells, strict=True)
        )
        self.conductances = wide.part(*own)
        lines = _along_lines(self.conductances, wide.diagonal()[own], s)
        try:
            with clock.part("condense"):
                self.elements = CondensedElements(
                    self.conductances,
                    s,
                    keep=keep,
                    device=self.inside.device,
                    dtype=self.inside.dtype,
                )
            self.operator = InterfaceOperator(block, self.elements, self.inside)
            diagonals = self.elements.schur.diagonal(dim1=1, dim2=2)
            self.diagonal = self.operator.scatter(diagonals[:, None])[0]
            with clock.part("stars"):
                self.stars = Stars(block, self.elements)
        except torch.linalg.LinAlgError as error:
            every = wide.up, wide.right
            raise ValueError(
                "the coefficients are not positive definite to rounding; their contrast must stay "
                f"below some 1e12, here conductances are {min(map(np.min, every)):g} to "
                f"{max(map(np.max, every)):g}"
            ) from error
        return pair([torch.from_numpy(one).to(self.inside) for one in part] for part in lines)


def _along_lines(
    conductances: Conductances, diagonal: np.ndarray, s: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return conductances and diagonals per axis, ``(lines, cells, s)`` and ``(.., s - 1)``.

    Where an edge has two conductances, their geometric mean: that is the one-dimensional operator
    between scaled values, which is symmetric.
    """
    along = [conductances.right[::s], conductances.up[:, ::s].T]
    if not conductances.symmetric:
        against = conductances.left[::s], conductances.down[:, ::s].T
        along = [np.sqrt(k * other) for k, other in zip(along, against, strict=True)]
    nodes = diagonal[::s, :-1], diagonal[:-1, ::s].T
    edges, inner = [], []
    for k, d in zip(along, nodes, strict=True):
        shape = len(k), -1, s
        edges.append(np.ascontiguousarray(k).reshape(shape))
        inner.append(np.ascontiguousarray(np.ascontiguousarray(d).reshape(shape)[..., 1:]))
    return edges, inner


def _signs(block: Block) -> np.ndarray:
    """Return a sign for each interface node by its place in the domain, scrambled, ``(L,)``."""
    s, parts = block.lattice.spacing, []
    for axis in (0, 1):
        lines, along = block.line_shape(axis)
        line = s * (block.first[axis] + np.arange(lines, dtype=np.uint64))
        node = block.origin[1 - axis] + np.arange(along, dtype=np.uint64)
        y, x = (line[:, None], node) if axis == 0 else (node, line[:, None])
        mixed = (y * 0x9E3779B1 + x * 0x85EBCA77) & 0xFFFFFFFF
        mixed = ((mixed ^ mixed >> 15) * 0x2C1B3C6D) & 0xFFFFFFFF
        parts.append(np.where(mixed >> 16 & 1, 1.0, -1.0).ravel())
    return np.concatenate(parts)
