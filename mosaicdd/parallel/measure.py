"""Measures messages: between two ranks, and the all-gather over all."""

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

_SMALL, _LARGE = 8, 2**20  # bytes
_SECONDS = 0.1  # of each measurement
_FEWEST, _MOST = 100, 5000  # calls
_TAG = 200


def alone(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Return a communicator of this rank only."""
    return comm.Split(comm.rank)


def slowest(comm: MPI.Intracomm, seconds: float) -> float:
    """Return the largest of all ranks' times, on all."""
    return comm.allreduce(seconds, MPI.MAX)


def measure_links(
    comm: MPI.Intracomm,
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Measure messages between rank 0 and one on its node, and one on another.

    Returns
    -------
    tuple, tuple
        Latency in seconds and bandwidth in bytes per second; None where there is no such rank.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = node.bcast(comm.rank)
    node.Free()
    nodes = comm.allgather(first)
    partners = (
        next((rank for rank in range(1, comm.size) if nodes[rank] == nodes[0]), None),
        next((rank for rank in range(1, comm.size) if nodes[rank] != nodes[0]), None),
    )
    return tuple(None if rank is None else _link(comm, rank) for rank in partners)


def measure_gather(comm: MPI.Intracomm) -> tuple[float, float]:
    """Measure the all-gather.

    Returns
    -------
    float, float
        Seconds of a small one, and bytes per second that arrive at a rank in a large one.
    """

    def gather(size: int) -> Callable[[], None]:
        mine = np.zeros(max(1, size // 8 // comm.size))
        every = np.empty(len(mine) * comm.size)
        return lambda: comm.Allgather(mine, every)

    small, large = (_seconds(comm, gather(size)) for size in (_SMALL * comm.size, _LARGE))
    return small, _LARGE / max(large - small, 1e-3 * large)


def _link(comm: MPI.Intracomm, partner: int) -> tuple[float, float]:
    """Measure a message between rank 0 and a partner: half a round trip."""

    def round_trip(size: int) -> Callable[[], None]:
        buffer = np.zeros(size // 8)
        if comm.rank not in (0, partner):
            return lambda: None
        if comm.rank == 0:

            def call() -> None:
                comm.Send(buffer, partner, _TAG)
                comm.Recv(buffer, partner, _TAG)
        else:

            def call() -> None:
                comm.Recv(buffer, 0, _TAG)
                comm.Send(buffer, 0, _TAG)

        return call

    small, large = (_seconds(comm, round_trip(size)) / 2 for size in (_SMALL, _LARGE))
    return small, _LARGE / max(large - small, 1e-3 * large)


def _seconds(comm: MPI.Intracomm, call: Callable[[], None]) -> float:
    """Return rank 0's seconds of a call that all ranks make: the fastest of many."""
    call()
    comm.Barrier()
    start = time.perf_counter()
    call()
    once = comm.bcast(time.perf_counter() - start)
    best = np.inf
    for _ in range(min(_MOST, max(_FEWEST, int(_SECONDS / once)))):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return comm.bcast(best)
