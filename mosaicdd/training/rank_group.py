"""The ranks of a data-parallel training, and how their process group is opened.

Under ``mpiexec`` and ``srun`` the group is opened from a communicator: rank 0 listens on a free
port and broadcasts it. Under ``torchrun`` it is opened from torchrun's own environment. One process
alone needs no group: it is the size-1 case of the same code.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


@dataclass(frozen=True)
class RankGroup:
    """One process among those that train together.

    Parameters
    ----------
    rank, size
        Number of this process, and of all.
    device
        Where it computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_root(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Return this rank's part of ``count`` things; the parts differ by one at most."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def sum(self, values: list[float]) -> list[float]:
        """Add up numbers over the ranks, in float64."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def agreed(self, function: Callable):
        """Call a function on every rank; if it raises on one, its error is raised on all."""
        result = error = None
        try:
            result = function()
        except Exception as caught:  # noqa: BLE001 - raised again below, on every rank
            error = caught
        errors = [error]
        if self.size > 1:
            errors = [None] * self.size
            dist.all_gather_object(errors, error)
        first = next((e for e in errors if e is not None), None)
        if first is not None:
            raise first
        return result


def under_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def rank_group(comm, device: str = "cpu") -> Iterator[RankGroup]:
    """Open the process group, and close it when the work inside has ended well.

    Parameters
    ----------
    comm
        Communicator over the ranks that train together, or None for one process or torchrun.
    device
        ``"cpu"`` (gloo) or ``"cuda"`` (NCCL, one GPU per rank of a machine).

    Raises
    ------
    ValueError
        If a GPU is asked for where there is none.
    """
    if under_torchrun():
        group = _of_torchrun(device)
    elif comm is None or comm.size == 1:
        yield RankGroup(device=_device_alone(device))
        return
    else:
        group = _of_communicator(comm, device)
    yield group
    # After an error other ranks may be waiting in a reduction: then the end of the job closes it.
    dist.destroy_process_group()


def _device_alone(device: str) -> torch.device:
    return _gpu(0) if device == "cuda" else torch.device("cpu")


def _gpu(local_rank: int) -> torch.device:
    """Return the GPU of a rank's number on its machine."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError("device cuda: torch sees no CUDA device here; use --device cpu")
    return torch.device("cuda", local_rank % count)


def _of_torchrun(name: str) -> RankGroup:
    """Open the group of the processes that torchrun started."""
    device = _gpu(int(os.environ["LOCAL_RANK"])) if name == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(_BACKENDS[device.type], init_method="env://")
    return RankGroup(dist.get_rank(), dist.get_world_size(), device)


def _of_communicator(comm, name: str) -> RankGroup:
    """Open the group of a communicator's ranks."""
    # Here and not above: one process and torchrun need no MPI library.
    from mosaicdd.parallel.agreement import agree, on_root
    from mosaicdd.parallel.devices import device_of_rank

    device = agree(comm, lambda: device_of_rank(comm, name))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    machine = socket.gethostname()
    server: list[dist.TCPStore] = []

    def listen() -> tuple[str, int]:
        server.append(dist.TCPStore(machine, 0, is_master=True, wait_for_workers=False))
        return machine, server[0].port

    host, port = on_root(comm, listen)
    # The rank's own machine has a name for itself even where its network does not know it.
    address = "127.0.0.1" if host == machine else host
    store = server[0] if server else dist.TCPStore(address, port, is_master=False)
    dist.init_process_group(
        _BACKENDS[device.type], store=store, rank=comm.rank, world_size=comm.size
    )
    return RankGroup(comm.rank, comm.size, device)
