"""Whether this MPI takes device pointers, tried in processes of their own.

``python -m mosaicdd.parallel.buffer_probe DEVICE`` is what they run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from mosaicdd.parallel.launcher import communicator

_SECONDS = 60  # to import, and to end or hang
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
            timeout=_SECONDS,
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
