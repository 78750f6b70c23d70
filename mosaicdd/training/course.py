"""The lessons by name; and a lesson with its data, of which each of the ranks that train together reads what it needs."""

import os
from dataclasses import asdict, dataclass
from typing import Any, Self

from mosaicdd.former import refuse_former
from mosaicdd.lattice.axes import times
from mosaicdd.local_solvers.networks.family import FamilyNetwork
from mosaicdd.local_solvers.networks.registry import NETWORKS, network_class
from mosaicdd.settings import unknown
from mosaicdd.storage.atomic import trust_seal
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.conductances import ConductanceLesson
from mosaicdd.training.equation_lesson import EquationLesson, FamilyLesson
from mosaicdd.training.lesson import Lesson
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.row_lesson import RowLesson
from mosaicdd.training.settings import MEDIUM_CELLS, ExecutionSettings, TrainingSettings
from mosaicdd.training.whole_media import WholeMediaLesson
from mosaicdd.unsupported import Unsupported

LESSONS: dict[str, type[RowLesson]] = {ConductanceLesson.kind.name: ConductanceLesson}
"""Of networks that do not give a linear equation's solutions."""


def known_networks() -> list[str]:
    """Return the names of all networks that can be trained."""
    return sorted({*LESSONS, *NETWORKS})


def find_lesson(network: str) -> type[Lesson]:
    """Return what a network is taught by; errors as `network_class`."""
    refuse_former("network", network)
    if network in LESSONS:
        return LESSONS[network]
    if network not in NETWORKS and ":" not in network:
        raise ValueError(
            unknown("network", network, known_networks(), ", or your own module:Class")
        )
    return FamilyLesson if issubclass(network_class(network), FamilyNetwork) else EquationLesson


_NO_DIMS = (
    "dims {}: what {} learns from here are small problems, which a rank has whole; leave it out, or train conductances "
    "on whole media, of generate --media --cells 1024"
)


@dataclass(frozen=True)
class Course:
    """What is learned by which network; all of it the same on all ranks but for the part."""

    # lesson, name, values: of the network: its lesson, its name, and those of its settings that are
    # not the defaults
    lesson: type[Lesson]
    name: str
    values: dict
    settings: dict  # all of the network's settings
    # dataset, dataset_hash: whole, its arrays perhaps in their file, and the hash of its content
    dataset: Any
    dataset_hash: str
    part: Any  # what this rank needs of it

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

        `ValueError` if network, data, settings and ranks do not fit each other.
        """
        lesson = find_lesson(name)
        dataset = _read(lesson, data, ranks)
        if isinstance(dataset, MediaDataset) and dataset.cells > MEDIUM_CELLS:
            lesson = WholeMediaLesson
        elif execution.dims is not None:
            raise Unsupported(_NO_DIMS.format(times(execution.dims), name))

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
