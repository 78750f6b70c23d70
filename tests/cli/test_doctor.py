"""What ``mosaicdd doctor`` finds, and what it says to do about it."""

import os
import signal
import sys

import h5py
import pytest

from mosaicdd.cli import findings
from mosaicdd.parallel.halo import probe, verdict
from mosaicdd.parallel.launcher import Launcher
from mosaicdd.parallel.machine import Place

SUBJECTS = ["mosaicdd", "MPI", "ranks", "machines", "memory", "GPUs", "buffers", "h5py", "torch", "Slurm", "versions"]  # fmt: skip
GIB = 2**30
ALONE_IN_SRUN = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}


def place(host="a", cores=range(4), memory=8 * GIB, gpus=()):
    return Place(host, frozenset(cores), memory, tuple((f"id-{gpu}", "a GPU") for gpu in gpus))


@pytest.mark.ranks(1, 2, 3, 4)
def test_one_screen_ends_every_line_in_ok_or_in_what_to_do(mosaicdd, strict_json, comm):
    ended = mosaicdd("doctor")
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines] == SUBJECTS
    assert all(line.endswith("  ok") or "  -> " in line for line in lines)
    assert len(lines) < 24
    assert f"{comm.size} seen, {comm.size} asked" in lines[2] or comm.size == 1
    assert ended.code == 0
    report = strict_json(mosaicdd("doctor --json").out)
    assert report["ok"] is True
    assert [finding["subject"] for finding in report["findings"]] == SUBJECTS


@pytest.mark.ranks(1, 2)
def test_threads_that_every_command_refuses_are_a_finding(mosaicdd, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert mosaicdd("info", "x.h5").code == 2
    ended = mosaicdd("doctor")
    assert (ended.code, ended.err) == (1, "")
    assert (
        "-> OMP_NUM_THREADS asks for 100000 threads, this machine has" in ended.out.splitlines()[3]
    )


def test_ranks_that_are_alone_are_told_once_how_to_be_together(mosaicdd, monkeypatch):
    screens = []
    for rank in "01":
        for name, value in (ALONE_IN_SRUN | {"SLURM_PROCID": rank}).items():
            monkeypatch.setenv(name, value)
        ended = mosaicdd("doctor")
        assert (ended.code, ended.err) == (1, "")
        screens.append(ended.out)
    assert "1 seen, 2 asked of srun  -> use srun --mpi=" in screens[0]
    assert screens[1] == ""


@pytest.mark.ranks(1, 2, 3)
def test_every_rank_s_place_is_known_to_the_first(comm, ranks):
    places = ranks.gather(Place.here())
    assert (places is None) == (comm.rank > 0)
    if places is not None:
        assert [p.host for p in places] == [os.uname().nodename] * comm.size
        assert all(p.cores and p.free_memory > 0 for p in places)


OWN = [place(cores=[number]) for number in range(4)]  # as Slurm binds ranks to cores
FULL = [place(memory=GIB), place("b", memory=GIB), place("b", memory=GIB)]


def on(*seen):
    """Return what is found of the GPUs that ranks see."""
    return lambda: findings.gpus([place(gpus=each) for each in seen])


@pytest.mark.parametrize(
    ("find", "found", "advice", "wrong"),
    [
        (lambda: findings.ranks(4, Launcher("srun", 4), ""), "", "", False),
        (lambda: findings.ranks(2, Launcher("srun", 4), ""), "2 seen, 4 asked of srun", "start all ranks in one job", True),
        (lambda: findings.ranks(1, Launcher("torchrun", 4), ""), "", "", False),  # which do not see each other by MPI
        (lambda: findings.machines(OWN, threads=1), "", "", False),
        (lambda: findings.machines(OWN, threads=2), "", "a: 8 threads share 4 cores", False),
        (lambda: findings.machines([*OWN, *[place("b")] * 4], threads=1), "2 machines with 4 ranks", "", False),
        (lambda: findings.memory(FULL), "0.5 GiB per rank on b", "", False),  # the fullest
        (lambda: findings.memory([*FULL, place("b", memory=GIB)]), "", "use fewer ranks", False),
        (on((0, 1), (0, 1)), "", "", False),
        (on((0,), (1,)), "", "", False),  # the launcher shows each rank its own
        (on((0, 1), (0, 1), (0, 1)), "", "2 ranks share a GPU of a", False),
        (on((0,), (0,)), "", "2 ranks share a GPU of a", False),
        (on((0,), ()), "", "let the launcher give every rank of a a GPU", True),
        (lambda: findings.buffers("fails"), "--mpi-buffers host", "", False),
    ],
)  # fmt: skip
def test_what_is_found_of_ranks_machines_memory_and_gpus(find, found, advice, wrong):
    finding = find()
    assert found in finding.found
    assert advice in finding.advice
    assert bool(finding.advice) == bool(advice)
    assert finding.wrong == wrong


@pytest.mark.parametrize(
    "text",
    [
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific plugin versions: pmix_v4\n",
        "srun: MPI types are...\nsrun: pmix\nsrun: none\nsrun: pmi2\n",
    ],
    ids=["Slurm 22", "Slurm 20"],
)
def test_types_of_pmi_are_read_in_old_and_new_form(text):
    assert findings.pmi_types(text) == ["pmix", "none", "pmi2"]


def test_a_slurm_that_cannot_start_this_mpi_is_told(tmp_path, monkeypatch):
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\n[ "$1" = --version ] && echo slurm 23.02.1 || echo " none"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    finding = findings.slurm("pmi2")
    assert finding.found.startswith("23.02.1")
    assert "srun lacks pmi2" in finding.advice
    assert findings.slurm("none").advice == ""


def test_a_version_other_than_pinned_is_named_and_absent_packages_are_not(tmp_path):
    pins = tmp_path / "constraints.txt"
    pins.write_text(f"h5py=={h5py.__version__}\nnot-a-package==1.0\n")
    assert findings.versions(pins).advice == ""
    pins.write_text("h5py==1.0\n")
    finding = findings.versions(pins)
    assert f"h5py {h5py.__version__} not 1.0" in finding.found
    assert f"pip install -c {pins}" in finding.advice
    assert findings.versions(tmp_path / "none").advice == ""


@pytest.mark.nightly
@pytest.mark.ranks(2)
def test_buffers_are_probed_by_ranks_of_their_own(comm):
    assert probe("cpu") == "works"


def test_a_probe_that_dies_or_fails_is_no_more_than_an_answer():
    killed = f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"
    assert verdict([sys.executable, "-c", killed]) == "fails"
    assert verdict([sys.executable, "-c", "raise SystemExit(1)"]) == "fails"
    assert verdict([sys.executable, "-c", "pass"]) == "works"
