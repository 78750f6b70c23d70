"""What the environment of a launcher says."""

import pytest

from mosaicdd.cli.launch import launcher_rank, threads_per_rank

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


@pytest.mark.parametrize(
    ("value", "threads"),
    [(None, 1), ("", 1), ("1", 1), ("4", 4), ("4,2", 4), (" 3 , 2", 3), ("0", 1), ("many", 1)],
)
def test_a_rank_has_the_threads_that_openmp_is_told_of(value, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads_per_rank() == threads


@pytest.mark.parametrize("name", RANK_VARIABLES)
def test_every_launcher_s_rank_is_known_without_mpi(name, monkeypatch):
    for other in RANK_VARIABLES:
        monkeypatch.delenv(other, raising=False)
    assert launcher_rank() == 0
    monkeypatch.setenv(name, "3")
    assert launcher_rank() == 3


@pytest.mark.ranks(2, 3, 4, 6)
def test_it_is_the_rank_of_mpi(comm):
    assert launcher_rank() == comm.rank
