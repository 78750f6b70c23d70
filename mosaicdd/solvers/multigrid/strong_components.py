"""Strong components of a level on a rank: nodes that strong couplings join within squares, or cubes, of the grid.

An error that a sweep does not see is nearly constant where couplings are strong, and where a conductor holds no coarse
node no coarser level sees it, either. So the nodes of a square that strong couplings join are one piece. Squares go by
global indices, and a piece by the smallest index in it, so pieces do not depend on how nodes are shared among ranks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from mosaicdd.axes import Slices, in_rows, within
from mosaicdd.solvers.multigrid.colour_layout import Step
from mosaicdd.solvers.multigrid.level_operator import Coupled

# Of the strongest coupling of either end: a soft node has to be no part of the conductor beside it. In SPE10 0.25 makes
# half as many pieces more, to the same effect; 0.01 joins too much.
_STRONG = 0.1
_AT_ONCE = 2**16  # nodes of which numbers are looked at together
_MOST = 2**17  # squares, whatever they hold

_Joined = tuple[Slices, Slices, np.ndarray]
"""Where in the box the first and the second ends of couplings in a direction are, and which of these join them."""


@dataclass(frozen=True)
class StrongComponents:
    """The pieces of one rank, each named by one more than the smallest index of its nodes.

    Parameters
    ----------
    names, sizes, excess, tops
        Of pieces of its own nodes, ascending: how many nodes, the sum of their excess, and the strongest coupling of any.
    same
        Pairs of names of what is one piece, ``(n, 2)``.
    pairs, sums, strongest
        Names of coupled pieces, ``(n, 2)``, the sum of all couplings between these, and the largest.
    """

    names: np.ndarray
    sizes: np.ndarray
    excess: np.ndarray
    tops: np.ndarray
    same: np.ndarray
    pairs: np.ndarray
    sums: np.ndarray
    strongest: np.ndarray


def connected_sets(system: Coupled) -> tuple[StrongComponents, np.ndarray, np.ndarray]:
    """Return the pieces of this rank's nodes; all ranks together.

    Returns
    -------
    StrongComponents, ndarray, ndarray
        And at the nodes of the box the place of the own piece, -1 elsewhere; and the name of any, of copies, too, 0 where
        there is no unknown.
    """
    box = tuple(slice(first, last + 1) for first, last in system.nodes.box)
    own = within(tuple(slice(first, last + 1) for first, last in system.blocks.owned), box)
    there, mine = system.ones > 0, np.zeros(system.ones.shape, bool)
    mine[own] = there[own]
    # Couplings are made anew each time: to keep those of all axes takes more memory than all else.
    top = np.zeros(there.shape, np.float32)
    for first, second, k in _edges(system):
        for end in (first, second):
            np.maximum(top[end], k, out=top[end])
    squares = _squares(system, box)
    strong: list[_Joined] = []
    for first, second, k in _edges(system):
        joined = (k > 0) & there[first] & there[second]
        for rows in in_rows(_all_of(k), _AT_ONCE):
            largest = np.maximum(top[first][rows], top[second][rows])
            joined[rows] &= k[rows] >= _STRONG * largest
            for square in squares:
                joined[rows] &= square[first][rows] == square[second][rows]
        strong.append((first, second, joined))
    del k
    piece, least = _connected(system, box, mine, strong)
    sizes, tops = np.zeros(len(least), np.int64), np.zeros(len(least), top.dtype)
    for rows in in_rows(_all_of(piece), _AT_ONCE):
        of_mine = piece[rows][mine[rows]].astype(np.intp)
        np.add.at(sizes, of_mine, 1)
        np.maximum.at(tops, of_mine, top[rows][mine[rows]])  # twenty times slower if kinds differ
    del top
    labels = system.nodes.new(torch.int32).fill_(-1)
    excess = system.sums_of_excess(system.nodes.take(torch.from_numpy(piece), labels), len(least))
    del labels
    names = _names(system, piece, least)
    same, between = [], []
    for first, second, k in _edges(system):
        _, _, joined = strong.pop(0)
        for rows in in_rows(_all_of(k), _AT_ONCE):  # most couplings are of few pairs
            ends = names[first][rows], names[second][rows]
            mine_first, mine_second = mine[first][rows], mine[second][rows]
            differ = ends[0] != ends[1]
            same.append(_both(ends, joined[rows] & differ & (mine_first | mine_second)))
            differ &= mine_first & there[second][rows] & (k[rows] != 0)
            between.append(added(_both(ends, differ), k[rows][differ].astype(float)))
        # Before the next direction, of which many couplings are between the same.
        between = [added(*(np.concatenate(parts) for parts in zip(*between, strict=True)))]
    known = StrongComponents(
        least + 1,
        sizes,
        excess / system.scale,
        tops,
        np.unique(np.concatenate(same), axis=0),
        *between[0],
    )
    return known, piece, names


def _connected(
    system: Coupled, box: Slices, mine: np.ndarray, strong: Sequence[_Joined]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the connected set of each own node, -1 elsewhere, and the least index of each set.

    Numbers ascend as these do.
    """
    along = (*[slice(None)] * (mine.ndim - 1), slice(None, -1))
    begins, others = np.ones(mine.shape, bool), []
    for first, second, joined in strong:
        here = joined & mine[first] & mine[second]
        if first == along:
            begins[second] = ~here
        else:
            others.append((first, second, here))
    # Nodes side by side in memory are one run: there are fewer of these, and few couplings between each two.
    run = np.cumsum(begins, dtype=np.int32).reshape(begins.shape)
    run -= 1
    ends = [np.zeros((2, 0), np.int32)]
    for first, second, here in others:
        for rows in in_rows(_all_of(here), _AT_ONCE):
            pair = np.stack([run[end][rows][here[rows]] for end in (first, second)])
            new = np.ones(pair.shape[1], bool)
            new[1:] = (pair[:, 1:] != pair[:, :-1]).any(axis=0)
            ends.append(pair[:, new])
    del others
    a, b = np.concatenate(ends, axis=1)
    runs = int(run.flat[-1]) + 1
    graph = scipy.sparse.coo_array((np.ones(len(a), np.int8), (a, b)), (runs, runs))
    set_of_run = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    start = np.flatnonzero(begins)  # of each run, and runs are all own or of one node that is not
    owned = np.flatnonzero(mine.ravel()[start])
    # The first of each set, as runs ascend by their starts within a box.
    sets, first_run = np.unique(set_of_run[owned], return_index=True)
    index = _indices(system, box, np.unravel_index(start[owned[first_run]], mine.shape))
    order = np.argsort(index)
    number = np.full(int(set_of_run.max()) + 1, -1, np.int32)
    number[sets[order]] = np.arange(len(sets), dtype=np.int32)
    of_run = np.full(runs, -1, np.int32)
    of_run[owned] = number[set_of_run[owned]]
    return of_run[run], index[order]


def _all_of(values: np.ndarray) -> Slices:
    return tuple(slice(0, count) for count in values.shape)


def added(
    pairs: np.ndarray, sums: np.ndarray, strongest: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct pairs, the smaller name first, with the sum and the largest of their numbers.

    Parameters
    ----------
    strongest
        Of what the largest are; by default of the numbers added.
    """
    if not len(pairs):
        return pairs, sums, sums
    low, high = np.minimum(*pairs.T), np.maximum(*pairs.T)
    first = int(low.min())
    # One number for both sorts in a third of the time.
    names = (low.astype(np.int64) - first) * (int(high.max()) - first + 1) + high
    order = np.argsort(names, kind="stable")
    names = names[order]
    starts = np.flatnonzero(np.r_[True, names[1:] != names[:-1]])
    order_of_first = order[starts]
    pairs = np.stack([low[order_of_first], high[order_of_first]], axis=1)
    largest = (sums if strongest is None else strongest)[order]
    return (
        pairs,
        np.add.reduceat(sums[order], starts),
        np.maximum.reduceat(largest, starts),
    )


def _edges(system: Coupled) -> Iterator[tuple[Slices, Slices, np.ndarray]]:
    """Yield the places of both ends of couplings in a direction, and the couplings."""
    for step, k in system.couplings.items():
        first, second = _ends(step)
        yield first, second, system.values(k)[first]


def _ends(step: Step) -> tuple[Slices, Slices]:
    ends = {0: (slice(None), slice(None)), 1: (slice(None, -1), slice(1, None))}
    ends[-1] = ends[1][::-1]
    first, second = zip(*(ends[s] for s in step), strict=True)
    return tuple(first), tuple(second)


def _squares(system: Coupled, box: Sequence[slice]) -> list[np.ndarray]:
    """Return per axis in which square the nodes of the box are."""
    side, _ = squares_of(system)
    shape = [part.stop - part.start for part in box]
    return [np.broadcast_to(index // side, shape) for index in np.ix_(*_canonical(system, box))]


def squares_of(system: Coupled) -> tuple[int, int]:
    """Return the nodes of a square along an axis, and the number of squares."""
    counts = [last - first + 1 for first, last in system.blocks.shares.domain]
    axes, side = system.nodes.axes, system.side
    while True:
        squares = math.prod(-(-count // side) for count in counts)
        wide = side >= system.widest.get(axes, math.inf)
        if squares <= (_MOST if wide else system.squares[axes]):
            return side, squares
        side += 1


def _indices(system: Coupled, box: Sequence[slice], at: Sequence[np.ndarray]) -> np.ndarray:
    """Return the flat indices in the domain of some nodes of the box, by their places in it."""
    flat: np.ndarray = np.zeros((), np.int64)
    every = zip(system.blocks.shares.domain, _canonical(system, box), at, strict=True)
    for (first, last), nodes, place in every:
        flat = flat * (last - first + 1) + (nodes[place] - first)
    return flat


def _canonical(system: Coupled, box: Sequence[slice]) -> list[np.ndarray]:
    """Return the global indices of the box per axis; of copies around periodic axes those of their nodes."""
    rounds = zip(box, system.blocks.shares.rounds, strict=True)
    every = ((np.arange(part.start, part.stop), count) for part, count in rounds)
    return [nodes % count if count else nodes for nodes, count in every]


def _names(system: Coupled, piece: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return at the nodes of the box the names of pieces, of copies those that their owners know; 0 where none is."""
    if system.copies is None:
        names = np.append(least + 1, 0)
        return names.astype(np.min_scalar_type(names.max()))[piece]
    vector = system.vector(np.append(least + 1.0, 0.0)[piece])
    system.copies.refresh(vector)
    return system.values(vector).astype(np.int64)


def _both(ends: Sequence[np.ndarray], where: np.ndarray) -> np.ndarray:
    """Return the names of both ends of some couplings, ``(n, 2)``."""
    return np.stack([names[where] for names in ends], axis=1)
