"""The lessons of networks, by name."""

from mosaicdd.local_solvers.networks.family import FamilyNetwork
from mosaicdd.local_solvers.networks.registry import NETWORKS, network_class
from mosaicdd.settings import unknown
from mosaicdd.training.conductances import ConductanceLesson
from mosaicdd.training.corrections import CorrectionLesson, UnrolledLesson
from mosaicdd.training.equation_lesson import EquationLesson, FamilyLesson
from mosaicdd.training.lesson import Lesson
from mosaicdd.training.operators import OperatorLesson
from mosaicdd.training.row_lesson import RowLesson

LESSONS: dict[str, type[RowLesson]] = {
    lesson.name: lesson
    for lesson in (ConductanceLesson, OperatorLesson, CorrectionLesson, UnrolledLesson)
}
"""Of networks that do not give a linear equation's solutions."""


def find_lesson(network: str) -> type[Lesson]:
    """Return what a network is taught by.

    Raises
    ------
    ValueError
        If there is no network of this name, or one of the user's own lacks something.
    """
    if network in LESSONS:
        return LESSONS[network]
    if network not in NETWORKS and ":" not in network:
        known = sorted({*LESSONS, *NETWORKS})
        raise ValueError(unknown("network", network, known, ", or your own module:Class"))
    return FamilyLesson if issubclass(network_class(network), FamilyNetwork) else EquationLesson
