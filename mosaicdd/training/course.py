"""A lesson with its data: read by the ranks that train together, each what it needs, and checked."""

import os
from dataclasses import asdict, dataclass
from typing import Any, Self

from mosaicdd.storage.atomic import trust_seal
from mosaicdd.training.lesson import Lesson
from mosaicdd.training.lessons import find_lesson
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings


@dataclass(frozen=True)
class Course:
    """What is learned by which network; all of it the same on all ranks but for the part.

    Parameters
    ----------
    lesson, name, values
        Of the network: its lesson, its name, and those of its settings that are not the defaults.
    settings
        All of the network's settings.
    dataset, dataset_hash
        Whole, its arrays perhaps in their file, and the hash of its content.
    part
        What this rank needs of it.
    """

    lesson: type[Lesson]
    name: str
    values: dict
    settings: dict
    dataset: Any
    dataset_hash: str
    part: Any

    @classmethod
    def of(
        cls,
        name: str,
        values: dict,
        data: Any,
        settings: TrainingSettings,
        execution: ExecutionSettings,
        ranks: RankGroup,
    ) -> Self:
        """Read data and check that the network can learn from them as the settings ask; on all ranks.

        Raises
        ------
        ValueError
            If the network, the data, the settings and the ranks do not fit each other.
        OSError
            If the data cannot be read.
        """
        lesson = find_lesson(name)
        dataset = _read(lesson, data, ranks)

        def part() -> tuple[dict, Any]:
            network = lesson.build(name, values, dataset)
            lesson.require(name, network, dataset, settings, execution)
            execution.require_ranks(ranks.size, settings, lesson.learned(network, dataset))
            return asdict(network.settings), lesson.part(dataset, ranks)

        own, mine = ranks.agreed(part)
        dataset_hash = ranks.of_root(lambda: dataset.content_hash)
        return cls(lesson, name, values, own, dataset, dataset_hash, mine)

    def network(self) -> Any:
        """Return a network with random weights."""
        return self.lesson.build(self.name, self.values, self.dataset)

    def taught(self, settings: TrainingSettings, ranks: RankGroup) -> Lesson:
        """Return the lesson of a network with random weights; called by all ranks."""
        lesson: Any = self.lesson
        return lesson(self.network(), self.part, settings, ranks)


def _read(lesson: type[Lesson], data: Any, ranks: RankGroup) -> Any:
    """Read a dataset, or what is to be known of it; the checksum of a file is checked by rank 0 alone."""
    if not isinstance(data, str | os.PathLike):
        return lesson.read(data)
    dataset = ranks.agreed(lambda: lesson.read(data) if ranks.is_root else None)
    if not ranks.is_root:
        trust_seal(data)
    return ranks.agreed(lambda: dataset if ranks.is_root else lesson.read(data))
