"""Lessons whose ranks have some rows of a dataset each, of random media above all, and the passes over these rows.

A batch is drawn for all ranks together, from the seed and the number of the step, and a rank takes what it has of it:
on average its share. A rank without any takes one of its samples, which counts nothing, so that all make as many
passes.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch

from mosaicdd.local_solvers.networks.registry import build_row_network
from mosaicdd.storage.samples import Samples
from mosaicdd.training.lesson import Lesson, placed
from mosaicdd.training.memory import PROBES
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.reports import RelativeReport, Report
from mosaicdd.training.settings import TrainingSettings

_FEW = 16  # rows of each kind that a plan of the memory is made with
_NO_POINTS = "it has no loss at points"


@dataclass(frozen=True)
class OwnRows:
    """The rows of a dataset that one rank has."""

    whole: Any  # the dataset, which may stay in its file
    # learned, held_out: those to learn from, and those that errors are measured on, in memory
    learned: Any
    held_out: Any

    @classmethod
    def of(cls, whole: Any, ranks: RankGroup, *part: slice) -> "OwnRows":
        """Read this rank's share of both kinds, or a part of each row."""
        learned, others = len(whole) - whole.held_out, ranks.share(whole.held_out)
        held_out = slice(learned + others.start, learned + others.stop)
        return cls(whole, whole.rows(ranks.share(learned), *part), whole.rows(held_out, *part))

    @classmethod
    def few(cls, whole: Any, count: int) -> "OwnRows":
        """Read the first rows of each kind."""
        learned = len(whole) - whole.held_out
        return cls(
            whole,
            whole.rows(slice(min(count, learned))),
            whole.rows(slice(learned, learned + count)),
        )


@dataclass(frozen=True)
class RowPass:
    """A forward pass of a step over rows of one rank."""

    rows: torch.Tensor  # their numbers among those of the rank, ``(B,)``
    share: float  # factor of its mean loss in the mean over the ranks
    places: torch.Tensor  # of the rows in the batch of all ranks, ``(B,)``
    pieces: float = 1.0  # so many of these rows are one
    kind = "data_loss"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def first(self, count: int) -> "RowPass":
        """Return a pass over copies of the first rows of this one."""
        return replace(self, rows=self.rows[:count].clone(), places=self.places[:count])


class RowBatches:
    """The global batches of a training, drawn with replacement; each rank has so many rows, one at least."""

    def __init__(self, counts: Sequence[int], size: int, seed: int):
        self._ends = [0, *accumulate(counts)]
        self.samples, self.size = self._ends[-1], size
        self.per_epoch = -(-self.samples // size)
        self._seed = seed

    @property
    def counts(self) -> torch.Tensor:
        """How many rows each rank has."""
        return torch.tensor(self._ends).diff()

    def first(self, ranks: RankGroup) -> int:
        """Return the number of a rank's first row."""
        return self._ends[ranks.rank]

    def indices(self, step: int) -> torch.Tensor:
        """Return the rows of a step by their numbers among those of all ranks, ``(size,)``."""
        rng = np.random.default_rng([self._seed, step])
        return torch.from_numpy(rng.integers(0, self.samples, self.size))

    def draw(self, step: int, ranks: RankGroup, micro_batch: int) -> list[RowPass]:
        """Return the passes of a step on one rank, as many as on any other, of at most so many rows, if not 0."""
        chosen, ranks = self.indices(step), ranks.replicas
        owner = torch.bucketize(chosen, torch.tensor(self._ends[1:]), right=True)
        most = int(torch.bincount(owner).max())
        places = torch.nonzero(owner == ranks.rank)[:, 0]
        count = -(-most // micro_batch) if micro_batch else 1
        parts = [
            RowPass(
                (chosen[part] - self.first(ranks)).to(ranks.device),
                len(part) * ranks.size / self.size,
                part.to(ranks.device),
            )
            for part in places.tensor_split(count)
        ]
        return [part if len(part) else _silent(part) for part in parts]


def _silent(part: RowPass) -> RowPass:
    """Return a pass over one row that counts nothing, and in no place of the batch."""
    row = part.rows.new_zeros(1)
    return replace(part, rows=row, places=row - 1)


class RowLesson(Lesson):
    """Errors are relative, on held-out rows, and said beside those without the network."""

    dataset_type: ClassVar[type[Samples]]  # what it learns from, whose arrays stay in their file
    kind: ClassVar[Any]  # of the network, of `ROW_NETWORKS`
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
        ranks = ranks or RankGroup()
        self.ranks, self.mesh = ranks.replicas, ranks.mesh
        self.like = placed(network, settings, ranks)
        count = self.take(rows)
        counts = self.ranks.joined(torch.tensor([count])).tolist()
        self.batches = self.passes = RowBatches(counts, settings.batch_size, settings.seed)
        if min(counts) == 0:
            raise ValueError(
                f"of the data that {self.kind.name} can learn from, {sum(counts)}, rank {counts.index(0)} of "
                f"{len(counts)} has none: use fewer ranks or more data"
            )

    @abstractmethod
    def take(self, rows: Any) -> int:
        """Take up rows, as `part` returns them, and return how many of them are to be learned from."""

    @abstractmethod
    def tensors(self) -> list[torch.Tensor]:
        """Return all that is kept of rows."""

    @classmethod
    def build(cls, name: str, values: dict, dataset: Any) -> Any:
        """Return the network for the rows' squares; see `Lesson.build`."""
        return build_row_network(name, values, dataset.pde, dataset.subdomain.cells)

    @classmethod
    def read(cls, data: Any) -> Any:
        """Return a dataset, whose arrays stay in its file."""
        kind = cls.dataset_type
        return data if isinstance(data, kind) else kind.read(data, whole=False)

    @classmethod
    def learned(cls, network: torch.nn.Module, dataset: Any) -> int:
        """Return the number of rows that are not held out."""
        return len(dataset) - dataset.held_out

    @classmethod
    def part(cls, dataset: Any, ranks: RankGroup) -> Any:
        """Read this rank's rows."""
        return OwnRows.of(dataset, ranks)

    @classmethod
    def sketch(
        cls, network: Any, dataset: Any, settings: TrainingSettings, ranks: int
    ) -> tuple[Callable[[Any], torch.Tensor], list[Any], int]:
        """Return a pass over a few rows, and the bytes of a share of all."""
        lesson = cls(network, OwnRows.few(dataset, _FEW), settings)
        each = sum(tensor.nbytes / len(tensor) for tensor in lesson.tensors() if len(tensor))
        return lesson.loss, lesson.probe(), round(each * len(dataset) / ranks)

    def probe(self) -> list[RowPass]:
        """Return a pass over the first rows."""
        count = int(self.batches.counts[self.ranks.rank])
        rows = torch.arange(min(max(PROBES), count), device=self.ranks.device)
        return [RowPass(rows, 1.0, rows)]
