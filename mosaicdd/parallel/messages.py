"""Tries out messages: how fast they are, and whether MPI takes the buffers of a device.

That is tried in processes of their own, which run ``python -m mosaicdd.parallel.messages DEVICE``.
"""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mosaicdd.parallel.launcher import communicator
from mosaicdd.parallel.machine import beside
from mosaicdd.parallel.ranks import Ranks

if TYPE_CHECKING:
    from mpi4py import MPI

_SMALL, _LARGE = 8, 2**20  # bytes
_SECONDS = 0.1  # of each measurement
_FEWEST, _MOST = 100, 5000  # calls
_TAG = 200
_LENGTHS = (1, 1_000, 1_000_000)  # numbers; MPI sends short and long messages in different ways


def measure_links(
    ranks: Ranks,
) -> tuple[tuple[float, float] | None, ...]:
    """Measure messages between rank 0 and one on its node, and one on another, if there is one.

    Return of each the latency in seconds and the bandwidth in bytes per second.
    """
    within = ranks.bcast(beside(ranks))
    without = [rank for rank in range(ranks.size) if rank not in within]
    partners = (next((rank for rank in within if rank), None), next(iter(without), None))
    return tuple(None if rank is None else _link(ranks, rank) for rank in partners)


def measure_gather(ranks: Ranks) -> tuple[float, float]:
    """Measure the all-gather: a small one's seconds per doubling of the ranks, a large one's bytes per second."""

    def gather(size: int) -> Callable[[], None]:
        mine = np.zeros(max(1, size // 8 // ranks.size))
        every = np.empty(len(mine) * ranks.size)
        return lambda: ranks.comm.Allgather(mine, every)

    small, large = (_seconds(ranks, gather(size)) for size in (_SMALL * ranks.size, _LARGE))
    return small / math.ceil(math.log2(ranks.size)), _LARGE / max(large - small, 1e-3 * large)


def buffers_arrive(comm: "MPI.Intracomm", device: torch.device) -> bool:
    """Send a device's buffers round the ranks, and say whether this rank got what was sent to it.

    A single rank sends to itself. An MPI library that cannot takes a device pointer for one of the
    host's and kills the process: only processes whose death does no harm call this.
    """
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    arrived = True
    for length in _LENGTHS:
        sent = torch.full((length,), float(comm.rank + 1), dtype=torch.float64, device=device)
        received = torch.zeros_like(sent)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        comm.Sendrecv(sent, dest=after, recvbuf=received, source=before)
        arrived &= bool((received == before + 1).all())
    return arrived


def _link(ranks: Ranks, partner: int) -> tuple[float, float]:
    """Measure a message between rank 0 and a partner: half a round trip."""

    def round_trip(size: int) -> Callable[[], None]:
        buffer = np.zeros(size // 8)
        if ranks.rank not in (0, partner):
            return lambda: None
        if ranks.is_root:

            def call() -> None:
                ranks.comm.Send(buffer, partner, _TAG)
                ranks.comm.Recv(buffer, partner, _TAG)
        else:

            def call() -> None:
                ranks.comm.Recv(buffer, 0, _TAG)
                ranks.comm.Send(buffer, 0, _TAG)

        return call

    small, large = (_seconds(ranks, round_trip(size)) / 2 for size in (_SMALL, _LARGE))
    return small, _LARGE / max(large - small, 1e-3 * large)


def _seconds(ranks: Ranks, call: Callable[[], None]) -> float:
    """Return rank 0's seconds of a call that all ranks make: the fastest of many."""
    call()
    ranks.barrier()
    start = time.perf_counter()
    call()
    once = ranks.bcast(time.perf_counter() - start)
    best = np.inf
    for _ in range(min(_MOST, max(_FEWEST, int(_SECONDS / once)))):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return ranks.bcast(best)


_PATIENCE = 60  # seconds to import, and to end or hang
# Set by launchers for their own ranks: a new MPI job must not take itself for part of an old one.
_OF_LAUNCHERS = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "MPI_", "SLURM_")


def probe_device_buffers() -> str:
    """Return ``"works"``, ``"fails"`` or ``"no GPU"``."""
    return probe("cuda") if torch.cuda.is_available() else "no GPU"


def probe(device: str) -> str:
    """Return whether two ranks can exchange buffers on a device: ``"works"`` or ``"fails"``.

    Without an ``mpiexec`` it is one rank, which sends to itself.
    """
    command = [sys.executable, "-m", __spec__.name, device]
    beside = Path(sys.executable).parent
    mpiexec = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    return verdict(command if mpiexec is None else [mpiexec, "-n", "2", *command])


def verdict(command: list[str]) -> str:
    """Return how a command ended that succeeds where device buffers work."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)
    }
    try:
        ended = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "fails"
    return "fails" if ended.returncode else "works"


def main() -> None:
    """Exchange buffers on the device that is named; the exit code says whether they arrived."""
    from mosaicdd.parallel.machine import device_of_rank
    from mosaicdd.parallel.messages import buffers_arrive
    from mosaicdd.parallel.ranks import Ranks

    comm = communicator()
    if comm is None:
        sys.exit(1)  # without an MPI library nothing arrives
    with Ranks.of(comm) as ranks:
        device = device_of_rank(ranks, sys.argv[1])
    sys.exit(0 if buffers_arrive(comm, device) else 1)


if __name__ == "__main__":
    main()
