"""An exchange of buffers on a device between ranks: whether the MPI library can do it.

A library that cannot takes a device pointer for one of the host's and kills the process: only
processes whose death does no harm call this.
"""

import torch
from mpi4py import MPI

from mosaicdd.parallel.devices import device_of_rank

_LENGTHS = (1, 1_000, 1_000_000)  # numbers; MPI sends short and long messages in different ways


def buffers_arrive(comm: MPI.Intracomm, device: str) -> bool:
    """Send buffers round the ranks, and say whether this rank got what was sent to it."""
    where = device_of_rank(comm, device)
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    arrived = True
    for length in _LENGTHS:
        sent = torch.full((length,), float(comm.rank + 1), dtype=torch.float64, device=where)
        received = torch.zeros_like(sent)
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        comm.Sendrecv(sent, dest=after, recvbuf=received, source=before)
        arrived &= bool((received == before + 1).all())
    return arrived
