"""The second coarse space: constants on aggregates of strongly coupled nodes, and of loose nodes beside them.

Every rank has the equations between all of them, and their factors: they are few, see `strong_components`. Together aggregates are
all unknowns; without the small ones that join others, iterations would be twice as many.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from scipy.sparse.csgraph import breadth_first_order

from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.solvers.multigrid.level_operator import Coupled
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.multigrid.strong_components import (
    StrongComponents,
    added,
    connected_sets,
    squares_of,
)
from mosaicdd.solvers.multigrid.vector_operations import arrays_of, kernels
from mosaicdd.unsupported import Unsupported

_ROUNDING = 1e-10  # of a solve beside SuperLU's


def factorised(matrix: scipy.sparse.csc_array) -> Callable[[np.ndarray], np.ndarray]:
    """Factorise a symmetric positive matrix in float64, ``P A P' = L D L'``; return the solve for right-hand sides ``(n,)``.

    Factors are SuperLU's, of which half is kept: it has ``D L'``, too, and room beside both, and goes over blocks, which
    are of few numbers here. Solves in compiled code take half as long.
    """
    # Such matrices need no pivots; those of aggregates have few neighbours.
    factors = scipy.sparse.linalg.splu(
        matrix,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    lean = _lean(factors)
    if lean is not None:
        b = np.cos(np.arange(matrix.shape[0]))
        expected = factors.solve(b)
        if np.allclose(lean(b), expected, rtol=0, atol=_ROUNDING * abs(expected).max()):
            return lean
    solve: Callable[[np.ndarray], np.ndarray] = factors.solve
    return solve


def _lean(factors: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return the solve by the lower factor and the diagonal; None without compiled code, or with other factors."""
    code = kernels()
    if code is None or not np.array_equal(factors.perm_r, factors.perm_c):
        return None
    lower, order = factors.L, factors.perm_c.copy()  # else it holds all factors
    inverse, count = 1 / factors.U.diagonal(), len(order)
    first = lower.indices[lower.indptr[:-1]]
    if lower.indices.dtype != np.int32 or not np.array_equal(first, np.arange(count)):
        return None  # then the diagonal does not come first
    starts, rows = (of.view(np.uint32) for of in (lower.indptr, lower.indices))
    values = lower.data

    def solve(b: np.ndarray) -> np.ndarray:
        x = np.empty(count)
        x[order] = b
        code.forward(starts, rows, values, x)
        code.backward(starts, rows, values, inverse, x)
        return x[order]

    return solve


# By axes, nodes of a piece that joins the one that it is coupled to most, at most. In the plane 12 cost iterations, and 3 factors
# a quarter larger; in space 6 cost iterations of wires.
_SMALL = {1: 6, 2: 6, 3: 3}
# Of the strongest coupling in a piece, for that to another: without it the piece is a conductor by itself, which no sweep sees.
_LOOSE = 0.01
_MOST = 2**16  # aggregates, or four of a square: of more, larger ones join others


class CoarseAggregates:
    """Aggregates and the inverse of ``E = W' A W``, with ``W`` one at the nodes of each; made by all ranks together.

    Attributes
    ----------
    count
        Of all ranks.
    """

    def __init__(self, system: Coupled):
        self._ranks = system.blocks.ranks
        self._labels, matrix = self._labelled(system)
        self.count = matrix.shape[0]
        give_back_memory(always=True)  # factors take larger blocks than pieces have left
        self._solve = factorised(matrix)
        give_back_memory(always=True)  # what was beside those that are kept

    def _labelled(self, system: Coupled) -> tuple[torch.Tensor, scipy.sparse.csc_array]:
        """Return the aggregate of each node, a vector, of others how many there are; and ``E``."""
        nodes = system.nodes
        known, piece, names = connected_sets(system)
        of_ranks = self._ranks.allgather(known)
        every = np.unique(np.concatenate([of_rank.names for of_rank in of_ranks]))
        most = max(_MOST, 4 * squares_of(system)[1])
        aggregate, matrix = _joined(of_ranks, every, _SMALL[nodes.axes], most)
        none = np.int32(matrix.shape[0])
        of_piece = aggregate[np.searchsorted(every, known.names)]
        number = np.append(of_piece, none).astype(np.int32)[piece]
        copies = (piece < 0) & (names > 0)
        number[copies] = aggregate[np.searchsorted(every, names[copies])]
        labels = nodes.new(torch.int32).fill_(int(none))
        return nodes.take(torch.from_numpy(number), labels), matrix

    def coarse_solve(self, left: torch.Tensor, right: torch.Tensor | None = None) -> np.ndarray:
        """Return ``inverse(E) W' (left - right)`` of vectors whose copies are zero; all ranks together."""
        sums = torch.zeros(self.count + 1, dtype=torch.float64, device=left.device)
        for number, labels in enumerate(self._labels):
            add_up(labels, left[number], None if right is None else right[number], sums)
        return self._solve(self._ranks.sum(sums[:-1].cpu().numpy()))

    def prolong_add(self, constants: np.ndarray, vector: torch.Tensor) -> None:
        """Add constants on aggregates to a vector, copies included."""
        last = torch.from_numpy(np.append(constants, 0.0)).to(vector)
        for values, labels in zip(vector, self._labels, strict=True):
            add_constants(labels, last, values)


def _joined(
    of_ranks: Sequence[StrongComponents], every: np.ndarray, least: int, most: int
) -> tuple[np.ndarray, scipy.sparse.csc_array]:
    """Return the number of each piece's aggregate, and the equations between these.

    ``least``, ``most``: see `_SMALL` and `_MOST`.
    """
    count = len(every)

    def total(of: Sequence[np.ndarray]) -> np.ndarray:
        places = [np.searchsorted(every, each.names) for each in of_ranks]
        return np.bincount(np.concatenate(places), np.concatenate(of), count)

    sizes, excess = (
        total([each.sizes for each in of_ranks]),
        total([each.excess for each in of_ranks]),
    )
    same = np.searchsorted(every, np.concatenate([each.same for each in of_ranks]))
    pairs = np.searchsorted(every, np.concatenate([each.pairs for each in of_ranks]))
    sums = np.concatenate([each.sums for each in of_ranks])
    strongest = np.concatenate([each.strongest for each in of_ranks])
    tops = np.zeros(count)
    for each in of_ranks:
        np.maximum.at(tops, np.searchsorted(every, each.names), each.tops)
    aggregate, small = together(same, count), least
    while True:
        of_pairs = np.sort(aggregate[pairs], axis=1)
        between = of_pairs[:, 0] != of_pairs[:, 1]
        coupled = added(of_pairs[between], sums[between], strongest[between])
        size = np.bincount(aggregate, sizes)
        if small > least and (len(size) <= most or small > sizes.sum()):
            return aggregate, _matrix(coupled[0], coupled[1], np.bincount(aggregate, excess))
        mates, to_mate = _strongest(coupled[0], coupled[2], len(size))
        top = np.zeros(len(size))
        np.maximum.at(top, aggregate, tops)
        joins = (size <= small) & (to_mate > 0)
        if len(size) <= most:
            joins &= to_mate >= _LOOSE * top
        loose = np.flatnonzero(joins)
        aggregate = together(np.stack([loose, mates[loose]], axis=1), len(size))[aggregate]
        small *= 2


def together(pairs: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers of sets, by their first members, that pairs of so many members make."""
    graph = scipy.sparse.coo_array((np.ones(len(pairs), np.int8), tuple(pairs.T)), (count, count))
    sets, number = scipy.sparse.csgraph.connected_components(graph, directed=False)
    first = np.empty(sets, np.int64)
    first[number[::-1]] = np.arange(count)[::-1]
    ascending = np.empty(sets, np.int64)
    ascending[np.argsort(first)] = np.arange(sets)
    return ascending[number]


def _strongest(
    pairs: np.ndarray, couplings: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the strongest neighbour of each, of equals the first, and the coupling to it; -1 if it has none."""
    ends, mates_of_ends = np.concatenate([pairs, pairs[:, ::-1]]).T.copy()
    couplings = np.tile(couplings, 2)
    most = np.zeros(count)
    np.maximum.at(most, ends, couplings)
    strongest = couplings == most[ends]
    mates = np.full(count, count)
    np.minimum.at(mates, ends[strongest], mates_of_ends[strongest])
    mates[mates == count] = -1
    return mates, most


def _matrix(pairs: np.ndarray, couplings: np.ndarray, excess: np.ndarray) -> scipy.sparse.csc_array:
    """Return ``E``; where constants are left open, the first aggregate of a part has its diagonal twice."""
    count = len(excess)
    a, b = pairs.T
    diagonal = np.bincount(a, couplings, count) + np.bincount(b, couplings, count) + excess
    part = together(pairs, count)
    first = np.unique(part, return_index=True)[1]
    open_ = np.bincount(part, excess) <= 0
    diagonal[first[open_]] *= 2
    diagonal[diagonal <= 0] = 1.0
    every = np.arange(count)
    return scipy.sparse.csc_array(
        (
            np.concatenate([diagonal, -couplings, -couplings]),
            (np.concatenate([every, a, b]), np.concatenate([every, b, a])),
        ),
        shape=(count, count),
    )


def add_up(
    labels: torch.Tensor, left: torch.Tensor, right: torch.Tensor | None, sums: torch.Tensor
) -> None:
    """Add values, or their differences, to the sums of their labels, in float64.

    Parameters
    ----------
    labels
        ``(M,)`` int32.
    left, right
        ``(M,)``.
    sums
        As many as there are labels.
    """
    code, arrays = kernels(), arrays_of(labels, sums, left, *([] if right is None else [right]))
    if code is None or arrays is None:
        sums.index_add_(0, labels, (left if right is None else left - right).double())
        return
    numbers, total, *values = arrays
    add = code.add_up if right is None else code.add_up_differences
    add(numbers.view(np.uint32), *values, total)


def add_constants(labels: torch.Tensor, constants: torch.Tensor, values: torch.Tensor) -> None:
    """Add to each value the constant of its label, of the same kind of numbers."""
    code, arrays = kernels(), arrays_of(labels, constants, values)
    if code is None or arrays is None:
        values += constants.index_select(0, labels)
        return
    numbers, *others = arrays
    code.add_constants(numbers.view(np.uint32), *others)


# Of a conductor's own couplings: rounding of these, 1e-16, makes its level uncertain by a thousandth there.
_TOLD = 1e-13


def require_levels(system: NodeEquations) -> None:
    """Check that each piece of strong couplings is joined to given values, or to others that are; all ranks together.

    A number added to all values of a conductor changes what is left of its equations by the couplings around it alone.
    Where rounding of its own is as large, no residual shows which number is right, and no iteration finds it: one that far
    worse conductors join to given values may have any.

    Raises
    ------
    Unsupported
        If what joins one is less than `_TOLD` of its own couplings.
    """
    if system.directed:
        return
    weak = any(bool(((k > 0) & (k < _TOLD)).any()) for k in system.couplings.values())
    if not system.blocks.ranks.any(weak):
        return
    of_ranks = system.blocks.ranks.allgather(connected_sets(system)[0])
    every = np.unique(np.concatenate([known.names for known in of_ranks]))
    pairs, same = (
        np.searchsorted(every, np.concatenate([getattr(known, name) for known in of_ranks]))
        for name in ("pairs", "same")
    )
    couplings = np.concatenate([known.sums for known in of_ranks])
    conductor = together(same, len(every))
    count = int(conductor.max()) + 1
    top, excess = np.zeros(count), np.zeros(count)
    for known in of_ranks:
        here = conductor[np.searchsorted(every, known.names)]
        np.maximum.at(top, here, known.tops)
        np.add.at(excess, here, known.excess)
    a, b = conductor[pairs].T
    told = excess >= _TOLD * top
    if not told.any():  # all is up to a constant
        told[top.argmax()] = True
    # From what is told to what it tells, beginning at one more that tells the first ones.
    begins, ends = np.concatenate([a, b]), np.concatenate([b, a])
    tells = np.abs(np.tile(couplings, 2)) >= _TOLD * top[ends]
    first = np.flatnonzero(told)
    begins = np.concatenate([begins[tells], np.full(len(first), count)])
    ends = np.concatenate([ends[tells], first])
    shape = count + 1, count + 1
    graph = scipy.sparse.csr_array((np.ones(len(begins), np.int8), (begins, ends)), shape)
    left = np.ones(count + 1, bool)
    left[breadth_first_order(graph, count, return_predecessors=False)] = False
    if left.any():
        index = int(every[left[conductor]].min()) - 1
        ends_of_axes = system.blocks.shares.domain
        counts = [last - low + 1 for low, last in ends_of_axes]
        along = zip(np.unravel_index(index, counts), ends_of_axes, strict=True)
        node = tuple(int(n) + low for n, (low, _) in along)
        raise Unsupported(
            f"a conductor at node {node} is joined to given values by less than {_TOLD:g} of what joins it in itself, and "
            "float64 tells no level of it: hold a value in it, leave it out of the domain, or let what is around it "
            "conduct more"
        )
