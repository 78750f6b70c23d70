"""The balanced coarse space of a medium: harmonic hats and edge modes on the lattice lines.

Every lattice node inside the domain has a hat; along each of the four lattice edges there it solves the
one-dimensional equation with the conductances of that line. Every lattice edge inside has a mode: the
lowest eigenvector of the one-dimensional stiffness along it, ends fixed, against the diagonal of the
grid operator, zero on all other lines; and another where two eigenvalues are small, as on an edge that
several channels cross. As many as are small, where they are on many edges: along the weak direction of a
tensor, or in a fast flow. With these as ``P``, the coarse operator is ``A_c = P^T S P``, put together
from small products per element, factorised and solved by every rank.

Coarse values ``c`` have three parts: at lattice nodes ``(K_y + 1, K_x + 1)``, on lattice edges of the
lines constant in y ``(K_y + 1, K_x, M)``, and of those constant in x ``(K_x + 1, K_y, M)``, ``M`` the most
modes of an edge. Those on the edge of the domain and those of no mode are zero, the others the
unknowns.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch

from mosaicdd.lattice.axes import pair, strips
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import element_shape
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.interface_operator import InterfaceOperator, rows_times
from mosaicdd.schwarz.layouts import block_of

_SMALL = (
    0.02  # eigenvalue below which a mode is worth an unknown (uniform media: 0.0096, 0.038, ..)
)
_MODES = 2  # of an edge, at most, as they all take the memory of that one which has most
_OFTEN = 0.1  # share of the edges that must have more of them for others to have more, too
_IN_FLOW = 4  # of an edge, at most, with a velocity: then others help little
_INVERSE_ITERATIONS = 3
_ELEMENTS = {"cpu": 128, "cuda": 8192}  # whose coarse matrices are made at once, or one row
_ISOLATED = 1e3  # eigenvalue, at least, of nodes without an unknown: no mode


@dataclass(frozen=True)
class CutLines:
    """What an outline makes of the lattice edges on the lines of one axis.

    Parameters
    ----------
    active
        Whether there is an unknown at the nodes between lattice nodes, ``(lines, cells, s - 1)``.
    edges
        Whether the outline cuts an edge, ``(lines, cells)``.
    more
        ``(lines, cells, s - 1)``: what stands on the diagonal of the one-dimensional equation besides
        the conductances along the line, on edges that are cut: ties to given values; where there is
        no unknown, a large number.
    """

    active: torch.Tensor
    edges: torch.Tensor
    more: torch.Tensor


def cut_lines(conductances: torch.Tensor, reaction: torch.Tensor, active: torch.Tensor) -> CutLines:
    """Return what the outline makes of lines by the reaction and the activity of their nodes."""
    edges = ~(active.all(-1) & (conductances > 0).all(-1))
    more = torch.where(active, reaction, _ISOLATED) * edges[..., None]
    return CutLines(active, edges, more)


class BalancedCoarse:
    """``Q = P A_c^-1 P^T`` on a block.

    Parameters
    ----------
    schur
        The condensed elements of the region, ``(E, P, P)``.
    conductances
        Along the region's lines, per axis ``(lines, cells, s)``.
    diagonals
        Of the grid operator at the nodes between lattice nodes, per axis ``(lines, cells, s - 1)``.
    symmetric
        Whether ``S`` is: no velocity.
    cut
        What an outline makes of the lines, per axis; None where it is the edge of the lattice.
    nodes
        Which of the region's lattice nodes are active, ``(rows, columns)``; None for all.
    keep
        ``S P``, which takes a tenth of the memory and spares a product with ``S`` in each iteration.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        operator: InterfaceOperator,
        schur: torch.Tensor,
        conductances: Sequence[torch.Tensor],
        diagonals: Sequence[torch.Tensor],
        *,
        symmetric: bool,
        cut: Sequence[CutLines | None] = (None, None),
        nodes: torch.Tensor | None = None,
        keep: bool = True,
    ):
        device = schur.device
        self._block, self._operator = block, operator
        blocks = [block_of(ranks, block.lattice, rank) for rank in range(ranks.size)]
        edges = list(zip(conductances, diagonals, cut, strict=True))
        counts = [_small_eigenvalues(*edge) for edge in edges]
        everywhere = _everywhere(ranks, blocks, counts)
        limit = _most(everywhere)
        if not symmetric:
            limit = min(limit, _IN_FLOW)
        hats = None if nodes is None else _nodes_everywhere(ranks, blocks, nodes)
        chosen = [count.clip(max=limit) for count in everywhere]
        numbering = _Numbering(block.lattice, chosen[0], chosen[1], hats)
        most = numbering.modes
        self._bases = [  # per axis (lines, cells, s - 1, 2 + M)
            _edge_basis(k, _modes(k, d, one, count.clamp(max=most), most), count, one)
            for (k, d, one), count in zip(edges, counts, strict=True)
        ]
        # (S P)^T and P^T S P of each element, (E, 4 + 4 M, P) and (E, 4 + 4 M, 4 + 4 M)
        rows, columns = element_shape(block)
        values = 4 + 4 * most
        products = schur.new_empty(len(schur), values, values)
        self._swept = schur.new_empty(len(schur) if keep else 0, values, schur.shape[2])
        for strip, _ in strips((rows, columns), _ELEMENTS[device.type]):
            along, across = self._bases
            prolongation = _on_elements(along[strip.start : strip.stop + 1], across[:, strip])
            part = slice(strip.start * columns, strip.stop * columns)
            swept = torch.bmm(prolongation.mT, schur[part].mT)
            torch.bmm(prolongation.mT, swept.mT, out=products[part])
            if keep:
                self._swept[part] = swept
        self._solve = _factorised(_assembled(ranks, blocks, products, numbering))
        self._region = [
            torch.from_numpy(part[place].copy()).to(device)
            for part, place in zip(numbering.parts, _region(block), strict=True)
        ]
        self._columns = torch.from_numpy(numbering.of_elements(block)).to(device)
        self._unknowns = torch.from_numpy(numbering.unknowns).to(device)
        self._size = numbering.size
        self._places = [numbering.owned(one) for one in blocks]
        self._own = torch.from_numpy(numbering.unknowns[self._places[ranks.rank]]).to(device)
        self._ranks = ranks
        self._gathers: dict[int, NodeGather] = {}

    def solve(self, residual: torch.Tensor) -> torch.Tensor:
        """Return ``c = A_c^-1 P^T r`` of the whole lattice, ``(n, parts)``; one collective.

        Parameters
        ----------
        residual
            ``(n, L)``, right at the nodes of the owned subdomains' stars.
        """
        n = len(residual)
        if n not in self._gathers:
            self._gathers[n] = NodeGather(
                self._ranks, self._places, len(self._unknowns), problems=n, device=residual.device
            )
        mine = self._restrict(residual)[:, self._own]
        everywhere, _ = self._gathers[n](mine, np.empty(0))
        c = residual.new_zeros(n, self._size)
        c[:, self._unknowns] = self._solve(everywhere).to(c)
        return c

    def _restrict(self, residual: torch.Tensor) -> torch.Tensor:
        """Return ``P^T r``, ``(n, parts)``, right for what the block owns."""
        s, lines = self._block.lattice.spacing, self._lines(residual)
        c = residual.new_zeros(len(residual), self._size)
        nodes = lines[0][:, :, ::s].clone()
        for axis in (0, 1):
            inner = lines[axis][:, :, :-1].unflatten(2, (-1, s))[..., 1:]
            sums = torch.einsum("nlct,lctk->nlck", inner, self._bases[axis])
            along = nodes if axis == 0 else nodes.mT
            along[:, :, :-1] += sums[..., 0]
            along[:, :, 1:] += sums[..., 1]
            c[:, self._region[1 + axis]] = sums[..., 2:]
        c[:, self._region[0]] = nodes
        return c

    def prolong(self, c: torch.Tensor) -> torch.Tensor:
        """Return ``P c`` in the region, ``(n, L)``."""
        s, block = self._block.lattice.spacing, self._block
        nodes, *modes = (c[:, part] for part in self._region)
        total = c.new_zeros(len(c), sum(math.prod(block.line_shape(axis)) for axis in (0, 1)))
        lines = self._lines(total)
        lines[0][:, :, ::s] = nodes
        for axis in (0, 1):
            along = nodes if axis == 0 else nodes.mT
            ends = torch.stack([along[:, :, :-1], along[:, :, 1:]], dim=-1)
            heights = torch.cat([ends, modes[axis]], dim=-1)
            values = torch.einsum("nlck,lctk->nlct", heights, self._bases[axis])
            lines[axis][:, :, :-1].unflatten(2, (-1, s))[..., 1:] = values
        return total

    def sweep(self, c: torch.Tensor) -> torch.Tensor:
        """Return ``S P c`` inside the region, ``(n, L)``."""
        if not len(self._swept):
            return self._operator(self.prolong(c))
        return self._operator.scatter(rows_times(c[:, self._columns].transpose(0, 1), self._swept))

    def _lines(self, flat: torch.Tensor) -> list[torch.Tensor]:
        shapes = [self._block.line_shape(axis) for axis in (0, 1)]
        parts = flat.split([math.prod(shape) for shape in shapes], dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]


class _Numbering:
    """Numbers of coarse values over the whole lattice.

    Parameters
    ----------
    rows, columns
        Modes of the lattice edges inside, on lines constant in y ``(K_y - 1, K_x)``, and in x.
    nodes
        Which lattice nodes inside have a hat, ``(K_y - 1, K_x - 1)``; None for all.

    Attributes
    ----------
    modes
        ``M``.
    parts
        The numbers of the values, as the parts are.
    unknowns
        The numbers of the unknowns.
    """

    def __init__(
        self, lattice: Lattice, rows: np.ndarray, columns: np.ndarray, nodes: np.ndarray | None
    ):
        counts = (rows, columns)
        self.modes = int(max(count.max() for count in counts))
        corners = tuple(cells + 1 for cells in lattice.cells)
        edges = ((lines + 2, cells, self.modes) for lines, cells in (rows.shape, columns.shape))
        shapes = (corners, *edges)
        sizes = [math.prod(shape) for shape in shapes]
        self.size = sum(sizes)
        parts = np.split(np.arange(self.size), np.cumsum(sizes)[:-1])
        self.parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        hats = self.parts[0][1:-1, 1:-1]
        inner = [hats.ravel() if nodes is None else hats[nodes]]
        for part, count in zip(self.parts[1:], counts, strict=True):
            inner.append(part[1:-1][np.arange(self.modes) < count[..., None]])
        self.unknowns = np.concatenate(inner)
        self.order = np.full(self.size, -1)  # which unknown a value is
        self.order[self.unknowns] = np.arange(len(self.unknowns))

    def owned(self, block: Block) -> np.ndarray:
        """Return which unknowns a block owns."""
        parts = zip(self.parts, _owned(block), strict=True)
        order = self.order[np.concatenate([part[place].ravel() for part, place in parts])]
        return order[order >= 0]

    def of_elements(self, block: Block) -> np.ndarray:
        """Return the values at the corners and on the edges of a region's elements.

        ``(E, 4 + 4 M)``, both counter-clockwise, from the lower-left corner and the lower edge.
        """
        nodes, rows, columns = (
            part[place] for part, place in zip(self.parts, _region(block), strict=True)
        )
        corners = (nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, 1:], nodes[1:, :-1])
        columns = columns.swapaxes(0, 1)
        edges = (rows[:-1], columns[:, 1:], rows[1:], columns[:, :-1])
        values = np.concatenate([*(one[..., None] for one in corners), *edges], axis=-1)
        return values.reshape(-1, values.shape[-1])


def _region(block: Block) -> list[tuple[slice, slice]]:
    """Return the part of each kind of coarse values that lies in a block's region."""
    lines = pair(slice(a, b + 1) for a, b in zip(block.first, block.last, strict=True))
    cells = [slice(a, b) for a, b in zip(block.first, block.last, strict=True)]
    return [lines, (lines[0], cells[1]), (lines[1], cells[0])]


def _owned(block: Block) -> list[tuple[slice, slice]]:
    """Return the part of each kind that a block owns."""
    lines, cells = [], []
    for axis in (0, 1):
        part, first = block.owned_cells(axis), block.first[axis]
        lines.append(slice(block.start[axis], block.stop[axis]))
        cells.append(slice(part.start + first, part.stop + first))
    return [pair(lines), (lines[0], cells[1]), (lines[1], cells[0])]


def _small_eigenvalues(
    conductances: torch.Tensor, diagonal: torch.Tensor, cut: CutLines | None
) -> torch.Tensor:
    """Count the modes that are worth an unknown, one at least, ``(lines, cells)``."""
    k, d = (one.flatten(0, 1).t() for one in (conductances, diagonal))
    more = torch.zeros_like(d) if cut is None else cut.more.flatten(0, 1).t()
    counts = _eigenvalues_below(_SMALL, k, d, more).clamp(min=min(len(d), 1))
    counts = counts.unflatten(0, conductances.shape[:2])
    return counts if cut is None else counts.minimum(cut.active.sum(-1))


def _most(counts: Sequence[np.ndarray]) -> int:
    """Return how many modes an edge may have, by the counts on all edges of the domain."""
    every = np.concatenate([count.ravel() for count in counts])
    return max(_MODES, int(np.quantile(every, 1 - _OFTEN, method="lower")))


def _modes(
    conductances: torch.Tensor,
    diagonal: torch.Tensor,
    cut: CutLines | None,
    counts: torch.Tensor,
    most: int,
) -> torch.Tensor:
    """Return the lowest modes of lattice edges, ``(lines, cells, s - 1, most)``.

    Most edges have one, which three inverse iterations find as vectors over all edges; the others'
    are eigenvectors.
    """
    k, d = (one.flatten(0, 1).t().contiguous() for one in (conductances, diagonal))
    modes = k.new_zeros(k.shape[1], len(d), most)
    if len(d) and most:
        modes[..., 0] = _lowest(k, d).t()
        several = counts.flatten() > 1
        several = torch.nonzero(several if cut is None else several | cut.edges.flatten())[:, 0]
        along = (k[:-1, several] + k[1:, several]).t()
        if cut is not None:
            along += cut.more.flatten(0, 1)[several]
        modes[several] = _eigenvectors(k[:, several].t(), d[:, several].t(), along, most)
    modes = modes.unflatten(0, counts.shape)
    return modes if cut is None else modes * cut.active[..., None]


def _eigenvalues_below(
    bound: float, k: torch.Tensor, d: torch.Tensor, more: torch.Tensor
) -> torch.Tensor:
    """Count the negative pivots of ``T + more - bound D`` for edges side by side (Sturm)."""
    count, pivot = torch.zeros(k.shape[1], dtype=torch.long, device=k.device), torch.ones_like(k[0])
    for j in range(len(d)):
        own = k[j] + k[j + 1] - bound * d[j] + more[j]
        pivot = own - (k[j].square() / pivot if j else 0.0)
        count += pivot < 0
    return count


def _lowest(k: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """Return nearly the lowest eigenvectors ``(s - 1, edges)``, of largest value 1.

    ``T`` is factorised without a subtraction, so to rounding whatever the contrast: to the left of a node
    there is a conductance in series.
    """
    series, pivots = k[0], []
    for j in range(len(d)):
        pivots.append(series + k[j + 1])
        series = k[j + 1] * series / pivots[j]
    mode = torch.ones_like(d)
    for _ in range(_INVERSE_ITERATIONS):
        mode *= d
        for j in range(1, len(d)):
            mode[j] += k[j] / pivots[j - 1] * mode[j - 1]
        mode[-1] /= pivots[-1]
        for j in reversed(range(len(d) - 1)):
            mode[j] = (mode[j] + k[j + 1] * mode[j + 1]) / pivots[j]
        mode /= mode.amax(0)
    return mode


def _eigenvectors(
    conductances: torch.Tensor, diagonal: torch.Tensor, along: torch.Tensor, most: int
) -> torch.Tensor:
    """Return the lowest eigenvectors of edges ``(edges, s - 1, most)``, of largest value 1.

    Parameters
    ----------
    along
        The diagonal of the one-dimensional stiffness.
    """
    scale = diagonal.rsqrt()
    matrix = torch.diag_embed(along * scale.square())
    coupling = -conductances[..., 1:-1] * scale[..., :-1] * scale[..., 1:]
    matrix.diagonal(-1, -2, -1).copy_(coupling)  # eigh reads the lower triangle
    modes = scale[..., None] * torch.linalg.eigh(matrix)[1][..., :most]
    return modes / modes.gather(-2, modes.abs().argmax(-2, keepdim=True))


def _everywhere(
    ranks: Ranks, blocks: Sequence[Block], counts: Sequence[torch.Tensor]
) -> list[np.ndarray]:
    """Return the numbers of modes on the inner lines of the domain from those of all regions."""
    own, everywhere = blocks[ranks.rank], []
    lattice = own.lattice
    for axis, count in enumerate(counts):
        shape = lattice.subdomains[axis], lattice.cells[1 - axis]
        numbers = np.arange(math.prod(shape)).reshape(shape)
        owned = [_owned(block)[1 + axis] for block in blocks]
        places = [numbers[lines.start - 1 : lines.stop - 1, c].ravel() for lines, c in owned]
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
    lines = [_owned(block)[0] for block in blocks]
    places = [numbers[pair(slice(p.start - 1, p.stop - 1) for p in one)].ravel() for one in lines]
    ends = zip(lines[ranks.rank], own.first, strict=True)
    mine = active[pair(slice(p.start - first, p.stop - first) for p, first in ends)]
    gather = NodeGather(ranks, places, numbers.size)
    values, _ = gather(mine.reshape(1, -1).double().cpu(), np.empty(0))
    return values.numpy().reshape(numbers.shape) > 0


def _edge_basis(
    conductances: torch.Tensor,
    modes: torch.Tensor,
    counts: torch.Tensor,
    cut: "CutLines | None",
) -> torch.Tensor:
    """Return both hats and the modes that count at the nodes of lattice edges."""
    resistance = conductances.reciprocal()
    high = (resistance.cumsum(-1) / resistance.sum(-1, keepdim=True))[..., :-1]
    chosen = torch.arange(modes.shape[-1], device=modes.device) < counts[..., None]
    hats = torch.stack([1.0 - high, high], dim=-1)
    if cut is not None:
        hats[cut.edges] = _cut_hats(conductances[cut.edges], cut.more[cut.edges])
    return torch.cat([hats, modes * chosen[..., None, :]], dim=-1)


def _cut_hats(conductances: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """Return both hats on lattice edges that the outline cuts, ``(edges, s - 1, 2)``."""
    diagonal = conductances[:, :-1] + conductances[:, 1:] + more
    # What lies between two cuts hangs on neither end: it must not be singular.
    matrix = torch.diag_embed(diagonal * (1 + 1e-10))
    coupling = -conductances[:, 1:-1]
    matrix.diagonal(-1, -2, -1).copy_(coupling)
    matrix.diagonal(1, -2, -1).copy_(coupling)
    given = conductances.new_zeros(*diagonal.shape, 2)
    given[:, 0, 0], given[:, -1, 1] = conductances[:, 0], conductances[:, -1]
    return torch.linalg.solve(matrix, given)


def _on_elements(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the basis on the perimeters of elements, columns as `_Numbering.of_elements`."""
    s, modes = rows.shape[2] + 1, rows.shape[3] - 2
    down, across = columns.shape[1], rows.shape[1]
    total = rows.new_zeros(down, across, 4, s, 4 + 4 * modes)
    sides = (
        (rows[:-1], 0, 1),
        (columns[1:].transpose(0, 1), 1, 2),
        (rows[1:].flip(2), 3, 2),
        (columns[:-1].transpose(0, 1).flip(2), 0, 3),
    )
    for side, (basis, low, high) in enumerate(sides):
        total[:, :, side, 0, side] = 1.0
        total[:, :, side, 1:, low] = basis[..., 0]
        total[:, :, side, 1:, high] = basis[..., 1]
        first = 4 + side * modes
        total[:, :, side, 1:, first : first + modes] = basis[..., 2:]
    return total.flatten(2, 3).flatten(0, 1)


def _assembled(
    ranks: Ranks, blocks: Sequence[Block], products: torch.Tensor, numbering: _Numbering
) -> scipy.sparse.csc_array:
    """Assemble ``A_c`` of the whole lattice from the products of all ranks' elements."""
    whole = Block.whole(blocks[0].lattice)
    numbers = np.arange(math.prod(element_shape(whole))).reshape(element_shape(whole))
    places = []
    for block in blocks:
        lines = zip((block.owned_cells(axis) for axis in (0, 1)), block.first, strict=True)
        place = pair(slice(part.start + a, part.stop + a) for part, a in lines)
        places.append(numbers[place].ravel())
    mine = blocks[ranks.rank]
    cells = mine.owned_cells(0), mine.owned_cells(1)
    own = products.unflatten(0, element_shape(mine))[cells].flatten(0, 1)
    gather = NodeGather(ranks, places, numbers.size, problems=own[0].numel())
    values, _ = gather(own.flatten(1).t().cpu(), np.empty(0))
    order = numbering.order[numbering.of_elements(whole)]
    entries = values.numpy().T.reshape(-1, *own.shape[1:])
    rows, columns = np.broadcast_arrays(order[:, :, None], order[:, None])
    inner = (rows >= 0) & (columns >= 0)
    size = len(numbering.unknowns)
    triplets = entries[inner], (rows[inner], columns[inner])
    return scipy.sparse.coo_array(triplets, shape=(size, size)).tocsc()


def _factorised(matrix: scipy.sparse.csc_array) -> Callable[[torch.Tensor], torch.Tensor]:
    """Factorise a matrix whose diagonal serves as pivots; right-hand sides are ``(n, size)``."""
    factors = scipy.sparse.linalg.splu(
        matrix,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return lambda given: torch.from_numpy(factors.solve(given.cpu().numpy().T).T)
