"""The balanced coarse space of a medium: harmonic hats and edge modes on the lattice lines.

Every lattice node inside the domain has a hat; along each of the four lattice edges there it solves the
one-dimensional equation with the conductances of that line. Every lattice edge inside has a mode: the
lowest eigenvector of the one-dimensional stiffness along it, ends fixed, against the diagonal of the
grid operator, zero on all other lines; and the next two where a channel takes them far (`mode_choice`).
As many as have small eigenvalues, where these are on many edges: along the weak direction of a
tensor, or in a fast flow. With these as ``P``, the coarse operator is ``A_c = P^T S P``, put together
from small products per element, factorised and solved by one rank of every machine.

Coarse values ``c`` have three parts: at lattice nodes ``(K_y + 1, K_x + 1)``, on lattice edges of the
lines constant in y ``(K_y + 1, K_x, M)``, and of those constant in x ``(K_x + 1, K_y, M)``, ``M`` the most
modes of an edge. Those on the edge of the domain and those of no mode are zero, the others the
unknowns.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import pair
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import element_shape
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.kinds import Kinds, alike, combined
from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.once_per_machine import OncePerMachine
from mosaicdd.parallel.ranks import Ranks
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
from mosaicdd.schwarz.condensed.edge_modes import (
    CutLines,
    distinct_edges,
    edge_basis,
    edge_modes,
    small_eigenvalues,
    tried_modes,
)
from mosaicdd.schwarz.condensed.interface_operator import InterfaceOperator
from mosaicdd.schwarz.condensed.mode_choice import far_modes
from mosaicdd.schwarz.condensed.parts import Parts, taken
from mosaicdd.schwarz.condensed.swept_basis import SweptBasis
from mosaicdd.schwarz.layouts import block_of

_MODES = 3  # of an edge, at most, as all are tried
_OFTEN = 0.1  # share of the edges that must have more of them for others to have more, too
# With a velocity: at 256, 512, 1024 cells a side and a cell Peclet number of 20, 4 modes below 0.02 take 15,
# 17, 20 iterations, 6 below 0.1 take 12, 12, 14; more help little.
_IN_FLOW = 6
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
        device, s = conductances[0].device, block.lattice.spacing
        blocks = [block_of(ranks, block.lattice, rank) for rank in range(ranks.size)]
        edges, indices = zip(
            *(distinct_edges(*one) for one in zip(conductances, diagonals, cut, strict=True)),
            strict=True,
        )
        counts = [small_eigenvalues(*edge, flow=not schur.symmetric) for edge in edges]
        here = [count[0, at].cpu().numpy() for count, at in zip(counts, indices, strict=True)]
        everywhere = _everywhere(ranks, blocks, here)
        few, most = _most(everywhere, s, symmetric=schur.symmetric)
        if few:
            cuts = (edge[2] for edge in edges)
            counts = [tried_modes(*one, most) for one in zip(counts, cuts, strict=True)]
        bases, keys = zip(  # per axis (edges that differ, s - 1, 2 + M), and which an edge's is
            *(
                _alike(edge_basis(k, edge_modes(k, d, one, count, most), one), at)
                for (k, d, one), count, at in zip(edges, counts, indices, strict=True)
            ),
            strict=True,
        )
        along, across = keys
        # Elements are alike if they are to the equation, and their edges are to the basis.
        y, x = np.divmod(np.arange(len(schur)), element_shape(block)[1])
        beside = along[y, x], across[x + 1, y], along[y + 1, x], across[x, y]
        kinds = Kinds(combined(schur.kinds.keys, *beside))
        kinds.leave_out(lambda element: int(schur.kinds.operator[element]) in schur.kinds.idle)
        # Where modes are chosen, more than one are unknowns on so few edges that these rows are kept sparse,
        # unless elements have them in common.
        sparse = few and kinds.operators > _COMMON * len(kinds)
        first = (1 if sparse else most) if keep else None
        elements = CoarseElements(schur, kinds, bases, beside)
        coarse, swept = elements.matrices(first)
        operators = kinds.operator.reshape(element_shape(block))
        modes = [count[..., None] > np.arange(most) for count in everywhere]
        if few:
            bits = 1 << np.arange(most)
            far = _everywhere(ranks, blocks, [one @ bits for one in far_modes(coarse, operators)])
            most = max(1, *(int(one.max()).bit_length() for one in far))
            modes = [one[..., None] & bits[:most] > 0 for one in far]
            coarse = with_modes(coarse, most)
            swept = None if swept is None else rows_with_modes(swept, most)
        hats = None if nodes is None else _nodes_everywhere(ranks, blocks, nodes)
        numbering = Numbering(block.lattice, modes[0], modes[1], hats)
        self._places = [numbering.owned(one) for one in blocks]
        own = numbering.placed(block, self._places[ranks.rank])
        parts = numbering.between(block.first, block.last)
        self._swept: SweptBasis | None = None
        if swept is not None:
            self._swept = SweptBasis(
                elements,
                swept,
                Parts(kinds, operator.places, operator.size, element_shape(block)),
                operator.places,
                of_elements(placed_parts(parts)),
                numbering.order[of_elements(parts)] >= 0,
                sum(part.size for part in parts),
            )
        bases, keys = zip(
            *(
                _chosen(basis, key, numbering.order[part] >= 0)
                for basis, key, part in zip(bases, keys, parts[1:], strict=True)
            ),
            strict=True,
        )
        self._transfer = CoarseTransfer(bases, parts, own, numbering.size, keys)
        # For the memory of the factorisation.
        del bases, elements, edges, counts, conductances, diagonals
        self._once = OncePerMachine(ranks)
        symmetric, leads = schur.symmetric, self._once.leads
        matrix = assembled(
            ranks, blocks, coarse, operators, numbering, here=leads, symmetric=symmetric
        )
        del coarse
        give_back_memory()
        self._solve: CoarseFactors | None = None
        if matrix is not None:
            self._solve = CoarseFactors(
                matrix, numbering.fronts, numbering.levels, symmetric=symmetric, device=device
            )
            del matrix
            give_back_memory()
        self._unknowns = torch.from_numpy(numbering.unknowns).to(device)
        self._size = numbering.size
        self._own = torch.from_numpy(own).to(device)
        self._gathers: dict[int, NodeGather] = {}

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
        if n not in self._gathers:
            self._gathers[n] = NodeGather(
                self._ranks, self._places, len(self._unknowns), problems=n, device=residual.device
            )
        own = self._transfer.restrict(residual)
        if z is not None:
            own -= self._swept_sums(z)
        everywhere, _ = self._gathers[n](own, np.empty(0))
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


def _most(counts: Sequence[np.ndarray], spacing: int, *, symmetric: bool) -> tuple[bool, int]:
    """Return whether modes are chosen, and how many an edge may have, by the counts on all edges of the domain."""
    every = np.concatenate([count.ravel() for count in counts])
    highest, often = int(every.max()), int(np.quantile(every, 1 - _OFTEN, method="lower"))
    if symmetric and often <= _MODES:
        return highest > 0, min(_MODES, spacing - 1) if highest else 0
    most = min(highest, max(_MODES, often))
    return False, most if symmetric else min(most, _IN_FLOW)


def _everywhere(
    ranks: Ranks, blocks: Sequence[Block], counts: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return numbers of the edges on the inner lines of the domain from those of all regions."""
    own, everywhere = blocks[ranks.rank], []
    lattice = own.lattice
    for axis, count in enumerate(counts):
        shape = lattice.subdomains[axis], lattice.cells[1 - axis]
        numbers = np.arange(math.prod(shape)).reshape(shape)
        owned = [owned_parts(block)[1 + axis] for block in blocks]
        one = lattice.first_centre[axis]
        places = [numbers[lines.start - one : lines.stop - one, c].ravel() for lines, c in owned]
        lines = slice(*(end[axis] - own.first[axis] for end in (own.start, own.stop)))
        mine = count[lines, own.owned_cells(1 - axis)].reshape(1, -1)
        gather = NodeGather(ranks, places, numbers.size)
        values, _ = gather(torch.from_numpy(mine.astype(float)), np.empty(0))
        everywhere.append(values.long().numpy().reshape(numbers.shape))
    return everywhere


def _nodes_everywhere(ranks: Ranks, blocks: Sequence[Block], active: torch.Tensor) -> np.ndarray:
    """Return which lattice nodes inside the domain are active, from those of all regions."""
    own = blocks[ranks.rank]
    numbers = np.arange(math.prod(own.lattice.subdomains)).reshape(own.lattice.subdomains)
    lines = [owned_parts(block)[0] for block in blocks]
    inside = [
        pair(
            slice(p.start - a, p.stop - a)
            for p, a in zip(one, own.lattice.first_centre, strict=True)
        )
        for one in lines
    ]
    places = [numbers[place].ravel() for place in inside]
    ends = zip(lines[ranks.rank], own.first, strict=True)
    mine = active[pair(slice(p.start - first, p.stop - first) for p, first in ends)]
    gather = NodeGather(ranks, places, numbers.size)
    values, _ = gather(mine.reshape(1, -1).double().cpu(), np.empty(0))
    return values.numpy().reshape(numbers.shape) > 0


def _alike(basis: torch.Tensor, index: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Return bases ``(1, .., s - 1, 2 + M)`` without repetitions, and which of them an edge's is."""
    keys = alike([basis[0].cpu().numpy()])
    _, first = np.unique(keys, return_index=True)
    return basis[0, torch.from_numpy(first).to(basis.device)], keys[index]


def _chosen(
    basis: torch.Tensor, keys: np.ndarray, modes: np.ndarray
) -> tuple[torch.Tensor, np.ndarray]:
    """Return bases with those modes alone that edges ``(lines, cells, M)`` have, and which an edge's is."""
    count = modes.shape[2]
    codes = modes @ (1 << np.arange(count))
    _, first, index = np.unique(combined(keys, codes), return_index=True, return_inverse=True)
    some = basis[torch.from_numpy(keys.ravel()[first]).to(basis.device), :, : 2 + count]
    some[..., 2:] *= torch.from_numpy(modes.reshape(keys.size, 1, count)[first]).to(some)
    return some, index.reshape(keys.shape)
