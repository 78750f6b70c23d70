"""Move an array from one layout to any other: the only movement of data but the halo exchange.

Every rank works out alone, from the two layouts, which values it has to give to whom and to take
from whom. All visit their peers in the order of the ranks, and of two that meet the lower speaks
first. So nobody waits in a circle (ranks ``a`` and ``b`` meet in step ``a + b`` of both, and the
earliest step not yet done can always be done), sums are taken in the order of the ranks, and a rank
holds its source, its target and one message.

For one writer or reader of files, arrays go to and from rank 0 in portions of rows, contiguous in a file: it never holds
more than its own part, one portion and one message.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mosaicdd.parallel.layouts.layout import Layout, LayoutRows, Slices, overlaps
from mosaicdd.parallel.layouts.placements import Merge, On
from mosaicdd.parallel.ranks import Ranks

_TAG = 200


def redistribute(array: np.ndarray, source: Layout, target: Layout, ranks: Ranks) -> np.ndarray:
    """Return this rank's array in the target layout; called by all ranks.

    For the same movement again and again, plan a `Redistribution` once.

    Raises
    ------
    ValueError
        On all ranks, if the array of one does not fit the source layout or their types differ, or
        the layouts do not fit each other or the number of ranks.
    """
    ranks.agree(lambda: _require(array, source.local_shape(ranks.rank), array.dtype, "source"))
    dtypes = ranks.allgather(array.dtype)
    if len(set(dtypes)) > 1:
        raise ValueError(f"the ranks hold different types, {sorted(map(str, set(dtypes)))}")
    return Redistribution(source, target, ranks, array.dtype)(array)


class Redistribution:
    """A planned movement between two layouts.

    Values are taken from their owners, from oneself where one is among them; copies in a halo are
    never read, so a redistribution of a layout to itself refreshes them.

    Parameters
    ----------
    source, target
        Layouts of the same array, or windows of them of the same shape, on the same number of
        ranks; their meshes may differ.
    dtype
        Of the arrays.

    Raises
    ------
    ValueError
        If the layouts do not fit each other or the number of ranks.
    """

    def __init__(
        self,
        source: Layout,
        target: Layout,
        ranks: Ranks,
        dtype: DTypeLike,
    ):
        if source.shape != target.shape:
            raise ValueError(f"the source has shape {source.shape}, the target {target.shape}")
        for layout in (source, target):
            if layout.size != ranks.size:
                raise ValueError(
                    f"a mesh of {layout.mesh} needs {layout.size} ranks, there are {ranks.size}"
                )
        self.source, self.target, self.dtype = source, target, np.dtype(dtype)
        self._ranks = ranks
        rank = ranks.rank
        self._meetings = []
        for peer in range(ranks.size):
            gives = _pieces(source, rank, target, peer)
            takes = _pieces(source, peer, target, rank)
            if gives or takes:
                self._meetings.append(_Meeting(peer, gives, takes))
        messages = [pieces for peer, *both in self._meetings for pieces in both if peer != rank]
        self._message = np.empty(max(map(_values, messages), default=0), self.dtype)
        self._adds = bool(source.spread(Merge.SUM))
        clears = self._adds or not _takes(target, rank)
        self._cleared = [box.local for box in target.held(rank)] if clears else []

    def __call__(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's array in the target layout; called by all ranks.

        Parameters
        ----------
        out
            An array of the target's local shape to fill, which shares no memory with ``array``.

        Raises
        ------
        ValueError
            If the shape or type of an array is not the planned one.
        """
        rank = self._ranks.rank
        _require(array, self.source.local_shape(rank), self.dtype, "source")
        if out is None:
            out = np.empty(self.target.local_shape(rank), self.dtype)
        _require(out, self.target.local_shape(rank), self.dtype, "target")
        for part in self._cleared:
            out[part] = 0
        for peer, gives, takes in self._meetings:
            if peer == rank:
                for piece in gives:
                    self._merge(out[piece.target], array[piece.source])
            elif rank < peer:
                self._send(array, gives, peer)
                self._receive(out, takes, peer)
            else:
                self._receive(out, takes, peer)
                self._send(array, gives, peer)
        return out

    def _merge(self, part: np.ndarray, values: np.ndarray) -> None:
        if self._adds:
            part += values
        else:
            part[...] = values

    def _send(self, array: np.ndarray, pieces: list["_Piece"], peer: int) -> None:
        if pieces:
            for piece in pieces:
                values = array[piece.source]
                self._message[piece.message].reshape(values.shape)[...] = values
            self._ranks.comm.Send(self._message[: _values(pieces)], peer, _TAG)

    def _receive(self, out: np.ndarray, pieces: list["_Piece"], peer: int) -> None:
        if pieces:
            self._ranks.comm.Recv(self._message[: _values(pieces)], peer, _TAG)
            for piece in pieces:
                part = out[piece.target]
                self._merge(part, self._message[piece.message].reshape(part.shape))


def norm(array: np.ndarray, layout: Layout, ranks: Ranks) -> float:
    """Return the Euclidean norm of the whole array; copies in halos do not count.

    Raises
    ------
    ValueError
        If a value would count twice or not at all, with the placements that are the reason.
    """
    if not layout.is_partition:
        raise ValueError(
            f"a sum over {layout} would not count every value once: redistribute to a layout "
            "without Replicate and PartialSum first"
        )
    owned = (array[box.local] for box in layout.owned(ranks.rank))
    squares = sum(np.vdot(part, part).real for part in owned)
    return float(np.sqrt(ranks.sum(np.array(squares, float))))


class _Piece(NamedTuple):
    """A box that two ranks share: where it lies in the giver's array, the message, the taker's."""

    source: Slices
    message: slice
    target: Slices


class _Meeting(NamedTuple):
    """What this rank gives to and takes from a peer."""

    peer: int
    gives: list[_Piece]
    takes: list[_Piece]


def _pieces(source: Layout, giver: int, target: Layout, taker: int) -> list[_Piece]:
    """List what one rank gives to another, in an order that both know."""
    if not (_gives(source, giver, taker) and _takes(target, taker)):
        return []
    per_axis = [
        overlaps(a.owned, b.held)
        for a, b in zip(source.shares[giver], target.shares[taker], strict=True)
    ]
    pieces, first = [], 0
    for box in itertools.product(*per_axis):
        last = first + math.prod(part.length for part in box)
        pieces.append(
            _Piece(
                tuple(slice(part.here, part.here + part.length) for part in box),
                slice(first, last),
                tuple(slice(part.there, part.there + part.length) for part in box),
            )
        )
        first = last
    return pieces


def _gives(source: Layout, giver: int, taker: int) -> bool:
    """Whether a rank answers another: of equal copies, the one in the taker's own row does."""
    here, there = source.coordinates(giver), source.coordinates(taker)
    return all(here[axis] == there[axis] for axis in source.spread(Merge.ANY))


def _takes(target: Layout, taker: int) -> bool:
    """Whether a rank gets values at all: of the terms of a sum, the first does."""
    return not any(target.coordinates(taker)[axis] for axis in target.spread(Merge.SUM))


def _values(pieces: list[_Piece]) -> int:
    """Count the values in a message."""
    return pieces[-1].message.stop if pieces else 0


def _require(array: np.ndarray, shape: tuple[int, ...], dtype: DTypeLike, name: str) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"the {name} layout needs an array of shape {shape} and type {dtype} on this rank, got "
            f"{array.shape} and {array.dtype}"
        )


def rows_to_root(
    array: np.ndarray,
    layout: Layout,
    ranks: Ranks,
    sink: Callable[[np.ndarray, slice], None],
    *,
    rows: int,
) -> None:
    """Hand the whole array to rank 0, in portions of so many rows; called by all ranks.

    ``sink(portion, place)`` is called on rank 0 only, with the rows in order; the portion is only
    valid during the call.
    """
    for window, on_root, portion in _portions(layout, ranks, array.dtype, rows):
        Redistribution(window, on_root, ranks, array.dtype)(array, portion)
        place = slice(window.start, window.stop)
        ranks.on_root(functools.partial(sink, portion, place))


def rows_from_root(
    source: Callable[[slice], np.ndarray] | None,
    layout: Layout,
    ranks: Ranks,
    dtype: DTypeLike,
    *,
    rows: int,
) -> np.ndarray:
    """Return this rank's part of an array that rank 0 gives in portions of so many rows.

    ``source(place)``, called on rank 0 only, returns the rows of the whole array at a place; others
    may have None.
    """
    array = np.empty(layout.local_shape(ranks.rank), dtype)
    for window, on_root, portion in _portions(layout, ranks, dtype, rows):

        def fill(portion: np.ndarray = portion, window: LayoutRows = window) -> None:
            if source is None:
                raise TypeError("the root needs a source of the rows")
            portion[...] = source(slice(window.start, window.stop))

        ranks.on_root(fill)
        Redistribution(on_root, window, ranks, dtype)(portion, array)
    return array


def _portions(
    layout: Layout, ranks: Ranks, dtype: DTypeLike, rows: int
) -> Iterator[tuple[LayoutRows, Layout, np.ndarray]]:
    """Give each portion: where it lies in the layout, its layout on rank 0, a buffer for it."""
    if rows < 1:
        raise ValueError(f"a portion needs at least 1 row, got {rows}")
    shape = (min(rows, layout.shape[0]), *layout.shape[1:])
    buffer = np.empty(Layout(shape, (ranks.size,), (On(0),)).local_shape(ranks.rank), dtype)
    for start in range(0, layout.shape[0], rows):
        window = LayoutRows(layout, start, min(start + rows, layout.shape[0]))
        on_root = Layout(window.shape, (ranks.size,), (On(0),))
        yield window, on_root, buffer[: on_root.local_shape(ranks.rank)[0]]
