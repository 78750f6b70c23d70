"""What the environment of a launcher says, and what is done about ranks that are alone."""

import subprocess
import sys

import click
import pytest

from mosaicdd.cli.launch import world
from mosaicdd.parallel.launcher import Launcher, launcher, launcher_rank, threads_per_rank

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "3", "WORLD_SIZE": "4"}
BATCH = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
STEP = BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}
SHELL_OF_SALLOC = STEP | {"SLURM_STEP_ID": "4294967290"}  # step number 0xfffffffa of Slurm


@pytest.fixture
def environment(monkeypatch):
    """Return a function that lets the environment be that of a launcher, or of none."""

    def set_to(variables):
        others = ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID")
        for name in (*RANK_VARIABLES, *SIZE_VARIABLES, *TORCHRUN, *others):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_to


@pytest.mark.parametrize(
    ("value", "threads"),
    [(None, 1), ("", 1), ("1", 1), ("4", 4), ("4,2", 4), (" 3 , 2", 3), ("0", 1), ("many", 1)],
)
def test_a_rank_has_the_threads_that_openmp_is_told_of(value, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads_per_rank() == threads


@pytest.mark.parametrize(
    ("variables", "expected", "rank"),
    [
        ({}, Launcher("none", 1), 0),
        *(({name: "3"}, Launcher("none", 1), 3) for name in RANK_VARIABLES),
        ({"PMI_SIZE": "4", "PMI_RANK": "2"}, Launcher("mpiexec", 4), 2),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, Launcher("Open MPI's mpiexec", 4), 0),
        (TORCHRUN, Launcher("torchrun", 4), 3),
        (BATCH, Launcher("none", 1), 0),
        (SHELL_OF_SALLOC, Launcher("none", 1), 0),
        (STEP, Launcher("srun", 4), 3),
        (STEP | {"PMI_SIZE": "4", "PMI_RANK": "3"}, Launcher("srun", 4), 3),
        # MPICH's mpiexec in a batch job: srun starts one proxy per machine, the proxy the ranks.
        (
            STEP | {"SLURM_STEP_NUM_TASKS": "1", "PMI_SIZE": "2", "PMI_RANK": "1"},
            Launcher("mpiexec", 2),
            1,
        ),
    ],
    ids=str,
)
def test_the_launcher_and_its_ranks_are_known_from_the_environment(
    variables, expected, rank, environment
):
    environment(variables)
    assert launcher() == expected
    assert launcher_rank() == rank


# A serial run is one inside a batch script, too, and torchrun's ranks need not be MPI's.
@pytest.mark.parametrize("variables", [{}, BATCH, SHELL_OF_SALLOC, TORCHRUN | STEP], ids=str)
def test_one_rank_that_no_launcher_of_mpi_started_is_alone(variables, environment):
    environment(variables)
    assert world().size == 1


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (STEP, "srun started 4 tasks, but .* sees 1 rank in each: .*; use srun --mpi="),
        (STEP | {"PMI_SIZE": "4"}, "srun started 4 tasks, but"),
        (
            {"OMPI_COMM_WORLD_SIZE": "3"},
            "Open MPI's mpiexec started 3 ranks, but .*; use .*mpiexec",
        ),
        (
            {"PMI_SIZE": "2"},
            "mpiexec started 2 ranks, but .* sees 1 rank in each: .*; use .*mpiexec",
        ),
    ],
    ids=["srun", "srun with another PMI", "Open MPI", "Hydra"],
)
def test_ranks_that_do_not_see_each_other_are_refused(variables, message, environment):
    environment(variables)
    with pytest.raises(click.ClickException, match=message) as error:
        world()
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "words",
    ["solve -o out.h5 --cells 64x64", "generate data.h5 --samples 10", "train DATA -o model.h5"],
)
def test_copies_without_a_pmi_say_one_line_together_and_write_nothing(
    words, data, environment, mosaicdd, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    lines = []
    for rank in "012":
        environment(STEP | {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": rank})
        ended = mosaicdd(words.replace("DATA", str(data)))
        assert (ended.code, ended.out) == (2, "")
        lines += ended.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: srun started 3 tasks")
    assert not list(tmp_path.iterdir())


@pytest.mark.ranks(2, 3, 4, 6)
def test_it_is_the_rank_of_mpi(comm):
    assert launcher_rank() == comm.rank
    assert launcher().ranks == comm.size
    ranks = world()
    assert (ranks.size, ranks.rank) == (comm.size, comm.rank)
    assert world() is ranks


_BY_A_RANK = """
import subprocess, sys
from mpi4py import MPI

if MPI.COMM_WORLD.rank == 0:
    command = sys.executable, "-m", "mosaicdd.cli.main", "info", "missing.h5"
    print(subprocess.run(command, capture_output=True, text=True).stderr)
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.limit(60)
def test_what_a_rank_starts_works_alone(mpiexec):
    """MPI would take it for no rank of its own, and end it."""
    command = mpiexec, "-n", "2", sys.executable, "-c", _BY_A_RANK
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "missing.h5: the mosaicdd file is missing" in done.stdout
