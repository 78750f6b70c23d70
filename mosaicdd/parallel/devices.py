"""Which device a rank computes on."""

import torch
from mpi4py import MPI


def device_of_rank(comm: MPI.Intracomm, name: str) -> torch.device:
    """Return the CPU, or the GPU that belongs to this rank's number on its own machine.

    Raises
    ------
    ValueError
        If a GPU is asked for and none is visible.
    """
    if name == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError("device cuda: torch sees no CUDA device here; use --device cpu")
    on_this_machine = comm.Split_type(MPI.COMM_TYPE_SHARED)
    local = on_this_machine.rank
    on_this_machine.Free()
    return torch.device("cuda", local % count)
