"""The networks that have a training of their own, by name."""

from mosaicdd.local_solvers.networks.registry import NETWORKS
from mosaicdd.settings import unknown
from mosaicdd.training.conductances import ConductanceLesson
from mosaicdd.training.corrections import CorrectionLesson, UnrolledLesson
from mosaicdd.training.operators import OperatorLesson
from mosaicdd.training.serial import Lesson

LESSONS: dict[str, type[Lesson]] = {
    lesson.name: lesson
    for lesson in (ConductanceLesson, OperatorLesson, CorrectionLesson, UnrolledLesson)
}


def find_lesson(network: str) -> type[Lesson] | None:
    """Return what a network is taught by; None of those that `train_network` trains.

    Raises
    ------
    ValueError
        If there is no network of this name.
    """
    if network not in (*LESSONS, *NETWORKS) and ":" not in network:
        known = sorted({*LESSONS, *NETWORKS})
        raise ValueError(unknown("network", network, known, ", or your own module:Class"))
    return LESSONS.get(network)
