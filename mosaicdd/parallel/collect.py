"""Two collectives: parts of arrays to the root, and values at nodes to every rank.

Ranks make their parts while they send them, and the root takes one of each in turn: nobody holds
more than the part at hand, and all work side by side.

`NodeGather` is the one collective of an iteration by subdomains. Every rank solves the whole coarse
problem, so each needs all of its right-hand side. The few numbers that are added
up over the ranks in every iteration travel with it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
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
    ranks.run_on_all(lambda: _raise_first(failures))


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


class NodeGather:
    """Put together, on every rank, the values that the ranks have at numbered nodes; planned once.

    Parameters
    ----------
    places
        Of each rank, the numbers of its nodes, ``(touched,)``; values of several ranks for one node
        are added. A single rank has all nodes, in their order.
    size
        Number of nodes.
    problems
        Problems ``n`` that are solved at once.
    sums
        Numbers, at most, to add up over the ranks.
    device
        Of the values of a single rank, which need not leave it; those of several are on the host.
    """

    def __init__(
        self,
        ranks: Ranks,
        places: Sequence[np.ndarray],
        size: int,
        *,
        problems: int = 1,
        sums: int = 0,
        device: torch.device | None = None,
    ):
        self._ranks = ranks
        self._device = device or torch.device("cpu")
        if ranks.size == 1:
            return
        self._nodes = torch.empty(problems, size, dtype=torch.float64)
        lengths = [problems * len(numbers) + sums for numbers in places]
        starts = np.cumsum([0, *lengths[:-1]])
        own = lengths[ranks.rank] - sums
        self._mine = torch.zeros(own + sums, dtype=torch.float64)
        self._my_nodes = self._mine[:own].view(problems, -1)
        self._my_sums = self._mine[own:].numpy()
        self._everything = torch.empty(sum(lengths), dtype=torch.float64)
        self._request = (self._mine.numpy(), (self._everything.numpy(), lengths))
        problem = size * np.arange(problems)[:, None]
        targets = [(problem + numbers).ravel() for numbers in places]
        sources = [s + np.arange(len(nodes)) for s, nodes in zip(starts, targets, strict=True)]
        target, source = (
            torch.from_numpy(np.concatenate(parts).astype(np.int32)) for parts in (targets, sources)
        )
        # Where every node is of one rank they are taken in their order, else added up.
        each_once = len(target) == problems * size and bool((target.bincount() == 1).all())
        self._sources = (
            source.new_empty(len(target)).index_copy_(0, target.long(), source)
            if each_once
            else source
        )
        self._targets = None if each_once else target
        ends = starts + lengths
        self._sums = np.stack([np.arange(end - sums, end) for end in ends])  # (ranks, sums)

    def __call__(self, mine: torch.Tensor, sums: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        """Return all nodes, ``(n, size)``, overwritten by the next call, and the sums over the ranks.

        Parameters
        ----------
        mine
            This rank's values, ``(n, touched)``.
        sums
            Numbers to add up; added in the order of the ranks, so they are the same on all.
        """
        if self._ranks.size == 1:
            return mine.to(self._device, torch.float64, copy=True), sums
        count = len(sums)
        self._my_nodes.copy_(mine)
        self._my_sums[:count] = sums
        self._ranks.comm.Allgatherv(*self._request)
        nodes = self._nodes.view(-1)
        if self._targets is None:
            torch.index_select(self._everything, 0, self._sources, out=nodes)
        else:
            arrived = self._everything.index_select(0, self._sources)
            nodes.zero_().index_add_(0, self._targets, arrived)
        return self._nodes, self._everything.numpy()[self._sums[:, :count]].sum(axis=0)
