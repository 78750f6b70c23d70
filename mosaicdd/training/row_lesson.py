"""What lessons have in common whose ranks have some rows of a dataset each: see `rows`."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from mosaicdd.local_solvers.networks.registry import settings_of
from mosaicdd.training.lesson import Lesson, placed
from mosaicdd.training.memory import PROBES
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.reports import RelativeReport, Report
from mosaicdd.training.rows import OwnRows, RowBatches, RowPass
from mosaicdd.training.settings import TrainingSettings

_FEW = 16  # rows of each kind that a plan of the memory is made with
_NO_POINTS = "it has no loss at points"


class RowLesson(Lesson):
    """Errors are relative, on held-out rows, and said beside those without the network.

    Attributes
    ----------
    name, settings_type
        Of the kind of network, and what it is made by.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type]
    unused: ClassVar[dict[str, str]] = {
        "points": "it learns at nodes of its own",
        "lifting": "nothing is lifted",
        **dict.fromkeys(("pde_weight", "collocation", "laplacian", "residual"), _NO_POINTS),
    }
    report_type: ClassVar[type[Report]] = RelativeReport
    precisions: ClassVar[tuple[str, ...]] = ("float32", "float64", "tf32")

    def __init__(
        self,
        network: torch.nn.Module,
        rows: Any,
        settings: TrainingSettings,
        ranks: RankGroup | None = None,
    ):
        self.network, self.settings = network, settings
        self.ranks = ranks or RankGroup()
        self.like = placed(network, settings, self.ranks)
        count = self.take(rows)
        counts = self.ranks.joined(torch.tensor([count])).tolist()
        self.batches = self.passes = RowBatches(counts, settings.batch_size, settings.seed)
        if min(counts) == 0:
            raise ValueError(
                f"of the data that {self.name} can learn from, {sum(counts)}, rank {counts.index(0)} of "
                f"{len(counts)} has none: use fewer ranks or more data"
            )
        self.begin()

    @abstractmethod
    def take(self, rows: Any) -> int:
        """Take up rows, as `part` returns them, and return how many of them are to be learned from."""

    def begin(self) -> None:
        """Do what needs all ranks and the numbers of their rows."""

    @abstractmethod
    def tensors(self) -> list[torch.Tensor]:
        """Return all that is kept of rows."""

    @classmethod
    @torch.random.fork_rng([])
    def build(cls, name: str, values: dict, dataset: Any) -> Any:
        """Return the network, made by its settings; see `Lesson.build`."""
        return cls.made(settings_of(cls.settings_type, name, values), dataset)

    @classmethod
    @abstractmethod
    def made(cls, how: Any, dataset: Any) -> Any:
        """Return the network of some settings."""

    @classmethod
    def learned(cls, network: torch.nn.Module, dataset: Any) -> int:
        """Return the number of rows that are not held out."""
        return len(dataset) - dataset.held_out

    @classmethod
    def part(cls, dataset: Any, ranks: RankGroup) -> Any:
        """Read this rank's rows."""
        return OwnRows.of(dataset, ranks)

    @classmethod
    def few(cls, dataset: Any, count: int) -> Any:
        """Read some rows of each kind."""
        return OwnRows.few(dataset, count)

    @classmethod
    def sketch(
        cls, network: Any, dataset: Any, settings: TrainingSettings, ranks: int
    ) -> tuple[Callable[[Any], torch.Tensor], list[Any], int]:
        """Return a pass over a few rows, and the bytes of a share of all."""
        lesson = cls(network, cls.few(dataset, _FEW), settings)
        each = sum(tensor.nbytes / len(tensor) for tensor in lesson.tensors() if len(tensor))
        return lesson.loss, lesson.probe(), round(each * len(dataset) / ranks)

    def probe(self) -> list[RowPass]:
        """Return a pass over the first rows."""
        count = int(self.batches.counts[self.ranks.rank])
        rows = torch.arange(min(max(PROBES), count), device=self.ranks.device)
        return [RowPass(rows, 1.0, rows, 0)]
