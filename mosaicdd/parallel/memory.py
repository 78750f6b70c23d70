"""Whether a problem fits the machines before it is begun."""

import os

from mpi4py import MPI


def require_memory(comm: MPI.Intracomm, needed: int, instead: str = "fewer cells") -> None:
    """Check that the ranks of each machine fit its memory together.

    Parameters
    ----------
    needed
        Bytes that one rank needs at least.
    instead
        What would need less.

    Raises
    ------
    ValueError
        On the ranks of a machine that they do not fit, with both sizes.
    """
    machine = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = machine.size
    machine.Free()
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if ranks * needed > installed:
        raise ValueError(
            f"needs at least {ranks * needed / 2**30:.1f} GiB for {ranks} "
            f"rank{'s' * (ranks > 1)} on this machine, which has {installed / 2**30:.1f} GiB; use "
            f"more machines or {instead}"
        )
