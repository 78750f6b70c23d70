"""What the ranks find on their machines: processor cores, memory and GPUs."""

import contextlib
import ctypes
import functools
import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mosaicdd.parallel.ranks import Ranks

_PLENTY = 0.04  # of a machine's memory that a process may hold as it likes
# glibc's parameters: blocks from how many bytes on are the system's own, the most that can be asked for;
# and how many that are free may be kept.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 2**28), (-3, 2**25)


@dataclass(frozen=True)
class Place:
    """What one rank has.

    Parameters
    ----------
    host
        Its machine.
    cores
        Numbers of the processor cores that it may run on.
    free_memory
        Bytes of the machine that are not in use.
    gpus
        Identity and name of the GPUs that torch sees.
    """

    host: str
    cores: frozenset[int]
    free_memory: int
    gpus: tuple[tuple[str, str], ...] = ()

    @classmethod
    def here(cls) -> "Place":
        """Return the place of this rank."""
        return cls(socket.gethostname(), _cores(), _free_memory(), _gpus())


def give_back_memory() -> None:
    """Give what was freed back to the system, where its C library keeps it for later (glibc).

    Before what takes large blocks, which never fit into what is kept. Not where there is plenty of memory,
    as it takes time to get it again.
    """
    if peak_bytes() <= _PLENTY * _installed():
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def keep_freed_memory() -> None:
    """Keep what temporary arrays leave for the next ones, in this process from now on (glibc).

    Else the system gets it back, and clears each page of it again when it is next asked for: of the set-up of
    a medium that is a sixth of the time.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(*parameter)


def beside(ranks: Ranks) -> list[int]:
    """Return the ranks of this rank's own machine, itself among them; called by all ranks."""
    return ranks.machine().allgather(ranks.rank)


def device_of_rank(ranks: Ranks, name: str) -> torch.device:
    """Return the CPU, or the GPU that belongs to this rank's number on its own machine.

    Called by all ranks.

    Raises
    ------
    ValueError
        On all ranks, if a GPU is asked for and one of them sees none.
    """
    if name == "cpu":
        return torch.device("cpu")
    number = beside(ranks).index(ranks.rank)
    return ranks.agree(lambda: gpu(number))


def gpu(number: int) -> torch.device:
    """Return the GPU of the rank of this number on its machine; several ranks may share one.

    Raises
    ------
    ValueError
        If torch sees no GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError("device=cuda: torch sees no CUDA device here; use device=cpu")
    return torch.device("cuda", number % count)


def require_memory(ranks: Ranks, needed: int, instead: str = "fewer cells") -> None:
    """Check that the ranks of each machine fit its memory together; called by all ranks.

    Parameters
    ----------
    needed
        Bytes that one rank needs at least.
    instead
        What would need less.

    Raises
    ------
    ValueError
        On all ranks, if those of a machine do not fit it, with both sizes.
    """
    count, installed = len(beside(ranks)), _installed()

    def check() -> None:
        if count * needed > installed:
            raise ValueError(
                f"needs at least {count * needed / 2**30:.1f} GiB for {count} "
                f"rank{'s' * (count > 1)} on this machine, which has "
                f"{installed / 2**30:.1f} GiB; use more machines or {instead}"
            )

    ranks.agree(check)


def memory_share(ranks: Ranks, needed: int, device: torch.device) -> float:
    """Return the share of a machine's memory that its ranks need together, or of a GPU's, the largest of all.

    Parameters
    ----------
    needed
        Bytes that this rank needs.
    device
        Where it needs them.
    """
    return float(ranks.largest(needed / device_memory(device, len(beside(ranks)))))


def _installed() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_memory(ranks: Ranks) -> int:
    """Return the largest number of bytes that each rank has held until now, summed over all."""
    return int(ranks.sum(np.array([float(peak_bytes())]))[0])


def peak_bytes() -> int:
    """Return the largest number of bytes that this process has held until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cores() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _free_memory() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # counts what caches would give back, too
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gpus() -> tuple[tuple[str, str], ...]:
    if not torch.cuda.is_available():
        return ()
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return tuple((str(gpu.uuid), gpu.name) for gpu in gpus)


def device_memory(device: torch.device, ranks: int) -> int:
    """Return the bytes of a GPU, or a rank's part of the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return _installed() // ranks
