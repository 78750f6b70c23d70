"""Blocks to and from the root: one at a time, so that no buffer holds more than one of them."""

from collections.abc import Callable

import numpy as np

from mosaicdd.parallel.process_grid import ProcessGrid

_TAG = 100


def collect(grid: ProcessGrid, array: np.ndarray, place, sink: Callable | None = None) -> None:
    """Hand every rank's array to the root, in the order of the ranks.

    Parameters
    ----------
    array
        This rank's contiguous array.
    place
        Where it belongs, passed on to the sink.
    sink
        ``sink(array, place)``, called on the root only, once per rank.
    """
    if not grid.is_root:
        grid.comm.send((array.shape, array.dtype.str, place), dest=0, tag=_TAG)
        grid.comm.Send(np.ascontiguousarray(array), dest=0, tag=_TAG)
        return
    sink(array, place)
    for rank in range(1, grid.size):
        shape, dtype, where = grid.comm.recv(source=rank, tag=_TAG)
        received = np.empty(shape, dtype)
        grid.comm.Recv(received, source=rank, tag=_TAG)
        sink(received, where)


def distribute(grid: ProcessGrid, source: Callable[[int], np.ndarray] | None) -> np.ndarray:
    """Hand every rank its array from the root.

    Parameters
    ----------
    source
        ``source(rank)`` on the root, not called elsewhere.
    """
    if not grid.is_root:
        shape, dtype = grid.comm.recv(source=0, tag=_TAG)
        array = np.empty(shape, dtype)
        grid.comm.Recv(array, source=0, tag=_TAG)
        return array
    for rank in range(1, grid.size):
        array = np.ascontiguousarray(source(rank))
        grid.comm.send((array.shape, array.dtype.str), dest=rank, tag=_TAG)
        grid.comm.Send(array, dest=rank, tag=_TAG)
    return np.ascontiguousarray(source(0))
