"""Tries out whether MPI takes the buffers of a device, in processes of their own.

They run ``python -m mosaicdd.parallel.messages DEVICE``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mosaicdd.parallel.launcher import communicator
from mosaicdd.parallel.ranks import Ranks

if TYPE_CHECKING:
    from mpi4py import MPI

_LENGTHS = (1, 1_000, 1_000_000)  # numbers; MPI sends short and long messages in different ways


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

    comm = communicator()
    if comm is None:
        sys.exit(1)  # without an MPI library nothing arrives
    with Ranks.of(comm) as ranks:
        device = device_of_rank(ranks, sys.argv[1])
    sys.exit(0 if buffers_arrive(comm, device) else 1)


if __name__ == "__main__":
    main()
