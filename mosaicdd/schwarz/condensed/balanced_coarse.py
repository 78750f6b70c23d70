"""The balanced coarse space of a medium: harmonic hats and edge modes on the lattice lines.

Every lattice node inside the domain has a hat; along each of the four lattice edges there it solves the
one-dimensional equation with the conductances of that line. Every lattice edge inside has a mode: the
lowest eigenvector of the one-dimensional stiffness along it, ends fixed, against the diagonal of the
grid operator, zero on all other lines. It has the next two as well where a channel takes them far
(`mode_choice`), and where small eigenvalues are on many edges, all of these (`coarse_basis`). With these as
``P``, the coarse operator is ``A_c = P^T S P``, put together from small products per element, factorised and
solved by one rank of every machine.

Coarse values ``c`` have three parts: at lattice nodes ``(K_y + 1, K_x + 1)``, on lattice edges of the
lines constant in y ``(K_y + 1, K_x, M)``, and of those constant in x ``(K_x + 1, K_y, M)``, ``M`` the most
modes of an edge. Those on the edge of the domain and those of no mode are zero, the others the
unknowns.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import element_shape
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.kinds import Kinds, combined
from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.parallel.node_gather import NodeGather, OncePerMachine, gather_of_parts
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.condensed.coarse_basis import CoarseBasis, on_all_edges
from mosaicdd.schwarz.condensed.coarse_elements import CoarseElements, rows_with_modes, with_modes
from mosaicdd.schwarz.condensed.coarse_factors import CoarseFactors
from mosaicdd.schwarz.condensed.coarse_matrix import assembled
from mosaicdd.schwarz.condensed.coarse_numbering import (
    Numbering,
    of_elements,
    owned_parts,
    placed_parts,
)
from mosaicdd.schwarz.condensed.coarse_transfer import CoarseTransfer
from mosaicdd.schwarz.condensed.edge_modes import CutLines
from mosaicdd.schwarz.condensed.interface_operator import InterfaceOperator
from mosaicdd.schwarz.condensed.mode_choice import far_modes
from mosaicdd.schwarz.condensed.parts import Parts, taken
from mosaicdd.schwarz.condensed.swept_basis import SweptBasis
from mosaicdd.schwarz.layouts import block_of

_COMMON = 0.125  # operators per element, at most, for all rows of these to take little memory


class BalancedCoarse:
    """``Q = P A_c^-1 P^T`` on a block.

    Parameters
    ----------
    schur
        Of the condensed elements of the region.
    conductances
        Along the region's lines, per axis ``(lines, cells, s)``.
    diagonals
        Of the grid operator at the nodes between lattice nodes, per axis ``(lines, cells, s - 1)``.
    cut
        What an outline makes of the lines, per axis; None where it is the edge of the lattice.
    nodes
        Which of the region's lattice nodes are active, ``(rows, columns)``; None for all.
    keep
        ``P^T S``, which takes a tenth of the memory and spares a product with ``S`` in each iteration. Not in
        float32 as the rest of the preconditioner: what a channel adds to its hats cancels.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        operator: InterfaceOperator,
        schur: Complements,
        conductances: Sequence[torch.Tensor],
        diagonals: Sequence[torch.Tensor],
        *,
        cut: Sequence[CutLines | None] = (None, None),
        nodes: torch.Tensor | None = None,
        keep: bool = True,
    ):
        self._block, self._operator, self._ranks = block, operator, ranks
        blocks = [block_of(ranks, block.lattice, rank) for rank in range(ranks.size)]
        lines, symmetric = (conductances, diagonals, cut), schur.symmetric
        basis = CoarseBasis.of(ranks, blocks, *lines, flow=not symmetric)
        del conductances, diagonals, lines  # for memory, as below
        hats = None if nodes is None else _on_all_nodes(ranks, blocks, nodes)
        numbering, elements = self._numbered(blocks, basis, schur, hats, keep=keep)
        del basis
        self._solve, self._once = None, OncePerMachine(ranks)
        leads = self._once.leads
        matrix = assembled(ranks, blocks, *elements, numbering, here=leads, symmetric=symmetric)
        del elements
        give_back_memory()
        if matrix is not None:
            fronts = numbering.fronts, numbering.levels
            self._solve = CoarseFactors(matrix, *fronts, symmetric=symmetric, device=schur.device)
            del matrix
            give_back_memory()
        self._unknowns = torch.from_numpy(numbering.unknowns).to(schur.device)
        self._size = numbering.size
        self._gather: tuple[int, NodeGather] | None = None  # for so many problems

    def _numbered(
        self,
        blocks: Sequence[Block],
        basis: CoarseBasis,
        schur: Complements,
        hats: np.ndarray | None,
        *,
        keep: bool,
    ) -> tuple[Numbering, tuple[torch.Tensor, np.ndarray]]:
        """Give the unknowns numbers; plan ``P``, and ``P^T S`` where it is kept.

        Returns
        -------
        Numbering, tuple
            What elements that differ make of the basis, ``(K, 4 + 4 M, 4 + 4 M)``, and which of them each element
            has, ``(rows, columns)``.
        """
        ranks, block, operator = self._ranks, self._block, self._operator
        # Elements are alike if they are to the equation, and their edges are to the basis.
        beside, most = basis.of_elements(), basis.most
        kinds = Kinds(combined(schur.kinds.keys, *beside))
        kinds.leave_out(lambda element: int(schur.kinds.operator[element]) in schur.kinds.idle)
        # Where modes are chosen, more than one are unknowns on so few edges that these rows are kept sparse,
        # unless elements have them in common.
        sparse = basis.few and kinds.operators > _COMMON * len(kinds)
        first = (1 if sparse else most) if keep else None
        elements = CoarseElements(schur, kinds, basis.bases, beside)
        products, swept = elements.matrices(first)
        operators = kinds.operator.reshape(element_shape(block))
        modes = [count[..., None] > np.arange(most) for count in basis.counts]
        if basis.few:
            bits = 1 << np.arange(most)
            far = on_all_edges(
                ranks, blocks, [modes @ bits for modes in far_modes(products, operators)]
            )
            most = max(1, *(int(codes.max()).bit_length() for codes in far))
            modes = [codes[..., None] & bits[:most] > 0 for codes in far]
            products = with_modes(products, most)
            swept = None if swept is None else rows_with_modes(swept, most)
        numbering = Numbering(block.lattice, modes[0], modes[1], hats)
        self._places = [numbering.owned(region) for region in blocks]
        own = numbering.placed(block, self._places[ranks.rank])
        self._own = torch.from_numpy(own).to(schur.device)
        parts = numbering.between(block.first, block.last)
        known = [numbering.order[part] >= 0 for part in parts]
        self._swept: SweptBasis | None = None
        if swept is not None:
            lines = [block.line_shape(axis) for axis in (0, 1)]
            self._swept = SweptBasis(
                elements,
                swept,
                Parts(kinds, operator.places, lines, element_shape(block)),
                operator.places,
                of_elements(placed_parts(parts)),
                of_elements(known),
                sum(part.size for part in parts),
            )
        bases, keys = basis.with_modes(known[1:])
        self._transfer = CoarseTransfer(bases, parts, own, numbering.size, keys)
        return numbering, (products, operators)

    def solve(self, residual: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``c = A_c^-1 P^T (r - S z)`` of the whole lattice, ``(n, parts)``; one collective.

        Parameters
        ----------
        residual
            ``(n, L)``, right at the nodes of the owned subdomains' stars.
        z
            Complete in the region; by default zero.
        """
        n = len(residual)
        if self._gather is None or self._gather[0] != n:
            size, device = len(self._unknowns), residual.device
            gather = NodeGather(self._ranks, self._places, size, problems=n, device=device)
            self._gather = n, gather
        own = self._transfer.restrict(residual)
        if z is not None:
            own -= self._swept_sums(z)
        everywhere, _ = self._gather[1](own, np.empty(0))
        solved = self._once(self._solve, everywhere)
        c = residual.new_zeros(self._size, n)
        return c.index_copy_(0, self._unknowns, solved.T.to(c)).T

    def prolong(self, c: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Add ``P c`` in the region to ``(n, L)``, by default zeros, and return it."""
        return self._transfer.prolong(c, self._zeros(c) if out is None else out)

    def _swept_sums(self, z: torch.Tensor) -> torch.Tensor:
        """Return what the block owns of ``P^T S z``, ``(n, own)``."""
        if self._swept is None:
            return self._transfer.restrict(self._operator(z))
        return taken(self._swept(z), self._own)

    def _zeros(self, c: torch.Tensor) -> torch.Tensor:
        nodes = sum(math.prod(self._block.line_shape(axis)) for axis in (0, 1))
        return c.new_zeros(len(c), nodes)


def _on_all_nodes(ranks: Ranks, blocks: Sequence[Block], active: torch.Tensor) -> np.ndarray:
    """Return which lattice nodes inside the domain are active, from those of all regions."""
    own, parts = blocks[ranks.rank], []
    for block in blocks:
        ends = zip(owned_parts(block)[0], own.lattice.first_centre, strict=True)
        parts.append(tuple(slice(p.start - a, p.stop - a) for p, a in ends))
    ends = zip(owned_parts(own)[0], own.first, strict=True)
    mine = active[tuple(slice(p.start - a, p.stop - a) for p, a in ends)]
    shape = own.lattice.subdomains
    gather = gather_of_parts(ranks, shape, parts)
    values, _ = gather(mine.reshape(1, -1).double().cpu(), np.empty(0))
    return values.numpy().reshape(shape) > 0
