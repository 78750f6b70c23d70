"""What processes do with the memory of their machine."""

import platform
import subprocess
import sys

import pytest

_TEMPORARY = """
import ctypes, resource, sys
from mosaicdd.parallel.machine import prepare_memory

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


prepare_memory()
new_pages()
print(new_pages())
"""


_IMPORTS = """
import os, signal, sys

def state():
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    mask = os.umask(0o22)
    os.umask(mask)
    return dict(os.environ), list(sys.path), handlers, mask, os.getcwd()

os.environ.pop("THP_MEM_ALLOC_ENABLE", None)
import numpy, torch
before = state(), torch.get_num_threads(), torch.get_default_dtype(), torch.initial_seed()
import mosaicdd
for name in mosaicdd.__all__:
    getattr(mosaicdd, name)
assert (state(), torch.get_num_threads(), torch.get_default_dtype(), torch.initial_seed()) == before
try:
    mosaicdd.Problem((64, 64), "own_equations:NONE")
except ValueError:
    mosaicdd.solve(mosaicdd.Problem((64, 64), "poisson", {"f": 1.0}, mosaicdd.Dirichlet(0.0)))
assert state() == before[0]
"""


def test_neither_an_import_nor_a_solve_changes_what_belongs_to_the_program():
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of another C library")
def test_memory_of_temporaries_is_kept():
    """Where the system had it back in between, there would be 24 000 new pages."""
    done = subprocess.run(
        [sys.executable, "-c", _TEMPORARY], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1000
