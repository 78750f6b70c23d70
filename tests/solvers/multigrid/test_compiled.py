"""Compiled loops: vectors in their code, files of it, and what there is without them."""

import logging
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mosaicdd.solvers.multigrid import vector_operations as compiled

pytest.importorskip("numba")
from numba.core import caching

from mosaicdd.solvers.multigrid import kernels
from mosaicdd.solvers.multigrid import kernels as compilation

TABLE, SHORT, LONG = np.zeros((0, 8), np.int64), np.zeros(0, np.float32), np.zeros(0)


@pytest.fixture
def nowhere(monkeypatch):
    """Let no folder be one for compiled code."""
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sums", (TABLE, SHORT)),
        ("sums", (TABLE, LONG)),
        ("images", (TABLE, SHORT)),
        ("residuals", (TABLE, 1.0, 1.0, SHORT, LONG)),
    ],
)
def test_blocks_are_vectors_in_registers(name, arguments, nowhere):
    """What keeps LLVM from making vectors leaves the same numbers, which take several times as long."""
    loop = kernels._compiled(getattr(kernels, name).py_func)
    loop(*arguments)
    (code,) = loop.inspect_asm().values()
    of = r"\bv?(?:fn?m(?:add|sub)\w*|mul|add|sub){}\b"
    several, single = (len(re.findall(of.format(kind), code)) for kind in ("p[sd]", "s[sd]"))
    assert several >= 4 * single
    # Of products with a block as it is in registers, four and more; of a loop over it there would be one or two.
    assert several >= 16


@pytest.mark.usefixtures("nowhere")
def test_where_no_folder_can_be_written_loops_are_compiled_all_the_same():
    loop = kernels._compiled(kernels.dot.py_func)
    assert loop(np.arange(3.0), np.ones(3)) == 3
    assert loop.stats.cache_path is None


def test_a_full_disk_is_no_fault(monkeypatch):
    def full(self, *data):
        raise OSError("no space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    loop = kernels._compiled(kernels.dot.py_func)
    loop._cache.load_overload = lambda *types: None
    assert loop(np.arange(3.0), np.ones(3)) == 3


def test_compiled_code_is_kept_in_files():
    kernels.dot(LONG, LONG)
    assert list(Path(kernels.dot.stats.cache_path).glob("kernels.dot-*.nbc"))


def test_long_compilation_is_told_in_one_line(monkeypatch, caplog):
    monkeypatch.setattr(time, "monotonic", iter(range(100)).__next__)
    notice = compilation.Notice()

    def compiling(function):
        return SimpleNamespace(data={"dispatcher": function})

    for function in (SimpleNamespace(py_func=time.sleep), *[kernels.dot] * 4):
        with caplog.at_level(logging.WARNING):
            notice.on_start(compiling(function))
            notice.on_start(compiling(kernels.add))
            notice.on_end(compiling(kernels.add))
            notice.on_end(compiling(function))
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "compiling loops for this processor"
    ]


def test_without_numba_nothing_is_compiled(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled.kernels.__wrapped__() is None


def test_numba_is_imported_where_it_is_needed():
    code = "import sys, mosaicdd; print([n for n in ('numba', 'llvmlite') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
