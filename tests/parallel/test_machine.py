"""What processes do with the memory of their machine, and what limits it: control groups, Slurm."""

import platform
import subprocess
import sys

import pytest

import mosaicdd as m
from mosaicdd.parallel import machine

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


GIB = 2**30


def group(folder, names, limit, used, cached):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names[:2], (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\nfile 7\n")


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@pytest.fixture
def system(tmp_path):
    """Return a root of files of the system, and a function that says which groups a process is in."""
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path, (tmp_path / "proc/self/cgroup").write_text


def test_the_groups_of_version_2_count_with_those_above_them(system):
    root, belongs = system
    belongs("0::/slurm/job_7/step_0/task_3\n")
    mount = root / "sys/fs/cgroup"
    group(mount / "slurm/job_7/step_0/task_3", V2, "max", 3 * GIB, GIB)
    group(mount / "slurm/job_7", V2, 8 * GIB, 3 * GIB, GIB)
    group(mount / "slurm", V2, 16 * GIB, 20 * GIB, GIB)
    assert set(machine.memory_limits(root, {})) == {
        machine.Limit(8 * GIB, 6 * GIB),
        machine.Limit(16 * GIB, 0),
    }


def test_of_version_1_the_memory_controller_counts(system):
    root, belongs = system
    belongs("9:name=systemd:/\n4:memory:/docker/786c\n3:cpuset:/docker/786c\n0::/\n")
    group(root / "sys/fs/cgroup/memory/docker/786c", V1, 2 * GIB, GIB, GIB // 2)
    group(root / "sys/fs/cgroup/cpuset/docker/786c", V1, 1, 1, 1)
    assert machine.memory_limits(root, {}) == [machine.Limit(2 * GIB, 3 * GIB // 2)]


@pytest.mark.parametrize(("mount", "names"), [("", V2), ("memory", V1)])
def test_a_container_sees_its_own_group_alone(system, mount, names):
    root, belongs = system
    belongs(f"4:{mount}:/docker/of/the/machine\n")
    group(root / "sys/fs/cgroup" / mount, names, 2 * GIB, GIB, 0)
    assert machine.memory_limits(root, {}) == [machine.Limit(2 * GIB, GIB)]


@pytest.mark.parametrize(
    ("environment", "gib"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, 4),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "8"}, 16),
    ],
)
def test_what_a_job_of_slurm_was_given_counts_without_groups(tmp_path, environment, gib):
    assert machine.memory_limits(tmp_path, environment) == [machine.Limit(gib * GIB, gib * GIB)]


@pytest.mark.parametrize(
    "environment", [{}, {"SLURM_MEM_PER_NODE": "0"}, {"SLURM_MEM_PER_CPU": "2048"}]
)
def test_nobody_s_limit_is_none(tmp_path, environment):
    assert machine.memory_limits(tmp_path, environment) == []


def test_a_solve_beyond_the_limit_is_refused_and_what_is_free_is_within_it(monkeypatch):
    monkeypatch.setattr(machine, "memory_limits", lambda: [machine.Limit(2**20, 2**19)])
    machine._most_granted.cache_clear()
    try:
        assert machine.Place.here().free_memory == 2**19
        with pytest.raises(ValueError, match=r"0.0 GiB for them; use .* fewer cells"):
            machine.require_memory(m.Ranks.alone(), 2**21)
        machine.require_memory(m.Ranks.alone(), 2**20)
    finally:
        machine._most_granted.cache_clear()


def test_the_peak_is_in_bytes_on_both_systems(monkeypatch):
    before = machine.peak_bytes()
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    assert machine.peak_bytes() <= before // 1024 + 2**20  # read as bytes, a 1024th
