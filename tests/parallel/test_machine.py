"""What processes do with the memory of their machine."""

import platform
import subprocess
import sys

import pytest

_TEMPORARY = """
import ctypes, resource, sys
from mosaicdd.parallel.machine import keep_freed_memory

library, size = ctypes.CDLL(None), 24 * 2**20
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [library.malloc(size) for _ in range(4)]
    for block in blocks:
        library.memset(block, 1, size)
    for block in blocks:
        library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


keep_freed_memory()
new_pages()
print(new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of another C library")
def test_memory_of_temporaries_is_kept():
    """Where the system had it back in between, there would be 24 000 new pages."""
    done = subprocess.run(
        [sys.executable, "-c", _TEMPORARY], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1000
