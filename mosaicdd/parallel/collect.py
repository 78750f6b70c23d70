"""Parts of arrays from all ranks to the root, which holds one of them at a time.

Ranks make their parts while they send them, and the root takes one of each in turn: nobody holds
more than the part at hand, and all work side by side.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import DTypeLike

from mosaicdd.parallel.ranks import Ranks

_TAG = 100
_AXES = 8  # of a part, at most
Part = tuple[np.ndarray, tuple[slice, ...]]
"""An array, and where it belongs: a slice per axis."""
Sink = Callable[[np.ndarray, tuple[slice, ...]], None]
"""``sink(array, place)``: takes a part."""


def collect(
    ranks: Ranks,
    parts: Iterable[Part],
    dtype: DTypeLike,
    sink: Sink,
) -> None:
    """Hand every rank's parts to the root; called by all ranks.

    What making or taking a part has raised on one rank is raised on all.

    Parameters
    ----------
    parts
        Of this rank; an iterator is asked for the next one when the last one has been handed over.
    dtype
        Of all parts of all ranks.
    sink
        ``sink(array, place)``, called on the root only, once per part; the array is overwritten by
        the next.
    """
    failures: list[Exception] = []  # raised when all is over: nobody may be missing before
    own = _until_failure(parts, failures)
    if not ranks.is_root:
        for array, place in own:
            header = np.zeros(1 + 2 * _AXES, np.int64)
            header[0] = len(place)
            header[1 : 1 + 2 * len(place)] = np.ravel([[p.start, p.stop] for p in place])
            ranks.comm.Send(header, dest=0, tag=_TAG)
            ranks.comm.Send(np.ascontiguousarray(array, dtype), dest=0, tag=_TAG)
        ranks.comm.Send(np.zeros(1 + 2 * _AXES, np.int64), dest=0, tag=_TAG)
        sources = []
    else:
        sources = [own, *(_received(ranks, rank, dtype) for rank in range(1, ranks.size))]
    while sources:
        for source in list(sources):
            part = next(source, None)
            if part is None:
                sources.remove(source)
            elif not failures:
                try:
                    sink(*part)
                except Exception as error:  # noqa: BLE001 - raised below
                    failures.append(error)
    ranks.agree(lambda: _raise_first(failures))


def _until_failure(parts: Iterable[Part], failures: list[Exception]) -> Iterator[Part]:
    """Yield parts; an error in making one is the end of them, and is kept."""
    try:
        yield from parts
    except Exception as error:  # noqa: BLE001 - raised by the caller
        failures.append(error)


def _raise_first(failures: list[Exception]) -> None:
    if failures:
        raise failures[0]


def _received(ranks: Ranks, rank: int, dtype: DTypeLike) -> Iterator[Part]:
    """Yield the parts that a rank sends, in one buffer."""
    header = np.empty(1 + 2 * _AXES, np.int64)
    buffer = np.empty(0, dtype)
    while True:
        ranks.comm.Recv(header, source=rank, tag=_TAG)
        if not header[0]:
            return
        ends = header[1 : 1 + 2 * int(header[0])].reshape(-1, 2)
        place = tuple(slice(int(a), int(b)) for a, b in ends)
        shape = [part.stop - part.start for part in place]
        size = int(np.prod(shape))
        if len(buffer) < size:
            buffer = np.empty(size, dtype)
        ranks.comm.Recv(buffer[:size], source=rank, tag=_TAG)
        yield buffer[:size].reshape(shape), place
