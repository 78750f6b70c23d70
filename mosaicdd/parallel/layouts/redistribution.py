"""Move an array from one layout to any other: the only movement of data but the halo exchange.

Every rank works out alone, from the two layouts, which boxes it has to give to whom and to take from whom, and
describes them to MPI as parts of its arrays. A movement is then one collective call, in which nothing is packed and
all messages travel at the same time; ranks that have nothing for each other send nothing. A rank holds its
source and its target; where terms are added up, also what others send, which it adds in the order of the ranks.

For one writer or reader of files, arrays go to and from rank 0 in portions of rows, contiguous in a file: it never holds
more than its own part and one portion.
"""

import copy
import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mosaicdd.parallel.layouts.layout import Layout, LayoutRows, Slices, overlaps
from mosaicdd.parallel.layouts.placements import Merge, On
from mosaicdd.parallel.ranks import Ranks

if TYPE_CHECKING:
    from mpi4py import MPI


def redistribute(array: np.ndarray, source: Layout, target: Layout, ranks: Ranks) -> np.ndarray:
    """Return this rank's array in the target layout; called by all ranks.

    For the same movement again and again, plan a `Redistribution` once.

    `ValueError` on all ranks, if the array of one does not fit the source layout or their types differ, or the
    layouts do not fit each other or the number of ranks.
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

    `ValueError` if the layouts do not fit each other or the number of ranks.

    Parameters
    ----------
    source, target
        Layouts of the same array, or windows of them of the same shape, on the same number of
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
        self._plan(adds=bool(source.spread(Merge.SUM)))

    def adjoint(self) -> "Redistribution":
        """Return the movement back in which values are added up where they were taken from, as gradients are."""

        def turned(boxes: Sequence[_Shared]) -> list[_Shared]:
            return [_Shared(box.target, box.source) for box in boxes]

        back = copy.copy(self)
        back.source, back.target = self.target, self.source
        back._own = turned(self._own)
        back._gives, back._takes = list(map(turned, self._takes)), list(map(turned, self._gives))
        back._plan(adds=True)
        return back

    def _plan(self, *, adds: bool) -> None:
        """Say whether values are added up; then, and where none come, the target begins with zeros."""
        self._adds, rank = adds, self._ranks.rank
        clears = adds or not _takes(self.target, rank)
        self._cleared = [box.local for box in self.target.held(rank)] if clears else []
        # What is added up arrives one rank after another in here; what is not, in its place.
        counts = [sum(map(_values, takes)) if adds else 0 for takes in self._takes]
        self._ends = [0, *itertools.accumulate(counts)]
        self._terms = np.empty(self._ends[-1], self.dtype)
        if self._ranks.size > 1:
            self._describe()

    def _describe(self) -> None:
        """Describe to MPI what goes to and comes from each rank."""
        rank, comm = self._ranks.rank, self._ranks.comm
        given_shape, taken_shape = self.source.local_shape(rank), self.target.local_shape(rank)
        sends = [
            _described([box.source for box in boxes], given_shape, self.dtype)
            for boxes in self._gives
        ]
        parts = zip(self._takes, self._ends[:-1], self._ends[1:], strict=True)
        receives = [
            _described([(slice(first, last),)] if boxes else [], self._terms.shape, self.dtype)
            if self._adds
            else _described([box.target for box in boxes], taken_shape, self.dtype)
            for boxes, first, last in parts
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
        for part in self._cleared:
            out[part] = 0
        if self._ranks.size > 1:
            array = np.ascontiguousarray(array)
            into = self._terms if self._adds else out
            nowhere, (sent, received) = [0] * self._ranks.size, self._types
            self._move(
                [_bytes(array), self._sends, nowhere, sent],
                [_bytes(into), self._receives, nowhere, received],
            )
        for peer, takes in enumerate(self._takes):
            if peer == rank:
                for box in self._own:
                    self._merge(out[box.target], array[box.source])
            elif self._adds:
                first = self._ends[peer]
                for box in takes:
                    values = out[box.target]
                    values += self._terms[first : first + values.size].reshape(values.shape)
                    first += values.size
        return out

    def _merge(self, part: np.ndarray, values: np.ndarray) -> None:
        if self._adds:
            part += values
        else:
            part[...] = values


def norm(array: np.ndarray, layout: Layout, ranks: Ranks) -> float:
    """Return the Euclidean norm of the whole array; copies in halos do not count.

    `ValueError` if a value would count twice or not at all, with the placements that are the reason.
    """
    if not layout.is_partition:
        raise ValueError(
            f"a sum over {layout} would not count every value once: redistribute to a layout "
            "without Replicate and PartialSum first"
        )
    owned = (array[box.local] for box in layout.owned(ranks.rank))
    squares = sum(np.vdot(part, part).real for part in owned)
    return float(np.sqrt(ranks.sum(np.array(squares, float))))


class _Shared(NamedTuple):
    """A box that two ranks share: where it lies in the giver's array, and in the taker's."""

    source: Slices
    target: Slices


def _boxes(source: Layout, giver: int, target: Layout, taker: int) -> list[_Shared]:
    """List what one rank gives to another, in an order that both know."""
    if not (_gives(source, giver, taker) and _takes(target, taker)):
        return []
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


def _gives(source: Layout, giver: int, taker: int) -> bool:
    """Whether a rank answers another: of equal copies, the one in the taker's own row does."""
    here, there = source.coordinates(giver), source.coordinates(taker)
    return all(here[axis] == there[axis] for axis in source.spread(Merge.ANY))


def _takes(target: Layout, taker: int) -> bool:
    """Whether a rank gets values at all: of the terms of a sum, the first does."""
    return not any(target.coordinates(taker)[axis] for axis in target.spread(Merge.SUM))


def _values(box: _Shared) -> int:
    """Count the values in a box."""
    return math.prod(part.stop - part.start for part in box.source)


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
