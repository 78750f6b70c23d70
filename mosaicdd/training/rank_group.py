"""The ranks of a data-parallel training, and how their process group is opened.

Under ``mpiexec`` and ``srun`` the group is opened from `Ranks`: rank 0 listens on a free
port and broadcasts it. Under ``torchrun`` it is opened from torchrun's own environment. One process
alone needs no group: it is the size-1 case of the same code.
"""

import atexit
import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

# Its functions keep the group that is open when it is imported, and DistributedDataParallel imports it.
import torch.distributed.nn.functional

from mosaicdd.parallel.launcher import under_torchrun
from mosaicdd.parallel.machine import device_of_rank, gpu
from mosaicdd.parallel.partition import share
from mosaicdd.parallel.ranks import Ranks, Result, agreed

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_OPENED: list[dist.ProcessGroup | None] = []
_LEFT_BY_AN_ERROR: list[dist.ProcessGroup | None] = []


@dataclass(frozen=True)
class RankGroup:
    """One process among those that train together."""

    # rank, size: number of this process, and of all
    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where it computes

    @property
    def is_root(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Return this rank's part of ``count`` things; the first ranks get one more."""
        return slice(*share(count, self.size, self.rank))

    def sum(self, values: list[float]) -> list[float]:
        """Add up numbers over the ranks, in float64."""
        return self.total(torch.tensor(values, dtype=torch.float64, device=self.device)).tolist()

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Add up tensors over the ranks, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def agreed(self, function: Callable[[], Result]) -> Result:
        """Call a function on every rank; if it raises on one, its error is raised on all."""
        return agreed(function, self.gathered)

    def on_root(self, function: Callable[[], object]) -> None:
        """Call a function on the root; if it raises, its error is raised on all."""
        self.agreed(lambda: function() if self.is_root else None)

    def of_root(self, function: Callable[[], Result]) -> Result:
        """Call a function on the root, and return its result, or raise its error, on all."""
        result = self.agreed(lambda: function() if self.is_root else None)
        return self.gathered(result)[0]

    def gathered(self, value: Any) -> list:
        """Return the values of all ranks."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values


@contextmanager
def rank_group(comm: Any = None, device: str = "cpu") -> Iterator[RankGroup]:
    """Open the process group, and close it when the work inside has ended well.

    Its ranks are `Ranks`, those of a communicator, one process, or torchrun's, on the ``"cpu"``
    (gloo), or ``"cuda"`` (NCCL, one GPU per rank of a machine), which must be there.
    """
    if _LEFT_BY_AN_ERROR and dist.group.WORLD is _LEFT_BY_AN_ERROR.pop():
        dist.destroy_process_group()
    with ExitStack() as held:
        if under_torchrun():
            group = _of_torchrun(device)
        else:
            group = _of_ranks(held.enter_context(Ranks.of(comm)), device)
        if group.size == 1:
            yield group
        else:
            yield from _opened(group)


def _opened(group: RankGroup) -> Iterator[RankGroup]:
    """Yield a group of several ranks, and close it when the work has ended well."""
    # A reducer of DistributedDataParallel that outlives the group must not be the last that holds it:
    # it would end it with the interpreter's lock in hand, for which the group's thread may be waiting.
    if not _OPENED:
        atexit.register(_end_groups)
    _OPENED.append(dist.group.WORLD)
    try:
        yield group
    except BaseException:
        # Other ranks may be waiting in a reduction: the end of the job closes it, or the next group.
        _LEFT_BY_AN_ERROR.append(dist.group.WORLD)
        raise
    dist.destroy_process_group()


def _end_groups() -> None:
    """End the groups' threads: one that asks a closing interpreter for its lock aborts the process."""
    gc.collect()
    _OPENED.clear()


def _of_torchrun(name: str) -> RankGroup:
    """Open the group of the processes that torchrun started."""
    device = gpu(int(os.environ["LOCAL_RANK"])) if name == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(_BACKENDS[device.type], init_method="env://")
    return RankGroup(dist.get_rank(), dist.get_world_size(), device)


def _of_ranks(ranks: Ranks, name: str) -> RankGroup:
    """Open the group of ranks that can reach each other by MPI."""
    device = device_of_rank(ranks, name)
    if ranks.size == 1:
        return RankGroup(device=device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    machine = socket.gethostname()
    server: list[dist.TCPStore] = []

    def listen() -> tuple[str, int]:
        server.append(dist.TCPStore(machine, 0, is_master=True, wait_for_workers=False))
        return machine, server[0].port

    host, port = ranks.on_root(listen)
    # The rank's own machine has a name for itself even where its network does not know it.
    address = "127.0.0.1" if host == machine else host
    store = server[0] if server else dist.TCPStore(address, port, is_master=False)
    dist.init_process_group(
        _BACKENDS[device.type], store=store, rank=ranks.rank, world_size=ranks.size
    )
    return RankGroup(ranks.rank, ranks.size, device)
