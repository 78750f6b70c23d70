"""The loss of a forward pass as a module, and its gradient over all ranks, whose weights are whole or in shards.

The ranks of a data-parallel training, and how their process group is opened.

Under ``mpiexec`` and ``srun`` the group is opened from `Ranks`: rank 0 listens on a free
port and broadcasts it. Under ``torchrun`` it is opened from torchrun's own environment. One process
alone needs no group: it is the size-1 case of the same code.
"""

import atexit
import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist

# Its functions keep the group that is open when it is imported, and DistributedDataParallel imports it.
import torch.distributed.nn.functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from mosaicdd.parallel.launcher import under_torchrun
from mosaicdd.parallel.machine import device_of_rank, gpu
from mosaicdd.parallel.partition import share
from mosaicdd.parallel.ranks import Ranks, Result, agreed
from mosaicdd.training.settings import ExecutionSettings

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


SIGNALS = ("data_loss", "pde_loss", "seconds", "stop", "save")


class Objective(torch.nn.Module):
    """A network and its losses.

    What the ranks tell each other beside the gradient travels inside it: `signals` is a parameter
    that stays zero, and whose gradient is whatever each rank puts there. So a step has one
    reduction, and all ranks know the loss, the clock of rank 0 and each other's interrupts.

    ``loss``: returns the mean loss of a pass, by the network.
    """

    def __init__(self, network: torch.nn.Module, loss: Callable[[Any], torch.Tensor]):
        super().__init__()
        self.network = network
        self.signals = torch.nn.Parameter(next(network.parameters()).new_zeros(len(SIGNALS)))
        self._loss = loss

    def weights(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the network."""
        return list(self.network.parameters())

    def forward(self, part: Any, flags: torch.Tensor) -> torch.Tensor:
        """Return the loss of one pass, whose gradient also carries the loss and the flags."""
        loss = part.share * self._loss(part)
        tell = flags.clone()
        tell[SIGNALS.index(part.kind)] = loss.detach()
        return _Complete.apply(loss, tell, self.signals, *self.network.parameters())


class _Complete(torch.autograd.Function):
    """Make the signals and every weight a part of the loss's graph.

    The gradient of the signals is what is to be told, that of the weights nothing more: the PDE loss
    does not see a last bias, and a wrapper that waits for all gradients would wait on.
    """

    @staticmethod
    def forward(
        ctx: Any,
        loss: torch.Tensor,
        tell: torch.Tensor,
        signals: torch.Tensor,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(tell)
        ctx.count = len(weights)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (tell,) = ctx.saved_tensors
        return grad, None, grad * tell, *([None] * ctx.count)


# torch 2.13 has another name for it.
_SYNCHRONISE = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in signature(DistributedDataParallel).parameters
)


_BUFFERS_STAY: dict[str, Any] = {_SYNCHRONISE: False}  # made from one seed, and never changed


class ParallelObjective:
    """Runs the passes of a step and leaves the mean gradient of all ranks in the weights.

    The objective is equal on all ranks; it is changed in place where the weights are sharded.
    """

    def __init__(self, objective: Objective, ranks: RankGroup, execution: ExecutionSettings):
        self.objective = objective
        self.ranks = ranks
        self.sharded = execution.sharding in ("fsdp", "hybrid")
        self._module: Any = objective  # or what wraps it: torch's wrappers declare no methods
        if self.sharded:
            fully_shard(objective, mesh=_mesh(ranks, execution))
        elif ranks.size > 1:
            self._module = DistributedDataParallel(
                objective,
                device_ids=[ranks.device] if ranks.device.type == "cuda" else None,
                bucket_cap_mb=execution.bucket_cap_mb,
                gradient_as_bucket_view=True,
                **_BUFFERS_STAY,
            )

    @property
    def wrapper(self) -> torch.nn.Module:
        """The module whose forward pass reduces gradients: for communication hooks."""
        return self._module

    def backward(self, passes: list[Any], flags: list[float]) -> dict[str, float]:
        """Add up the gradients of all passes, reduce them once, and return the signals by name.

        Algorithm 1 of the paper: nothing is reduced before the last pass (``no_sync`` holds its
        forward pass, too). Networks smaller than a bucket are reduced at the end of that one's
        backward pass; of larger ones all buckets but the last while it goes on. Signals are the losses of the
        global batch, and the sums over the ranks of flags, what each has to say.
        """
        signals = self.objective.signals
        self._module.zero_grad(set_to_none=True)
        mine = torch.zeros(len(SIGNALS), dtype=signals.dtype)
        mine[-len(flags) :] = torch.tensor(flags, dtype=signals.dtype) * self.ranks.size
        mine = mine.to(self.ranks.device)
        silent = torch.zeros_like(mine)
        for number, part in enumerate(passes, start=1):
            last = number == len(passes)
            with nullcontext() if last else self._without_reduction():
                self._module(part, mine if last else silent).backward()
        gradient = torch.zeros_like(signals) if signals.grad is None else signals.grad
        return dict(zip(SIGNALS, self.whole(gradient).tolist(), strict=True))

    @staticmethod
    def whole(value: torch.Tensor) -> torch.Tensor:
        """Return a value of the sharded weights as it is on all ranks."""
        return value.full_tensor() if isinstance(value, DTensor) else value

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Let the network be used as it is: its weights are whole inside."""
        match self.objective:
            case FSDPModule() as sharded:
                sharded.unshard()
                try:
                    yield
                finally:
                    sharded.reshard()
            case _:
                yield

    def weights_state(self) -> dict[str, torch.Tensor]:
        """Return the whole weights and buffers of the network by name."""
        state = self.objective.network.state_dict()
        return {name: self.whole(value).detach() for name, value in state.items()}

    def load_weights_state(self, state: dict[str, torch.Tensor]) -> None:
        """Take up whole weights and buffers, each rank its shard."""
        with torch.no_grad():
            for name, value in self.objective.network.state_dict().items():
                whole = state[name].to(value.device)
                if isinstance(value, DTensor):
                    whole = distribute_tensor(whole, value.device_mesh, value.placements)
                value.copy_(whole)

    def optimiser_state(self, optimiser: torch.optim.Optimizer) -> dict:
        """Return the whole state of an optimiser; of ZeRO's on rank 0 only."""
        if isinstance(optimiser, ZeroRedundancyOptimizer):
            optimiser.consolidate_state_dict(to=0)
            return optimiser.state_dict() if self.ranks.is_root else {}
        return _replace_tensors(optimiser.state_dict(), self.whole)

    def load_optimiser_state(self, optimiser: torch.optim.Optimizer, state: dict) -> None:
        """Take up the whole state of an optimiser, each rank its shard."""
        if self.sharded:
            weights: list[Any] = self.objective.weights()
            for number, values in state["state"].items():
                like = weights[int(number)]
                state["state"][number] = {
                    name: distribute_tensor(v, like.device_mesh, like.placements)
                    if isinstance(v, torch.Tensor) and v.ndim
                    else v
                    for name, v in values.items()
                }
        optimiser.load_state_dict(state)

    def _without_reduction(self) -> AbstractContextManager:
        if self.sharded:
            return self._keep_whole_gradients()
        return nullcontext() if self.ranks.size == 1 else self._module.no_sync()

    @contextmanager
    def _keep_whole_gradients(self) -> Iterator[None]:
        self._module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._module.set_requires_gradient_sync(True)


def _mesh(ranks: RankGroup, execution: ExecutionSettings) -> DeviceMesh:
    """Return the mesh of ranks: shards, or replicas of shards."""
    kind = ranks.device.type
    if execution.sharding == "fsdp":
        return init_device_mesh(kind, (ranks.size,))
    shape = (execution.replicas, ranks.size // execution.replicas)
    return init_device_mesh(kind, shape, mesh_dim_names=("replicas", "shards"))


def _replace_tensors(tree: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a tree of dictionaries and lists with a function applied to its tensors."""
    match tree:
        case dict():
            return {key: _replace_tensors(value, function) for key, value in tree.items()}
        case list():
            return [_replace_tensors(value, function) for value in tree]
        case torch.Tensor():
            return function(tree)
    return tree
