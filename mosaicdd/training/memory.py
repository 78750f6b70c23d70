"""The memory of a training: activations that a forward pass keeps, and a plan for each device.

Nothing is guessed: what passes keep is measured on small ones and continued in a straight line, and the optimiser's
state is that of a step.

On a processor, passes that keep a bounded number of bytes make the memory of a step independent of
the batch, and its time proportional: what one pass frees, the next one takes. glibc hands freed
memory back to the system where more than its thresholds lies idle, and every page that it asks for
anew is a fault; for large passes of the PDE loss they are a third of the time.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from mosaicdd.training.objective import RankGroup
from mosaicdd.training.optimisers import build_optimiser
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings

if TYPE_CHECKING:
    from mosaicdd.networks.network import Network
    from mosaicdd.storage.dataset_file import Dataset
    from mosaicdd.training.equation_lesson import EquationLesson

_PASS_BYTES = 2**25
# Samples of the passes that are measured.
PROBES = (2, 4)


def kept_line(loss: Callable[[Any], torch.Tensor], part: Any) -> tuple[float, float]:
    """Return the bytes that forward passes keep: fixed ones, and those of each sample.

    The first are of weights, points and what is evaluated once for all samples.
    """
    few, more = (kept_bytes(functools.partial(loss, part.first(count))) for count in PROBES)
    slope = (more - few) / (PROBES[1] - PROBES[0])
    return few - slope * PROBES[0], slope


def kept_bytes(forward: Callable[[], torch.Tensor]) -> int:
    """Return the bytes of all tensors that a forward pass keeps, weights and inputs included."""
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward()  # alive, so that no storage is used twice
        total = sum(storages.values())
        del loss
    return total


def samples_per_pass(loss: Callable[[Any], torch.Tensor], passes: list[Any]) -> int:
    """Return the number of samples of a pass that keep 32 MB for its backward pass.

    What is evaluated once for all samples of a pass does not count: more passes would not keep less.
    """
    if len(passes[0]) < max(PROBES):
        return len(passes[0])
    largest = max(per_sample for _, per_sample in (kept_line(loss, part) for part in passes))
    return max(1, int(_PASS_BYTES / largest))


def hold_freed_memory() -> None:
    """Let the C library keep what a pass frees.

    glibc takes the largest block freed so far as the size from which blocks come from the system one
    by one, and twice that as what may lie idle; 32 MB is the most that it learns from. The block is
    never touched, so this costs nothing, nor does it anything elsewhere.
    """
    torch.empty(_PASS_BYTES - 2**16, dtype=torch.uint8)


_PARTS = ("weights", "gradients", "optimiser", "activations", "samples", "total")
_MB = 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """The bytes of a step on one device, by levels of sharding, beside the memory that there is."""

    levels: dict[str, dict[str, int]]  # as `memory_plan` returns them
    ranks: int
    device_memory: int  # of each rank

    @property
    def fits(self) -> str | None:
        """The first level that fits, if there is one."""
        enough = (n for n, part in self.levels.items() if part["total"] <= self.device_memory)
        return next(enough, None)

    @property
    def figures(self) -> dict:
        """All of it as plain values."""
        rows = [{"sharding": name} | parts for name, parts in self.levels.items()]
        return asdict(self) | {"levels": rows, "fits": self.fits}

    @property
    def table(self) -> str:
        """The levels in lines, in MB."""
        lines = [f"{'MB per device':14}" + "".join(f"{part:>13}" for part in _PARTS)]
        for name, parts in self.levels.items():
            lines.append(f"{name:14}" + "".join(f"{parts[part] / _MB:13.1f}" for part in _PARTS))
        return "\n".join(lines)


def memory_plan(
    lesson: "type[EquationLesson]",
    network: "Network",
    dataset: "Dataset",
    settings: TrainingSettings,
    execution: ExecutionSettings,
    ranks: RankGroup,
) -> dict[str, dict[str, int]]:
    """Return the bytes of each part on a device, by the levels of sharding that optimiser and ranks allow.

    The simplest level comes first, the one that needs the least last. Weights and gradients are all that a rank holds
    of them at a time; activations, what the largest forward pass keeps. On a processor a pass has few samples unless
    the settings say how many.
    """
    network = copy.deepcopy(network)
    if execution.recompute:
        network.recompute = True
    loss, passes, sample_bytes = lesson.sketch(network, dataset, settings)
    learned = lesson.learned(network, dataset)
    samples = -(-min(settings.batch_size, learned) // ranks.size)
    limit = execution.micro_batch
    if not limit and ranks.device.type == "cpu":
        limit = samples_per_pass(loss, passes)
    samples = min(samples, limit or samples)
    lines = (kept_line(loss, part) for part in passes)
    activations = max(round(fixed + per_sample * samples) for fixed, per_sample in lines)
    size = 8 if settings.precision == "float64" else 4
    weights = size * sum(p.numel() for p in network.parameters())
    state = _optimiser_bytes(network, settings) * size // 4
    # In a step FSDP has the weights and their gradients whole beside its shards.
    beside = weights + weights // ranks.size
    levels = {
        "none": (weights, weights, state),
        "zero1": (weights, weights, state // ranks.size),
        "fsdp": (beside, beside, state // ranks.size),
    }
    plan = {}
    for name, parts in levels.items():
        if _possible(replace(execution, sharding=name), ranks.size, settings, learned):
            sizes = *parts, activations, sample_bytes
            plan[name] = dict(zip(_PARTS, (*sizes, sum(sizes)), strict=True))
    return plan


def _possible(
    execution: ExecutionSettings, ranks: int, settings: TrainingSettings, samples: int
) -> bool:
    try:
        execution.require_ranks(ranks, settings, samples)
    except ValueError:
        return False
    return True


def _optimiser_bytes(network: torch.nn.Module, settings: TrainingSettings) -> int:
    """Return the bytes of the optimiser's state after a step, in float32."""
    weights = [
        torch.nn.Parameter(torch.randn_like(p, dtype=torch.float32)) for p in network.parameters()
    ]
    optimiser = build_optimiser(weights, settings)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimiser.step()
    return sum(t.numel() * t.element_size() for t in _tensors(optimiser.state_dict()))


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return all tensors of a tree of dictionaries and lists."""
    match tree:
        case torch.Tensor():
            return [tree]
        case dict():
            return [t for child in tree.values() for t in _tensors(child)]
        case list():
            return [t for child in tree for t in _tensors(child)]
    return []
