"""What the ranks find on their machines: processor cores, memory and GPUs.

Containers and batch systems limit the memory of groups of processes (Linux' cgroups, versions 1 and 2; Slurm), each
group within those above it. Processes that reach the limit are killed, whatever the machine has.
"""

import contextlib
import ctypes
import functools
import os
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.axes import times
from mosaicdd.parallel.ranks import Ranks

_PLENTY = 0.04  # of a machine's memory that a process may hold as it likes
# glibc's parameters: blocks from how many bytes on are the system's own, the most that can be asked for;
# and how many that are free may be kept.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 2**28), (-3, 2**25)
_OF_MALLOC = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


@dataclass(frozen=True)
class Place:
    """What one rank has."""

    host: str  # its machine
    cores: frozenset[int]  # numbers of the processor cores that it may run on
    free_memory: int  # bytes of the machine that are not in use, and that the system grants
    gpus: tuple[tuple[str, str], ...] = ()  # identity and name of the GPUs that torch sees

    @classmethod
    def here(cls) -> "Place":
        """Return the place of this rank."""
        return cls(socket.gethostname(), _cores(), _free_memory(), _gpus())


def give_back_memory(*, always: bool = False) -> None:
    """Give what was freed back to the system, where its C library keeps it for later (glibc).

    Before what takes large blocks, which never fit into what is kept. Not where there is plenty of
    memory, as it takes time to get it again, unless ``always``: where little of it is used again.
    """
    if not always and peak_bytes() <= _PLENTY * _usable():
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def prepare_memory() -> None:
    """Prepare this process for large arrays; where work begins, not where modules are imported.

    What temporary arrays leave is kept for the next ones (glibc). Else the system gets it back, and
    clears each page of it again when it is next asked for: of the set-up of a medium that is a
    sixth of the time. And tensors are asked for in pages of 2 MB (Linux), as numpy does for arrays:
    of a solve of thousands of nodes a side, a fifth of the time goes into pages of 4 kB. What the
    user's environment says of either holds.
    """
    if not any(name in os.environ for name in _OF_MALLOC):
        with contextlib.suppress(AttributeError, OSError, TypeError):
            library = ctypes.CDLL(None)
            for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
                library.mallopt(*parameter)
    if _HUGE_PAGES not in os.environ:
        os.environ[_HUGE_PAGES] = "1"
        torch.empty(1)  # at its first allocation in a process torch reads this, and never again
        del os.environ[_HUGE_PAGES]


@functools.cache
def one_thread_after_fork() -> None:
    """Let processes that are forked off this one compute with one thread each, from now on.

    A fork has none of the threads that torch has started, and waits for them forever when it is to share
    work with them.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def beside(ranks: Ranks) -> list[int]:
    """Return the ranks of this rank's own machine, itself among them; called by all ranks."""
    return ranks.machine().allgather(ranks.rank)


def device_of_rank(ranks: Ranks, name: str) -> torch.device:
    """Return the CPU, or the GPU of this rank's number on its machine, for all ranks; errors as `gpu`."""
    if name == "cpu":
        return torch.device("cpu")
    number = beside(ranks).index(ranks.rank)
    return ranks.run_on_all(lambda: gpu(number))


def gpu(number: int) -> torch.device:
    """Return the GPU of the rank of this number on its machine, perhaps shared; `ValueError` if torch sees none."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError("device=cuda: torch sees no CUDA device here; use device=cpu")
    return torch.device("cuda", number % count)


def require_memory(
    ranks: Ranks, needed: int, instead: str = "fewer cells", cells: Sequence[int] | None = None
) -> None:
    """Raise `ValueError` on all ranks if those of a machine do not fit its memory together, each with so many bytes.

    ``instead`` is what would need less; ``cells``, per axis, are those that need so much, where fewer would help.
    """
    count, usable = len(beside(ranks)), _usable()

    def check() -> None:
        if count * needed > usable:
            less = ""
            if cells is not None:
                share = (usable / (count * needed)) ** (1 / len(cells))
                less = f", of this shape {times([max(1, int(share * n)) for n in cells])}"
            raise ValueError(
                f"needs at least {count * needed / 2**30:.1f} GiB for {count} "
                f"rank{'s' * (count > 1)} on this machine, which has "
                f"{usable / 2**30:.1f} GiB for them; use more machines or {instead}{less}"
            )

    ranks.run_on_all(check)


def fits_beside(ranks: Ranks, needed: int) -> bool:
    """Say whether the ranks of every machine find so many bytes each that are free now; the same on all ranks."""
    return not ranks.any(len(beside(ranks)) * needed > _free_memory())


def _usable() -> int:
    """Return the bytes that the processes here may hold together: the machine's, or less by a limit."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(installed, _most_granted())


@functools.cache
def _most_granted() -> int:
    """Return the least limit on the memory of the processes here; beyond all where nobody has set one."""
    return min((limit.total for limit in memory_limits()), default=sys.maxsize)


def peak_memory(ranks: Ranks) -> int:
    """Return the largest number of bytes that each rank has held until now, summed over all."""
    return int(ranks.sum(np.array([float(peak_bytes())]))[0])


def peak_bytes() -> int:
    """Return the largest number of bytes that this process has held until now."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _cores() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _free_memory() -> int:
    meminfo = Path("/proc/meminfo")
    free = _usable()  # where nobody says what is in use, as on macOS
    if meminfo.exists():  # counts what caches would give back, too
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = min(free, int(lines["MemAvailable"].split()[0]) * 1024)
    return min([free, *(limit.free for limit in memory_limits())])


def _gpus() -> tuple[tuple[str, str], ...]:
    if not torch.cuda.is_available():
        return ()
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return tuple((str(gpu.uuid), gpu.name) for gpu in gpus)


def device_memory(device: torch.device, ranks: int) -> int:
    """Return the bytes of a GPU, or a rank's part of the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return _usable() // ranks


class _Names(NamedTuple):
    """What the files of a group are called."""

    limit: str
    used: str
    cached: str  # of the lines of memory.stat, what the group would give back


_NAMES = (
    _Names("memory.max", "memory.current", "inactive_file"),
    _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


class Limit(NamedTuple):
    """Of a group of processes, in bytes."""

    total: int  # the most that they may hold together
    free: int  # what they do not hold of it, but for what the system would take back


def memory_limits(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> list[Limit]:
    """Return all limits that hold for this process; none where nobody has set one.

    ``proc`` and ``sys`` lie below the root; Slurm says in the environment what a job was given of a
    node, enforced or not.
    """
    limits = [limit for folder in _groups(root) for limit in _limits(folder)]
    asked = _megabytes(environment, "SLURM_MEM_PER_NODE")
    cores = environment.get("SLURM_CPUS_ON_NODE", "")
    if not asked and cores.isdecimal():
        asked = int(cores) * _megabytes(environment, "SLURM_MEM_PER_CPU")
    return limits + [Limit(asked, asked)] * (asked > 0)  # 0 asks for all of a node


def _megabytes(environment: Mapping[str, str], name: str) -> int:
    """Return as bytes what Slurm says in MiB, 0 where it says nothing."""
    text = environment.get(name, "")
    return int(text) * 2**20 if text.isdecimal() else 0


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups and of those above them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # another system
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        folder = mount / path.lstrip("/")
        # In a container the path may be that of the machine, of which only the end is there.
        yield from (place for place in (folder, *folder.parents) if place.is_relative_to(mount))


def _limits(folder: Path) -> Iterator[Limit]:
    """Yield the limit of a group, if it has one."""
    for names in _NAMES:
        try:
            total = int((folder / names.limit).read_text())
            used = int((folder / names.used).read_text())
            lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used -= int(dict(lines).get(names.cached, 0))
        except (OSError, ValueError):  # "max" is none
            continue
        yield Limit(total, max(total - used, 0))
