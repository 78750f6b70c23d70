"""Move an array from one layout to any other: the only movement of data but the halo exchange.

Every rank works out alone, from the two layouts, which boxes it has to give to whom and to take from whom, and
describes them to MPI as parts of its arrays. A movement is then one collective call, in which nothing is packed and
all messages travel at the same time; ranks that have nothing for each other send nothing. A rank holds its
source and its target.

For one writer or reader of files, arrays go to and from rank 0 in portions of rows, contiguous in a file: it never holds
more than its own part and one portion.
"""

import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mosaicdd.parallel.layouts.layout import Layout, Shard, Slices, overlaps
from mosaicdd.parallel.ranks import Ranks

if TYPE_CHECKING:
    from mpi4py import MPI


class Redistribution:
    """A planned movement between two layouts.

    Values are taken from their owners, from oneself where one is among them; copies in a halo are
    never read, so a redistribution of a layout to itself refreshes them.

    `ValueError` if the layouts do not fit each other or the number of ranks.

    Parameters
    ----------
    source, target
        Layouts of the same array, or rows of them of the same shape, on the same number of
        ranks; their meshes may differ.
    dtype
        Of the arrays.
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
        self._ranks, rank = ranks, ranks.rank
        peers = range(ranks.size)
        self._own = _boxes(source, rank, target, rank)
        self._gives = [_boxes(source, rank, target, peer) if peer != rank else [] for peer in peers]
        self._takes = [_boxes(source, peer, target, rank) if peer != rank else [] for peer in peers]
        if ranks.size > 1:
            self._describe()

    def _describe(self) -> None:
        """Describe to MPI what goes to and comes from each rank."""
        rank, comm = self._ranks.rank, self._ranks.comm
        given_shape, taken_shape = self.source.local_shape(rank), self.target.local_shape(rank)
        sends = [
            _described([box.source for box in boxes], given_shape, self.dtype)
            for boxes in self._gives
        ]
        receives = [
            _described([box.target for box in boxes], taken_shape, self.dtype)
            for boxes in self._takes
        ]
        self._sends, self._receives = ([int(t is not None) for t in of] for of in (sends, receives))
        self._types = [_or_bytes(of) for of in (sends, receives)]
        weakref.finalize(self, _free, [t for t in (*sends, *receives) if t is not None])
        self._move = comm.Alltoallw

    def __call__(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's array in the target layout; called by all ranks.

        ``out``: a contiguous array of the target's local shape to fill, which shares no memory with ``array``.
        `ValueError` if the shape or type of an array is not the planned one.
        """
        rank = self._ranks.rank
        _require(array, self.source.local_shape(rank), self.dtype, "source")
        if out is None:
            out = np.empty(self.target.local_shape(rank), self.dtype)
        _require(out, self.target.local_shape(rank), self.dtype, "target")
        if not out.flags.c_contiguous:
            raise ValueError("the target layout needs an array that is contiguous")
        if self._ranks.size > 1:
            array = np.ascontiguousarray(array)
            nowhere, (sent, received) = [0] * self._ranks.size, self._types
            self._move(
                [_bytes(array), self._sends, nowhere, sent],
                [_bytes(out), self._receives, nowhere, received],
            )
        for box in self._own:
            out[box.target] = array[box.source]
        return out


class _Shared(NamedTuple):
    """A box that two ranks share: where it lies in the giver's array, and in the taker's."""

    source: Slices
    target: Slices


def _boxes(source: Layout, giver: int, target: Layout, taker: int) -> list[_Shared]:
    """List what one rank gives to another, in an order that both know."""
    per_axis = [
        overlaps(a.owned, b.held)
        for a, b in zip(source.shares[giver], target.shares[taker], strict=True)
    ]
    return [
        _Shared(
            tuple(slice(part.here, part.here + part.length) for part in box),
            tuple(slice(part.there, part.there + part.length) for part in box),
        )
        for box in itertools.product(*per_axis)
    ]


def _described(
    boxes: Sequence[Slices], shape: tuple[int, ...], dtype: np.dtype
) -> "MPI.Datatype | None":
    """Return MPI's type of some boxes of an array, to be freed; None where there is none."""
    if not boxes:
        return None
    from mpi4py import MPI
    from mpi4py.util.dtlib import from_numpy_dtype

    value = from_numpy_dtype(dtype)
    parts = []
    for box in boxes:
        sizes = [part.stop - part.start for part in box]
        parts.append(value.Create_subarray(shape, sizes, [part.start for part in box]))
    whole = MPI.Datatype.Create_struct([1] * len(parts), [0] * len(parts), parts)
    whole.Commit()
    _free(parts)
    return whole


def _or_bytes(types: "Sequence[MPI.Datatype | None]") -> "list[MPI.Datatype]":
    """Return types, any where nothing is sent."""
    from mpi4py import MPI

    return [MPI.BYTE if of is None else of for of in types]


def _free(types: "Sequence[MPI.Datatype]") -> None:
    """Give types back to MPI, unless that has ended."""
    from mpi4py import MPI

    if not MPI.Is_finalized():
        for of in types:
            of.Free()


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return a view of an array's memory, whose types are said beside it."""
    return array.reshape(-1).view(np.uint8)


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
    for place, on_root, portion in _portions(layout, ranks, array.dtype, rows):
        window = layout.rows(place.start, place.stop)
        Redistribution(window, on_root, ranks, array.dtype)(array, portion)
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
    for place, on_root, portion in _portions(layout, ranks, dtype, rows):

        def fill(portion: np.ndarray = portion, place: slice = place) -> None:
            if source is None:
                raise TypeError("the root needs a source of the rows")
            portion[...] = source(place)

        ranks.on_root(fill)
        window = layout.rows(place.start, place.stop)
        Redistribution(on_root, window, ranks, dtype)(portion, array)
    return array


def _portions(
    layout: Layout, ranks: Ranks, dtype: DTypeLike, rows: int
) -> Iterator[tuple[slice, Layout, np.ndarray]]:
    """Yield the rows of each portion, its layout on rank 0, and a buffer for it."""
    if rows < 1:
        raise ValueError(f"a portion needs at least 1 row, got {rows}")
    shape = (min(rows, layout.shape[0]), *layout.shape[1:])
    buffer = np.empty(_on_root(shape, ranks).local_shape(ranks.rank), dtype)
    for start in range(0, layout.shape[0], rows):
        stop = min(start + rows, layout.shape[0])
        on_root = _on_root((stop - start, *shape[1:]), ranks)
        yield slice(start, stop), on_root, buffer[: on_root.local_shape(ranks.rank)[0]]


def _on_root(shape: tuple[int, ...], ranks: Ranks) -> Layout:
    """Return the layout of an array that rank 0 has."""
    sizes = (shape[0], *[0] * (ranks.size - 1))
    return Layout(shape, (ranks.size,), (Shard(0, sizes),))
