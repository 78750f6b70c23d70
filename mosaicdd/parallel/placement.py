"""Where the ranks are: machines, cores, memory and GPUs."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import torch


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


def places_of_ranks(comm) -> list[Place] | None:
    """Return the places of all ranks, on rank 0, and None on the others.

    Parameters
    ----------
    comm
        Communicator over the ranks, or None for this process alone.
    """
    place = Place(socket.gethostname(), _cores(), _free_memory(), _gpus())
    return [place] if comm is None else comm.gather(place)


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
    found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return tuple((str(gpu.uuid), gpu.name) for gpu in found)
