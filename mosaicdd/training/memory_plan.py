"""How much memory a training needs on each device, for each way to share it out.

Nothing is guessed: the optimiser's state is that of a step, and what the passes keep is measured on
small ones and continued in a straight line to the samples of a pass.
"""

import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.registry import is_family
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.memory import PROBES, KeptBytes
from mosaicdd.training.objective import Objective
from mosaicdd.training.optimisers import build_optimiser
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer

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
    network: Network,
    dataset: Dataset,
    settings: TrainingSettings,
    execution: ExecutionSettings,
    ranks: int,
    device: str = "cpu",
) -> list[MemoryLevel]:
    """Return the levels from the simplest to the one that needs the least.

    Those that the optimiser or the number of ranks rules out are left out.

    Parameters
    ----------
    device
        ``"cpu"``, where a pass has few samples unless the settings say how many, or ``"cuda"``.
    """
    activations = _activations(network, dataset, settings, execution, ranks, device)
    size = 8 if settings.precision == "float64" else 4
    weights = size * sum(p.numel() for p in network.parameters())
    state = _optimiser_bytes(network, settings) * size // 4
    fields = dataset.boundary.shape[1] + (dataset.subdomain.cells - 1) ** 2 + 1
    data = size * fields * (len(dataset.boundary) + len(dataset.window_boundary))
    # In a step FSDP has the weights and their gradients whole beside its shards.
    levels = {
        "none": (weights, weights, state),
        "zero1": (weights, weights, state // ranks),
        "fsdp": (weights + weights // ranks, weights + weights // ranks, state // ranks),
    }
    return [
        MemoryLevel(name, *parts, activations, data)
        for name, parts in levels.items()
        if _possible(replace(execution, sharding=name), ranks, settings, dataset)
    ]


def _possible(
    execution: ExecutionSettings, ranks: int, settings: TrainingSettings, dataset: Dataset
) -> bool:
    try:
        execution.require_ranks(ranks, settings, len(dataset.boundary) - dataset.held_out)
    except ValueError:
        return False
    return True


def _activations(
    network: Network,
    dataset: Dataset,
    settings: TrainingSettings,
    execution: ExecutionSettings,
    ranks: int,
    device: str,
) -> int:
    """Return the bytes that the largest pass of a rank keeps."""
    if is_family(network):  # a pass is of operators, which few samples do not give
        objective = Objective(network, None, dataset.subdomain, settings)
        p, z = torch.zeros(max(PROBES), 5), torch.zeros(max(PROBES), network.settings.modes)
        operators = (len(dataset.boundary) - dataset.held_out) // dataset.boundary.shape[1]
        share = -(-min(settings.batch_size, operators) // ranks)
        return KeptBytes.of_pass(objective, Pass(p, 1.0, target=z)).of(share)
    few = replace(
        dataset,
        boundary=dataset.boundary[:8],
        solution=dataset.solution[:8],
        hyperparameters=dataset.hyperparameters[:8],
        window_boundary=dataset.window_boundary[:1],
        window_solution=dataset.window_solution[:1],
        parameters=dataset.parameters[:8],
        window_parameters=dataset.window_parameters[:1],
        validation=0.25,
    )
    trainer = Trainer(
        copy.deepcopy(network),
        few,
        replace(settings, batch_size=max(PROBES), base_batch_size=0),
        start=0.0,
        execution=replace(execution, sharding="none"),
    )
    samples = -(-min(settings.batch_size, len(dataset.boundary) - dataset.held_out) // ranks)
    limit = trainer.micro_batch if device == "cpu" else execution.micro_batch
    samples = min(samples, limit or samples)
    objective = trainer.parallel.objective
    parts = trainer.passes.draw(0, trainer.ranks, 0)
    return max(KeptBytes.of_pass(objective, part).of(samples) for part in parts)


def _optimiser_bytes(network: torch.nn.Module, settings: TrainingSettings) -> int:
    """Return the bytes of the optimiser's state after a step, in float32."""
    weights = [torch.nn.Parameter(torch.randn_like(p)) for p in network.parameters()]
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
