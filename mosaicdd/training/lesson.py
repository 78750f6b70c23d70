"""What a network is taught; how it is trained is the same for all (`Trainer`).

A lesson has a network and the samples of one rank, draws the passes of a step, and gives the loss of a pass, the
errors on held-out data and, at the end, the card. Gradients, ranks, devices, sharding, the schedule and checkpoints
are the trainer's.
"""

from abc import ABC, abstractmethod
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

    Attributes
    ----------
    unused
        Settings of a training that mean nothing here, and why.
    precisions
        In which the network is trained.
    network
        On the device, in the precision of the training.
    batches
        Of the samples that it learns from: ``size``, of a step's on all ranks together, and ``per_epoch``.
    passes
        ``draw(step, ranks, micro_batch)`` returns the forward passes of a step on one rank, as many as on any
        other; with at most so many samples each, if not 0. A pass has a ``share``, the factor of its mean loss in
        the mean over the ranks, a ``kind``, which of the signals its loss is, a length, and ``first(count)``, a
        pass over copies of its first samples.
    prepares
        Whether `prepare` has something to do before a step, with whole weights.
    """

    unused: ClassVar[dict[str, str]]
    precisions: ClassVar[tuple[str, ...]] = PRECISIONS
    prepares = False
    network: Any
    batches: Any
    passes: Any

    @classmethod
    @abstractmethod
    def check(cls, name: str, values: dict) -> Any:
        """Return the settings of a network by plain values for some of them.

        Raises
        ------
        ValueError
            If a setting is unknown, or a value is not possible.
        """

    @classmethod
    @abstractmethod
    def read(cls, data: Any) -> Any:
        """Return a dataset, read if ``data`` is a path; it has a ``content_hash``."""

    @classmethod
    @abstractmethod
    def build(cls, name: str, values: dict, dataset: Any) -> Any:
        """Return the network that the dataset is for, with random weights; torch's generator stays as it is."""

    @classmethod
    @abstractmethod
    def learned(cls, network: Any, dataset: Any) -> int:
        """Return the number of samples to learn from."""

    @classmethod
    @abstractmethod
    def part(cls, dataset: Any, ranks: RankGroup) -> Any:
        """Return what a rank needs of a dataset: what a lesson is made of; called by all ranks."""

    @classmethod
    @abstractmethod
    def kept(
        cls,
        network: Any,
        dataset: Any,
        settings: TrainingSettings,
        execution: ExecutionSettings,
        ranks: RankGroup,
    ) -> tuple[int, int]:
        """Return the bytes that the largest pass of a rank keeps, and those of its samples.

        Parameters
        ----------
        ranks
            Number and device of those that are asked about.
        """

    @classmethod
    def require(
        cls, name: str, network: Any, dataset: Any, settings: TrainingSettings, execution: Any
    ) -> None:
        """Check that a network can learn from a dataset as the settings ask.

        Raises
        ------
        ValueError
            If it cannot, or a setting means nothing to it.
        """
        usual = asdict(TrainingSettings(labels=settings.labels))
        changed = {key for key, value in asdict(settings).items() if value != usual[key]}
        for setting in sorted(changed & cls.unused.keys()):
            raise Unsupported(
                f"the network {name} has no use for {setting}={getattr(settings, setting)}: {cls.unused[setting]}; "
                "leave it out"
            )
        if settings.precision not in cls.precisions:
            raise Unsupported(
                f"the network {name} has no use for precision={settings.precision}, it trains in "
                f"{', '.join(cls.precisions)}; leave it out"
            )
        if execution.recompute and not hasattr(network, "recompute"):
            raise Unsupported(
                f"the network {name} cannot recompute its hidden layers (mlp, sdnet and sdnet-concat can); "
                "leave recompute away"
            )

    @abstractmethod
    def loss(self, part: Any) -> torch.Tensor:
        """Return the mean loss of a pass."""

    @abstractmethod
    def probe(self) -> list[Any]:
        """Return passes like those of a step, to measure what they keep."""

    def prepare(self, passes: list[Any]) -> None:
        """Look at the passes of a step before their losses are computed; of lessons that prepare."""
        raise NotImplementedError

    @abstractmethod
    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return what the ranks are to add up for `report`.

        Parameters
        ----------
        everywhere
            Whether at all nodes, or at those that are enough in the middle of a training.
        """

    @abstractmethod
    def report(self, sums: list[float], *, everywhere: bool, **state: Any) -> Report:
        """Return the report of the sums over all ranks and of what is known of every training."""

    @abstractmethod
    def restored(self, report: dict) -> Report:
        """Return a report from its fields."""

    @property
    def samples_nodes(self) -> bool:
        """Whether errors of the middle of a training are not at all nodes."""
        return False

    @abstractmethod
    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, and reaches; called by all ranks, with whole weights."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return what a continued run needs besides weights; called by all ranks."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from a state of any number of ranks."""
        if state:
            raise ValueError(f"a state of {', '.join(state)} belongs to another training")


def placed(network: Any, settings: TrainingSettings, ranks: RankGroup) -> torch.Tensor:
    """Move a network to the device of a rank, in the precision of a training; return a tensor like its weights."""
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    network.to(ranks.device, dtype)
    return torch.empty(0, dtype=dtype, device=ranks.device)
