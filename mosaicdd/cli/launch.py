"""How this process was started: alone, or as one of several by mpiexec or srun.

What can be said without MPI is read from the launcher's environment, so that messages about bad
options appear once, and ``--help`` needs no MPI library.
"""

import functools
import os
import sys
from collections.abc import Callable

import click

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def launcher_rank() -> int:
    """Return the rank the launcher gave this process, 0 without one."""
    if under_torchrun():
        return int(os.environ.get("RANK", "0"))
    for name in _RANK_VARIABLES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def under_torchrun() -> bool:
    """Return whether torchrun started this process: then its ranks are not MPI's."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def threads_per_rank() -> int:
    """Return the threads of a rank: the first number of ``OMP_NUM_THREADS``, or 1 without one."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(first)) if first.isdecimal() else 1


def world():
    """Return the communicator over all ranks.

    Raises
    ------
    click.ClickException
        If no MPI library is installed.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        error = click.ClickException(
            "no MPI library was found: pip install 'mosaicdd[mpi]', or load your cluster's MPI module"
        )
        error.exit_code = 2
        raise error from None
    return MPI.COMM_WORLD


def communicator_if_any():
    """Return the communicator over all ranks, or None where there is no MPI and no need of it.

    Raises
    ------
    click.ClickException
        If a launcher started several ranks and no MPI library is installed.
    """
    if under_torchrun():
        return None
    try:
        return world()
    except click.ClickException:
        if launcher_rank() or "PMI_SIZE" in os.environ:
            raise
        return None


def abort_all_ranks() -> None:
    """End every rank of the job now: an exception on one alone would leave the others waiting."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if mpi.COMM_WORLD.size > 1:
        sys.stderr.flush()
        mpi.COMM_WORLD.Abort(1)


def on_first_rank(command: Callable) -> Callable:
    """Let a command that works in one process run on rank 0 only; the others end at once."""

    @functools.wraps(command)
    def run(*args, **kwargs):
        return command(*args, **kwargs) if launcher_rank() == 0 else None

    return run
