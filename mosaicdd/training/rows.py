"""Lessons whose ranks have some rows of a dataset each: whose they are, and the passes over them.

A batch is drawn for all ranks together, from the seed and the number of the step, and a rank takes what it has of it:
on average its share. A rank without any takes one of its samples, which counts nothing, so that all make as many
passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from mosaicdd.training.rank_group import RankGroup


@dataclass(frozen=True)
class OwnRows:
    """The rows of a dataset that one rank has.

    Parameters
    ----------
    whole
        The dataset, which may stay in its file.
    learned, held_out
        Those to learn from, and those that errors are measured on, in memory.
    """

    whole: Any
    learned: Any
    held_out: Any

    @classmethod
    def of(cls, whole: Any, ranks: RankGroup) -> "OwnRows":
        """Read this rank's share of both kinds."""
        mine, others = shares(whole, ranks)
        return cls(whole, whole.rows(mine), whole.rows(others))

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
    """A forward pass of a step over rows of one rank.

    Parameters
    ----------
    rows
        Their numbers among those of the rank, ``(B,)``.
    share
        Factor of its mean loss in the mean over the ranks.
    places
        Of the rows in the batch of all ranks, ``(B,)``.
    first_row
        The batch's first, by its number among those of all ranks.
    """

    rows: torch.Tensor
    share: float
    places: torch.Tensor
    first_row: int
    kind = "data_loss"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def first(self, count: int) -> "RowPass":
        """Return a pass over copies of the first rows of this one."""
        return replace(self, rows=self.rows[:count].clone(), places=self.places[:count])


class RowBatches:
    """The global batches of a training, drawn with replacement.

    Parameters
    ----------
    counts
        How many rows to learn from each rank has, one at least.
    size
        Of a batch.
    """

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
        chosen = self.indices(step)
        owner = torch.bucketize(chosen, torch.tensor(self._ends[1:]), right=True)
        most = int(torch.bincount(owner).max())
        places = torch.nonzero(owner == ranks.rank)[:, 0]
        count = -(-most // micro_batch) if micro_batch else 1
        parts = [
            RowPass(
                (chosen[part] - self.first(ranks)).to(ranks.device),
                len(part) * ranks.size / self.size,
                part.to(ranks.device),
                int(chosen[0]),
            )
            for part in places.tensor_split(count)
        ]
        return [part if len(part) else _silent(part) for part in parts]


def _silent(part: RowPass) -> RowPass:
    """Return a pass over one row that counts nothing, and in no place of the batch."""
    row = part.rows.new_zeros(1)
    return replace(part, rows=row, places=row - 1)
