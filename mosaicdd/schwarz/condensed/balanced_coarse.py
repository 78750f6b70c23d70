"""The balanced coarse space of a medium: harmonic hats and edge modes on the lattice lines.

Every lattice node inside the domain has a hat; along each of the four lattice edges there it solves the
one-dimensional equation with the conductances of that line. Every lattice edge inside has a mode: the
lowest eigenvector of the one-dimensional stiffness along it, ends fixed, against the diagonal of the
grid operator, zero on all other lines; and another where two eigenvalues are small, as on an edge that
several channels cross. As many as are small, where they are on many edges: along the weak direction of a
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
from mosaicdd.local_solvers.elements.products import rows_times
from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.once_per_machine import OncePerMachine
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.condensed.coarse_matrix import assembled, factorised
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
)
from mosaicdd.schwarz.condensed.interface_operator import InterfaceOperator
from mosaicdd.schwarz.condensed.parts import Parts, add_at, taken, values_at
from mosaicdd.schwarz.layouts import block_of

_MODES = 2  # of an edge, at most, as they all take the memory of that one which has most
_OFTEN = 0.1  # share of the edges that must have more of them for others to have more, too
# With a velocity: at 256, 512, 1024 cells a side and a cell Peclet number of 20, 4 modes below 0.02 take 15,
# 17, 20 iterations, 6 below 0.1 take 12, 12, 14; more help little.
_IN_FLOW = 6
_ELEMENTS = {"cpu": 128, "cuda": 8192}  # whose coarse matrices are made at once, or one row


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
        self._block, self._operator = block, operator
        new, device = conductances[0].new_empty, conductances[0].device
        blocks = [block_of(ranks, block.lattice, rank) for rank in range(ranks.size)]
        edges, indices = zip(
            *(distinct_edges(*one) for one in zip(conductances, diagonals, cut, strict=True)),
            strict=True,
        )
        counts = [small_eigenvalues(*edge, flow=not schur.symmetric) for edge in edges]
        everywhere = _everywhere(
            ranks, blocks, [count[0, at] for count, at in zip(counts, indices, strict=True)]
        )
        limit = _most(everywhere)
        if not schur.symmetric:
            limit = min(limit, _IN_FLOW)
        hats = None if nodes is None else _nodes_everywhere(ranks, blocks, nodes)
        chosen = [count.clip(max=limit) for count in everywhere]
        numbering = Numbering(block.lattice, chosen[0], chosen[1], hats)
        most = numbering.modes
        bases, keys = zip(  # per axis (edges that differ, s - 1, 2 + M), and which an edge's is
            *(
                _alike(
                    edge_basis(k, edge_modes(k, d, one, count.clamp(max=most), most), count, one),
                    at,
                )
                for (k, d, one), count, at in zip(edges, counts, indices, strict=True)
            ),
            strict=True,
        )
        self._places = [numbering.owned(one) for one in blocks]
        own = numbering.placed(block, self._places[ranks.rank])
        parts = numbering.between(block.first, block.last)
        along, across = keys
        # Elements are alike if they are to the equation, and their edges are to the basis.
        y, x = np.divmod(np.arange(len(schur)), element_shape(block)[1])
        beside = along[y, x], across[x + 1, y], along[y + 1, x], across[x, y]
        kinds = Kinds(combined(schur.kinds.keys, *beside))
        kinds.leave_out(lambda element: int(schur.kinds.operator[element]) in schur.kinds.idle)
        self._parts = Parts(kinds, operator.places, operator.size, element_shape(block))
        # P^T S and P^T S P of each operator, (.., 4 + 4 M, P) and (.., 4 + 4 M, 4 + 4 M)
        values = 4 + 4 * most
        products = new(kinds.operators, values, values)
        self._swept = new(kinds.operators if keep else 0, values, 4 * block.lattice.spacing)
        for members, numbers in kinds.made(_ELEMENTS[device.type]):
            some = torch.from_numpy(members).to(device)
            prolongation = _on_elements(bases, [one[members] for one in beside])
            swept = torch.bmm(prolongation.mT, schur.of(some))
            products[numbers] = torch.bmm(swept, prolongation)
            if keep:
                self._swept[numbers] = swept
        self._transfer = CoarseTransfer(bases, parts, own, numbering.size, keys)
        del (
            bases,
            edges,
            counts,
            conductances,
            diagonals,
            new,
        )  # for the memory of the factorisation
        self._once = OncePerMachine(ranks)
        operators = kinds.operator.reshape(element_shape(block))
        matrix = assembled(ranks, blocks, products, operators, numbering, here=self._once.leads)
        del products
        self._solve = factorised(matrix)
        self._unknowns = torch.from_numpy(numbering.unknowns).to(device)
        self._size = numbering.size
        # Where each element has its coarse values among those of the region, part after part.
        columns = of_elements(placed_parts(parts))[kinds.order]
        self._columns, self._own = (torch.from_numpy(one).to(device) for one in (columns, own))
        self._values = sum(part.size for part in parts)
        self._ranks = ranks
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
        given = everywhere.cpu().numpy()
        solved = self._once(self._solve, given)
        c = residual.new_zeros(self._size, n).T
        c[:, self._unknowns] = torch.from_numpy(solved).to(c)
        return c

    def prolong(self, c: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Add ``P c`` in the region to ``(n, L)``, by default zeros, and return it."""
        return self._transfer.prolong(c, self._zeros(c) if out is None else out)

    def _swept_sums(self, z: torch.Tensor) -> torch.Tensor:
        """Return what the block owns of ``P^T S z``, ``(n, own)``."""
        if not len(self._swept):
            return self._transfer.restrict(self._operator(z))
        total = z.new_zeros(self._values, len(z)).T
        alone = len(z) == 1
        for common in self._parts.common if alone else ():
            for members, sums in common.products(z[0], self._swept[common.operator]):
                add_at(total, self._columns[members], sums)
        for piece, at in self._parts.others() if alone else self._parts(len(z)):
            sums = rows_times(values_at(z, at), self._swept[piece.operators].mT)
            add_at(total, self._columns[piece.members].view(*at.shape[:2], -1), sums)
        return taken(total, self._own)

    def _zeros(self, c: torch.Tensor) -> torch.Tensor:
        nodes = sum(math.prod(self._block.line_shape(axis)) for axis in (0, 1))
        return c.new_zeros(len(c), nodes)


def _most(counts: Sequence[np.ndarray]) -> int:
    """Return how many modes an edge may have, by the counts on all edges of the domain."""
    every = np.concatenate([count.ravel() for count in counts])
    return max(_MODES, int(np.quantile(every, 1 - _OFTEN, method="lower")))


def _everywhere(
    ranks: Ranks, blocks: Sequence[Block], counts: Sequence[torch.Tensor]
) -> list[np.ndarray]:
    """Return the numbers of modes on the inner lines of the domain from those of all regions."""
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
        values, _ = gather(mine.double().cpu(), np.empty(0))
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


def _on_elements(bases: Sequence[torch.Tensor], edges: Sequence[np.ndarray]) -> torch.Tensor:
    """Return the basis on the perimeters of elements, columns as `Numbering.of_elements`.

    Parameters
    ----------
    edges
        Which bases, per axis, those on the four sides are, counter-clockwise from the bottom.
    """
    bottom, right, top, left = (
        basis[torch.from_numpy(edge).to(basis.device)]
        for basis, edge in zip((*bases, *bases), edges, strict=True)
    )
    s, modes = bottom.shape[1] + 1, bottom.shape[2] - 2
    total = bottom.new_zeros(len(bottom), 4, s, 4 + 4 * modes)
    sides = (bottom, 0, 1), (right, 1, 2), (top.flip(1), 3, 2), (left.flip(1), 0, 3)
    for side, (basis, low, high) in enumerate(sides):
        total[:, side, 0, side] = 1.0
        total[:, side, 1:, low] = basis[..., 0]
        total[:, side, 1:, high] = basis[..., 1]
        first = 4 + side * modes
        total[:, side, 1:, first : first + modes] = basis[..., 2:]
    return total.flatten(1, 2)
