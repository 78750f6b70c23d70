"""How much memory a training needs on each device, for each way to share it out.

Nothing is guessed: the optimiser's state is that of a step, and what the passes keep is measured on
small ones and continued in a straight line to the samples of a pass.
"""

import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from mosaicdd.training.lesson import Lesson
from mosaicdd.training.optimisers import build_optimiser
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings

_PARTS = ("weights", "gradients", "optimiser", "activations", "samples", "total")
_MB = 2**20


@dataclass(frozen=True)
class MemoryLevel:
    """Bytes on one device during a step.

    Parameters
    ----------
    sharding
        As in `ExecutionSettings`.
    weights, gradients, optimiser
        The last one's state; all that a rank holds of them at a time.
    activations
        What the largest forward pass keeps.
    samples
        The training data.
    """

    sharding: str
    weights: int
    gradients: int
    optimiser: int
    activations: int
    samples: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum((self.weights, self.gradients, self.optimiser, self.activations, self.samples))


@dataclass(frozen=True)
class MemoryPlan:
    """The levels of sharding beside the memory that there is.

    Parameters
    ----------
    levels
        As `memory_plan` returns them.
    ranks, device_memory
        Number of ranks, and the bytes that each has.
    """

    levels: list[MemoryLevel]
    ranks: int
    device_memory: int

    @property
    def fits(self) -> str | None:
        """The first level that fits, if there is one."""
        enough = (level for level in self.levels if level.total <= self.device_memory)
        return next((level.sharding for level in enough), None)

    @property
    def figures(self) -> dict:
        """All of it as plain values."""
        rows = [asdict(level) | {"total": level.total} for level in self.levels]
        return asdict(self) | {"levels": rows, "fits": self.fits}

    @property
    def table(self) -> str:
        """The levels in lines, in MB."""
        lines = [f"{'MB per device':14}" + "".join(f"{part:>13}" for part in _PARTS)]
        for level in self.levels:
            values = "".join(f"{getattr(level, part) / _MB:13.1f}" for part in _PARTS)
            lines.append(f"{level.sharding:14}{values}")
        return "\n".join(lines)


def memory_plan(
    lesson: type[Lesson],
    network: Any,
    dataset: Any,
    settings: TrainingSettings,
    execution: ExecutionSettings,
    ranks: RankGroup,
) -> list[MemoryLevel]:
    """Return the levels from the simplest to the one that needs the least.

    Those that the optimiser or the number of ranks rules out are left out.

    Parameters
    ----------
    ranks
        Their number, and their device: on a processor a pass has few samples unless the settings say how
        many.
    """
    network = copy.deepcopy(network)
    if execution.recompute:
        network.recompute = True
    activations, samples = lesson.kept(network, dataset, settings, execution, ranks)
    size = 8 if settings.precision == "float64" else 4
    weights = size * sum(p.numel() for p in network.parameters())
    state = _optimiser_bytes(network, settings) * size // 4
    # In a step FSDP has the weights and their gradients whole beside its shards.
    levels: dict[str, tuple[int, int, int]] = {
        "none": (weights, weights, state),
        "zero1": (weights, weights, state // ranks.size),
        "fsdp": (
            weights + weights // ranks.size,
            weights + weights // ranks.size,
            state // ranks.size,
        ),
    }
    learned = lesson.learned(network, dataset)
    return [
        MemoryLevel(name, *parts, activations, samples)
        for name, parts in levels.items()
        if _possible(replace(execution, sharding=name), ranks.size, settings, learned)
    ]


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
    if isinstance(tree, torch.Tensor):
        return [tree]
    children = tree.values() if isinstance(tree, dict) else tree
    return [t for c in children for t in _tensors(c)] if isinstance(tree, (dict, list)) else []
