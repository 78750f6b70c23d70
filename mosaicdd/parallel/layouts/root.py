"""Arrays to and from rank 0 in portions of rows, for one writer or reader of files.

Rank 0 never holds more than its own part, one portion and one message; a portion is contiguous in
a file.
"""

import functools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import DTypeLike

from mosaicdd.parallel.layouts.layout import Layout, LayoutRows
from mosaicdd.parallel.layouts.placements import On
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks


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
