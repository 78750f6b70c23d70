"""How much memory the system grants this process and those beside it: a control group's limit, or Slurm's.

Containers and batch systems limit groups of processes (Linux' cgroups, versions 1 and 2), each group within
those above it. Processes that reach the limit are killed, whatever the machine has.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


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
    """Of a group of processes, in bytes.

    Parameters
    ----------
    total
        The most that they may hold together.
    free
        What they do not hold of it, but for what the system would take back.
    """

    total: int
    free: int


def memory_limits(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> list[Limit]:
    """Return all limits that hold for this process; none where nobody has set one.

    Parameters
    ----------
    root
        Where ``proc`` and ``sys`` lie.
    environment
        Of the process: Slurm says there what a job was given of a node, whether it is enforced or not.
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
