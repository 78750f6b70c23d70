"""Data-parallel training: its ranks, and the gradient of a loss over all of them.

Weights are whole on each rank, or lie in shards. Under ``mpiexec`` and ``srun`` the group is opened from `Ranks`:
rank 0 listens on a free port and broadcasts it. Under ``torchrun`` it is opened from torchrun's own environment. One
process alone needs no group: it is the size-1 case of the same code.
"""

import atexit
import gc
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist

# Its functions keep the group that is open when it is imported, and DistributedDataParallel imports it.
import torch.distributed.nn.functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from mosaicdd.parallel.launcher import under_torchrun
from mosaicdd.parallel.machine import device_of_rank, gpu
from mosaicdd.parallel.partition import share
from mosaicdd.parallel.ranks import Ranks, Result, agreed
from mosaicdd.training.settings import ExecutionSettings

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# Groups that are open, and one that an error has left so.
_OPENED: list[dist.ProcessGroup | None] = []
_LEFT_BY_AN_ERROR: list[dist.ProcessGroup | None] = []


@dataclass(frozen=True)
class RankGroup:
    """One process among those that train together."""

    rank: int = 0  # number of this process
    size: int = 1  # number of all
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


class Objective(torch.nn.Module):
    """The loss of a forward pass, as the module that parallel training wraps.

    ``loss``: returns the mean loss of a pass, by the network.
    """

    def __init__(self, network: torch.nn.Module, loss: Callable[[Any], torch.Tensor]):
        super().__init__()
        self.network = network
        self._loss = loss

    def weights(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the network."""
        return list(self.network.parameters())

    def forward(self, part: Any) -> torch.Tensor:
        """Return the pass's share of the mean loss; all weights are in its graph."""
        return _WithAllWeights.apply(part.share * self._loss(part), *self.weights())


class _WithAllWeights(torch.autograd.Function):
    """A loss, with all weights in its graph.

    The PDE loss does not see a last bias, and `DistributedDataParallel` waits for the gradients of all weights.
    """

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.count = len(weights)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return grad, *([None] * ctx.count)


# torch 2.13 has another name for it.
_SYNCHRONISE = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in signature(DistributedDataParallel).parameters
)
_BUFFERS_STAY: dict[str, Any] = {_SYNCHRONISE: False}  # made from one seed, and never changed
LOSSES = ("data_loss", "pde_loss")


class ParallelObjective:
    """Runs the passes of a step and leaves the mean gradient of all ranks in the weights.

    The objective is equal on all ranks; it is changed in place where the weights are sharded.

    Attributes
    ----------
    module
        The objective, or torch's wrapper of it, whose backward pass reduces gradients.
    """

    def __init__(self, objective: Objective, ranks: RankGroup, execution: ExecutionSettings):
        self.objective, self.ranks = objective, ranks
        self.sharded = execution.sharding in ("fsdp", "hybrid")
        self.module: Any = objective  # torch's wrappers declare no methods
        if self.sharded:
            fully_shard(objective, mesh=_mesh(ranks, execution))
        elif ranks.size > 1:
            self.module = DistributedDataParallel(
                objective,
                device_ids=[ranks.device] if ranks.device.type == "cuda" else None,
                bucket_cap_mb=execution.bucket_cap_mb,
                gradient_as_bucket_view=True,
                **_BUFFERS_STAY,
            )

    def backward(self, passes: list[Any], numbers: Sequence[float]) -> tuple[dict, list[float]]:
        """Add up the gradients of all passes, and reduce them once.

        Algorithm 1 of the paper: nothing is reduced before the last pass (``no_sync`` holds its
        forward pass, too). Networks smaller than a bucket are reduced at the end of that one's
        backward pass; of larger ones all buckets but the last while it goes on.

        Returns the losses of the global batch by name, and the sums over the ranks of ``numbers``.
        """
        self.module.zero_grad(set_to_none=True)
        sums = torch.tensor([0.0, 0.0, *numbers], dtype=torch.float64).to(self.ranks.device)
        for number, part in enumerate(passes, start=1):
            with nullcontext() if number == len(passes) else self._without_reduction():
                loss = self.module(part)
                loss.backward()
            sums[LOSSES.index(part.kind)] += loss.detach() / self.ranks.size
        data, pde, *totals = self.ranks.total(sums).tolist()
        return dict(zip(LOSSES, (data, pde), strict=True)), totals

    @staticmethod
    def whole(value: torch.Tensor) -> torch.Tensor:
        """Return a value of the sharded weights as it is on all ranks."""
        return value.full_tensor() if isinstance(value, DTensor) else value

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Let the network be used as it is: its weights are whole inside."""
        module: Any = self.objective  # `fully_shard` gives it more methods
        if self.sharded:
            module.unshard()
        try:
            yield
        finally:
            if self.sharded:
                module.reshard()

    def weights_state(self) -> dict[str, torch.Tensor]:
        """Return the whole weights and buffers of the network by name."""
        state = self.objective.network.state_dict()
        return {name: self.whole(value).detach() for name, value in state.items()}

    def load_weights_state(self, state: dict[str, torch.Tensor]) -> None:
        """Take up whole weights and buffers, each rank its shard."""
        with torch.no_grad():
            for name, value in self.objective.network.state_dict().items():
                value.copy_(_sharded_as(value, state[name].to(value.device)))

    def optimiser_state(self, optimiser: torch.optim.Optimizer) -> dict:
        """Return the whole state of an optimiser; of ZeRO's on rank 0 only."""
        if isinstance(optimiser, ZeroRedundancyOptimizer):
            optimiser.consolidate_state_dict(to=0)
            return optimiser.state_dict() if self.ranks.is_root else {}
        state = optimiser.state_dict()
        return self._each_value(state, lambda weight, v: self.whole(v)) if self.sharded else state

    def load_optimiser_state(self, optimiser: torch.optim.Optimizer, state: dict) -> None:
        """Take up the whole state of an optimiser, each rank its shard."""
        optimiser.load_state_dict(self._each_value(state, _sharded_as) if self.sharded else state)

    def _each_value(self, state: dict, function: Callable[[Any, Any], Any]) -> dict:
        """Return an optimiser's state with ``function(weight, value)`` in the place of each value of a weight."""
        weights = self.objective.weights()
        values = {
            number: {name: function(weights[int(number)], v) for name, v in of_weight.items()}
            for number, of_weight in state["state"].items()
        }
        return state | {"state": values}

    def _without_reduction(self) -> AbstractContextManager:
        if self.sharded:
            return self._keep_whole_gradients()
        return nullcontext() if self.ranks.size == 1 else self.module.no_sync()

    @contextmanager
    def _keep_whole_gradients(self) -> Iterator[None]:
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)


def _sharded_as(like: torch.Tensor, value: Any) -> Any:
    """Distribute a whole value like a weight; numbers, and values of whole weights, stay as they are."""
    if not isinstance(like, DTensor) or not torch.is_tensor(value) or not value.ndim:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements)


def _mesh(ranks: RankGroup, execution: ExecutionSettings) -> DeviceMesh:
    """Return the mesh of ranks: shards, or replicas of shards."""
    kind = ranks.device.type
    if execution.sharding == "fsdp":
        return init_device_mesh(kind, (ranks.size,))
    shape = (execution.replicas, ranks.size // execution.replicas)
    return init_device_mesh(kind, shape, mesh_dim_names=("replicas", "shards"))
