"""Memory that is there before something is measured.

A virtual machine that lends its free memory to others gets it back page by page, for up to 2.5 s per GB, and
gives it away again within seconds. The pages of a pool stay: with ``sysctl vm.nr_hugepages=3000`` there
are 6 GB of them.
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_POOLED = "glibc.malloc.hugetlb=2"  # all that is allocated comes from the pool


def pooled(size: float) -> dict[str, str] | None:
    """Return the environment in which a process has its memory from the pool; None where that has fewer bytes."""
    pages, kilobytes = _pool()
    if pages * kilobytes * 1024 < size:
        return None
    return os.environ | {"GLIBC_TUNABLES": _POOLED}


def page() -> str:
    """Return the size of the pages that this process has its memory in, as ``4 kB``."""
    small = resource.getpagesize() // 1024
    kilobytes = _pool()[1] if os.environ.get("GLIBC_TUNABLES") == _POOLED else small
    return f"{kilobytes // 1024} MB" if kilobytes >= 1024 else f"{kilobytes} kB"


def ready(size: float) -> None:
    """Touch so many bytes and give them back, by a process of its own, to the pool where they are from there."""
    subprocess.run([sys.executable, "-c", f"b'1' * {int(size)}"], check=True)


def resident_bytes() -> int:
    """Return the memory that this process takes now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _pool() -> tuple[int, int]:
    """Return how many pages of the pool are free, and the size of one in kB."""
    meminfo = _MEMINFO.read_text() if _MEMINFO.exists() else ""
    pages = dict(re.findall(r"^(HugePages_Free|Hugepagesize):\s*(\d+)", meminfo, re.MULTILINE))
    return int(pages.get("HugePages_Free", 0)), int(pages.get("Hugepagesize", 0))
