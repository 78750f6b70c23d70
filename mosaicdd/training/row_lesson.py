"""Lessons whose ranks have some rows of a dataset each, of random media above all, and the passes over these rows.

A batch is drawn for all ranks together, from the seed and the number of the step, and a rank takes what it has of it:
on average its share. A rank without any takes one of its samples, which counts nothing, so that all make as many
passes.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch

from mosaicdd.local_solvers.networks.registry import settings_of
from mosaicdd.storage.samples import MediaDataset, Samples
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
        mine, others = shares(whole, ranks)
        return cls(whole, whole.rows(mine, *part), whole.rows(others, *part))

    @classmethod
    def few(cls, whole: Any, count: int) -> "OwnRows":
        """Read the first rows of each kind."""
        learned = len(whole) - whole.held_out
        return cls(
            whole,
            whole.rows(slice(min(count, learned))),
            whole.rows(slice(learned, learned + count)),
        )


def shares(whole: Any, ranks: RankGroup) -> tuple[slice, slice]:
    """Return which rows a rank is to learn from, and which of those that are held out are its own."""
    learned = len(whole) - whole.held_out
    others = ranks.share(whole.held_out)
    return ranks.share(learned), slice(learned + others.start, learned + others.stop)


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
    # name, settings_type: of the kind of network, and what it is made by
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
        ranks = ranks or RankGroup()
        self.ranks, self.mesh = ranks.replicas, ranks.mesh
        self.like = placed(network, settings, ranks)
        count = self.take(rows)
        counts = self.ranks.joined(torch.tensor([count])).tolist()
        self.batches = self.passes = RowBatches(counts, settings.batch_size, settings.seed)
        if min(counts) == 0:
            raise ValueError(
                f"of the data that {self.name} can learn from, {sum(counts)}, rank {counts.index(0)} of "
                f"{len(counts)} has none: use fewer ranks or more data"
            )

    @abstractmethod
    def take(self, rows: Any) -> int:
        """Take up rows, as `part` returns them, and return how many of them are to be learned from."""

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


_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness


class MediaLesson(RowLesson):
    """Of a network that is taught random media; errors are geometric means of relative ones in held-out media."""

    dataset_type = MediaDataset
    needs_labels = True
    kinds: np.ndarray  # of all held-out media
    _plain: torch.Tensor  # mean logarithms of the errors of plain averages, as `held_out_errors`

    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return the sums of the logarithms of this rank's errors, with the network and without, and their number."""
        wrong = self.held_out_errors(self.network)
        return [float(wrong.sum()), float(self._plain.sum()), float(len(wrong))]

    def errors(self, sums: list[float], *, everywhere: bool) -> list[float]:
        """Return the geometric means of the errors of the network, and of plain averages."""
        *totals, count = sums
        return (torch.tensor(totals, dtype=torch.float64) / count).exp().tolist()

    def held_out_errors(self, network: Any) -> torch.Tensor:
        """Return the mean logarithm of the error in each of this rank's held-out media, without a network of averages."""
        raise NotImplementedError

    def validation(self, best: Report, errors: torch.Tensor) -> dict[str, float]:
        """Return the errors by kinds of media, from the logarithms in all that are held out."""
        plain = self.ranks.joined(self._plain)
        figures = {"error": best.figures["error"], "averaged": best.figures["plain"]}
        for kind in sorted(set(self.kinds)):
            alike = torch.from_numpy(self.kinds == kind)
            figures[f"{kind}"] = float(errors[alike].mean().exp())
            figures[f"{kind}, averaged"] = float(plain[alike].mean().exp())
        return figures


def roughest(rough: torch.Tensor, errors: torch.Tensor) -> float:
    """Return how rough a medium may be: up to there, held-out media of all roughnesses are accurate.

    The errors are mean logarithms.
    """
    rough, order = rough.sort()
    bound = float(rough[0])
    for part, wrong in zip(rough.chunk(_ALIKE), errors[order].chunk(_ALIKE), strict=True):
        if wrong.mean() > math.log(_ACCURATE):
            break
        bound = float(part[-1])
    return float(f"{bound:.2g}")
