"""A network's lesson, and the data that it learns from, read by each of the ranks that train together."""

import os
from dataclasses import asdict, dataclass
from typing import Any, Self

from mosaicdd.local_solvers.networks.family import FamilyNetwork
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.registry import build_network, network_class
from mosaicdd.problems.equations import equation
from mosaicdd.storage.atomic import trust_seal
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.equation_lesson import EquationLesson
from mosaicdd.training.family import FamilyLesson
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings


def find_lesson(network: str) -> type[EquationLesson]:
    """Return what a network is taught by; errors as `network_class`."""
    return FamilyLesson if issubclass(network_class(network), FamilyNetwork) else EquationLesson


@dataclass(frozen=True)
class Course:
    """What is learned by which network; the same on all ranks."""

    # lesson, name, values: of the network: its lesson, its name, and those of its settings that are
    # not the defaults
    lesson: type[EquationLesson]
    name: str
    values: dict
    settings: dict  # all of the network's settings
    dataset: Dataset
    dataset_hash: str  # of its content

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
        dataset = _read(data, ranks)

        def own() -> dict:
            network = build_network(name, values, dataset.subdomain)
            lesson.require(name, network, dataset, settings, execution)
            execution.require_ranks(ranks.size, settings, lesson.learned(network, dataset))
            return asdict(network.settings)

        described = ranks.agreed(own)
        return cls(
            lesson, name, values, described, dataset, ranks.of_root(lambda: dataset.content_hash)
        )

    def network(self) -> Network:
        """Return a network with random weights."""
        return build_network(self.name, self.values, self.dataset.subdomain)

    def taught(self, settings: TrainingSettings, ranks: RankGroup) -> EquationLesson:
        """Return the lesson of a network with random weights; called by all ranks."""
        return self.lesson(self.network(), self.dataset, settings, ranks)


def _read(data: str | os.PathLike | Dataset, ranks: RankGroup) -> Dataset:
    """Return a dataset of a linear equation; the checksum of a file is checked by rank 0 alone."""

    def read() -> Dataset:
        dataset = data if isinstance(data, Dataset) else Dataset.read(data)
        equation(dataset.pde)
        return dataset

    if isinstance(data, Dataset):
        return read()
    dataset = ranks.agreed(lambda: read() if ranks.is_root else None)
    if not ranks.is_root:
        trust_seal(data)
    return ranks.agreed(lambda: read() if dataset is None else dataset)
