"""The ranks that a command works on, and how they end together.

Of several ranks, the first by the launcher's environment speaks: so messages about bad options appear
once, and ``--help`` needs no MPI library.
"""

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mosaicdd.cli.bad_input import BadInputError
from mosaicdd.parallel.launcher import (
    communicator,
    launcher,
    launcher_rank,
    lonely_ranks,
    started_by_launcher,
    under_torchrun,
)

if TYPE_CHECKING:
    from mosaicdd.parallel.ranks import Ranks


def world() -> "Ranks":
    """Return all ranks of the job, always the same; one rank alone needs no MPI library.

    They last as long as the process: what is to be freed earlier is made through ``Ranks.of`` them.

    `click.ClickException` if the launcher started several ranks that have no MPI library, or do not see each other:
    each would solve the whole problem and write the same file.
    """
    if under_torchrun():
        from mosaicdd.parallel.ranks import Ranks

        return Ranks.alone()
    comm = communicator()
    if comm is None and (launcher().ranks > 1 or launcher_rank()):
        raise BadInputError(
            "no MPI library was found: pip install 'mosaicdd[mpi]', or pip install mpi4py with your cluster's MPI module loaded"
        )
    if comm is not None and (advice := lonely_ranks(comm.size)):
        raise BadInputError(advice)
    return _everyone()


@functools.cache
def _everyone() -> "Ranks":
    from mosaicdd.parallel.ranks import Ranks

    return Ranks.of(communicator())


def overwrite_option() -> Callable:
    """Return the option of a command that writes a file."""
    return click.option(
        "--overwrite",
        is_flag=True,
        help="Replace a file of this name that mosaicdd has not written, too.",
    )


_CODE = 7001  # tag of the message with an exit code
_LOOK = (
    0.05  # seconds between two looks for it: who waits in MPI itself takes a core from who works
)


def on_first_rank(command: Callable) -> Callable:
    """Let a command that works in one process run on rank 0 only; the others end as it does, with its exit code."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        several = launcher().ranks > 1 and not under_torchrun() and started_by_launcher()
        comm = communicator() if several else None
        if comm is None or comm.size == 1:  # alone, or ranks that do not see each other
            return command(*args, **kwargs) if launcher_rank() == 0 else None
        if comm.rank:
            while not comm.iprobe(source=0, tag=_CODE):
                time.sleep(_LOOK)
            return comm.recv(source=0, tag=_CODE)
        code = 0
        try:
            return command(*args, **kwargs)
        except (click.ClickException, click.exceptions.Exit) as error:
            code = error.exit_code
            raise
        except BaseException:
            code = 1  # if it is not aborted before
            raise
        finally:
            for rank in range(1, comm.size):
                comm.send(code, rank, _CODE)

    return run
