"""Memory that is there before something is measured.

A virtual machine that lends its free memory to others gets it back page by page, for up to 2.5 s per GB, and
gives it away again within seconds. The pages of a pool stay: with ``sysctl vm.nr_hugepages=3000`` there
are 6 GB of them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_POOLED = "glibc.malloc.hugetlb=2"  # all that is allocated comes from the pool


def pooled(size: float) -> dict[str, str] | None:
    """Return the environment in which a process has its memory from the pool; None where that has fewer bytes."""
    meminfo = _MEMINFO.read_text() if _MEMINFO.exists() else ""
    found = dict(re.findall(r"^(HugePages_Free|Hugepagesize):\s*(\d+)", meminfo, re.MULTILINE))
    if len(found) < 2 or int(found["HugePages_Free"]) * int(found["Hugepagesize"]) * 1024 < size:
        return None
    return os.environ | {"GLIBC_TUNABLES": _POOLED}


def ready(size: float) -> None:
    """Touch so many bytes and give them back, by a process of its own, to the pool where they are from there."""
    subprocess.run([sys.executable, "-c", f"b'1' * {int(size)}"], check=True)
