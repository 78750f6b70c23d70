"""The ranks that a command works on, and how they end together.

Of several ranks, the first by the launcher's environment speaks: so messages about bad options appear
once, and ``--help`` needs no MPI library.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mosaicdd.parallel.launcher import launcher, launcher_rank, under_torchrun

if TYPE_CHECKING:
    from mpi4py import MPI

    from mosaicdd.parallel.ranks import Ranks

_PMI_TYPES = {"MPICH": "pmi2", "MVAPICH": "pmi2", "Intel MPI": "pmi2", "Open MPI": "pmix"}


def threads_per_rank() -> int:
    """Return the threads of a rank: the first number of ``OMP_NUM_THREADS``, or 1 without one."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(first)) if first.isdecimal() else 1


def world() -> "Ranks":
    """Return all ranks of the job, always the same; one rank alone needs no MPI library.

    They last as long as the process: what is to be freed earlier is made through ``Ranks.of`` them.

    Raises
    ------
    click.ClickException
        If the launcher started several ranks that have no MPI library, or do not see each other:
        each would solve the whole problem and write the same file.
    """
    if under_torchrun():
        from mosaicdd.parallel.ranks import Ranks

        return Ranks.alone()
    comm = communicator()
    if comm is None and (launcher().ranks > 1 or launcher_rank()):
        raise _bad_launch(
            "no MPI library was found: pip install 'mosaicdd[mpi]', or pip install mpi4py with your cluster's MPI module loaded"
        )
    if comm is not None and (advice := lonely_ranks(comm.size)):
        raise _bad_launch(advice)
    return _everyone()


@functools.cache
def _everyone() -> "Ranks":
    from mosaicdd.parallel.ranks import Ranks

    return Ranks.of(communicator())


def communicator() -> "MPI.Intracomm | None":
    """Return MPI's communicator over all ranks that it sees, None without an MPI library."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    return MPI.COMM_WORLD


def lonely_ranks(size: int) -> str:
    """Say, for a communicator's size, what is wrong if the launcher's ranks are alone in it.

    Returns
    -------
    str
        One line with the way out; empty if nothing is wrong.
    """
    started = launcher()
    if size > 1 or started.ranks == 1 or started.name == "torchrun":
        return ""
    library, _ = mpi_vendor()
    if started.name == "srun":
        pmi = needed_pmi(library) or "TYPE"
        return (
            f"srun started {started.ranks} tasks, but {library} sees 1 rank in each: they need a PMI "
            f"in common; use srun --mpi={pmi} (srun --mpi=list shows the types that there are)"
        )
    beside = Path(sys.executable).with_name("mpiexec")
    own = beside if beside.exists() else f"the mpiexec of {library}"
    return (
        f"{started.name} started {started.ranks} ranks, but {library} sees 1 rank in each: the "
        f"launcher is another MPI's; use {own}"
    )


def mpi_vendor() -> tuple[str, str]:
    """Return the name and the version of the MPI library."""
    from mpi4py import MPI

    name, numbers = MPI.get_vendor()
    return name, ".".join(map(str, numbers))


def needed_pmi(library: str) -> str | None:
    """Return the ``srun --mpi`` type that an MPI library speaks, if it is known."""
    return _PMI_TYPES.get(library)


def _bad_launch(message: str) -> click.ClickException:
    error = click.ClickException(message)
    error.exit_code = 2
    return error


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
