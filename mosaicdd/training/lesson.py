"""What a network is taught; how it is trained is the same for all (`Trainer`).

A lesson has a network and the samples of one rank, draws the passes of a step, and gives the loss of a pass, the
errors on held-out data and, at the end, the card. Gradients, ranks, devices, sharding, the schedule and checkpoints
are the trainer's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

import torch

from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.reports import Report
from mosaicdd.training.settings import PRECISIONS, ExecutionSettings, TrainingSettings
from mosaicdd.unsupported import Unsupported


class Lesson(ABC):
    """Data, a network, and what it is to learn; on one of the ranks that train together.

    Made of a network, a `part` of a dataset, the training's settings and the ranks, by all of them.
    """

    unused: ClassVar[dict[str, str]] = {}  # settings of a training that mean nothing here, and why
    precisions: ClassVar[tuple[str, ...]] = PRECISIONS  # in which the network is trained
    needs_labels: ClassVar[bool] = False  # whether it learns from solutions alone
    report_type: ClassVar[type[Report]]  # whose errors are those of `errors`
    network: Any  # on the device, in the precision of the training
    # Of the samples that it learns from: ``samples``, their number; ``size``, of a step's on all
    # ranks together; ``per_epoch``, the number of steps
    batches: Any
    # ``draw(step, ranks, micro_batch)`` returns the forward passes of a step on one rank, as many
    # as on any other; with at most so many samples each, if not 0. A pass has a ``share``, the
    # factor of its mean loss in the mean over the ranks, a ``kind``, which of the signals its loss
    # is, a length, ``first(count)``, a pass over copies of its first samples, and ``pieces``, how many such
    # samples a whole one has
    passes: Any
    samples_nodes = False  # whether errors in the middle of a training are at some nodes only

    @classmethod
    @abstractmethod
    def read(cls, data: Any) -> Any:
        """Return a dataset, read if ``data`` is a path; it has a ``content_hash``."""

    @classmethod
    @abstractmethod
    def build(cls, name: str, values: dict, dataset: Any) -> Any:
        """Return the network that a dataset is for, with random weights and some of its settings by plain values.

        Torch's generator stays as it is.
        """

    @classmethod
    @abstractmethod
    def learned(cls, network: Any, dataset: Any) -> int:
        """Return the number of samples to learn from."""

    @classmethod
    @abstractmethod
    def part(cls, dataset: Any, ranks: RankGroup) -> Any:
        """Return what a rank needs of a dataset; called by all ranks."""

    @classmethod
    def require(
        cls,
        name: str,
        network: Any,
        dataset: Any,
        settings: TrainingSettings,
        execution: ExecutionSettings,
    ) -> None:
        """Check that a network can learn from a dataset as the settings ask.

        `ValueError` if it cannot, or a setting means nothing to it.
        """
        if cls.needs_labels and not settings.labels:
            raise ValueError(f"the network {name} learns from solutions alone: leave labels on")
        usual = asdict(TrainingSettings(labels=settings.labels))
        changed = {key for key, value in asdict(settings).items() if value != usual[key]}
        reasons = {key: cls.unused[key] for key in sorted(changed & cls.unused.keys())}
        if settings.precision not in cls.precisions:
            reasons["precision"] = f"it trains in {', '.join(cls.precisions)}"
        for setting, reason in reasons.items():
            raise Unsupported(
                f"the network {name} has no use for {setting}={getattr(settings, setting)}: {reason}; leave it out"
            )
        if execution.recompute and not hasattr(network, "recompute"):
            raise Unsupported(
                f"the network {name} cannot recompute its hidden layers (mlp, sdnet and sdnet-concat can); "
                "leave recompute away"
            )

    @classmethod
    @abstractmethod
    def sketch(
        cls, network: Any, dataset: Any, settings: TrainingSettings, ranks: int
    ) -> tuple[Callable[[Any], torch.Tensor], list[Any], int]:
        """Return a loss, passes to measure it on, and the bytes of the samples of one of so many ranks."""

    @abstractmethod
    def probe(self) -> list[Any]:
        """Return passes like those of a step, to measure what they keep."""

    @abstractmethod
    def loss(self, part: Any) -> torch.Tensor:
        """Return the mean loss of a pass."""

    @abstractmethod
    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return what the ranks are to add up for `errors`, at all nodes or at some."""

    @abstractmethod
    def errors(self, sums: list[float], *, everywhere: bool) -> list[float]:
        """Return the errors of a report by the sums over all ranks."""

    @abstractmethod
    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, and reaches; called by all ranks, with whole weights."""


def placed(network: Any, settings: TrainingSettings, ranks: RankGroup) -> torch.Tensor:
    """Move a network to the device of a rank, in the precision of a training; return a tensor like its weights."""
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    network.to(ranks.device, dtype)
    return torch.empty(0, dtype=dtype, device=ranks.device)
