"""Checks that end the same way on every rank: a failure of one is the failure of all."""

from collections.abc import Callable

from mpi4py import MPI


def on_root(comm: MPI.Intracomm, function: Callable):
    """Call a function on rank 0 and return its (small) result, or raise its exception, on all."""
    result = error = None
    if comm.rank == 0:
        try:
            result = function()
        except Exception as caught:  # noqa: BLE001 - raised again below, on every rank
            error = caught
    if comm.size > 1:
        result, error = comm.bcast((result, error))
    if error is not None:
        raise error
    return result


def agree(comm: MPI.Intracomm, function: Callable):
    """Call a function on every rank; if it raises on one, the first exception is raised on all."""
    result = error = None
    try:
        result = function()
    except Exception as caught:  # noqa: BLE001 - raised again below, on every rank
        error = caught
    first = next((e for e in comm.allgather(error) if e is not None), None)
    if first is not None:
        raise first
    return result
