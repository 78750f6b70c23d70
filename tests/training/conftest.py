"""A small dataset, and a process group over the ranks of the test."""

import pytest
import torch.distributed as dist
from drawn_data import generate_dataset, generation

from mosaicdd.training.objective import rank_group


@pytest.fixture(scope="session")
def small_dataset():
    return generate_dataset(generation(samples=300, windows=100, method="direct"))


@pytest.fixture(scope="session")
def ranks():
    """Return the group of all ranks, opened from their communicator."""
    from mpi4py import MPI

    with rank_group(MPI.COMM_WORLD) as group:
        yield group


@pytest.fixture
def collectives():
    """Return what says how many collective operations of the process group there have been."""
    return lambda: dist.group.WORLD._get_sequence_number_for_group()


@pytest.fixture
def gradients():
    """Return a function of a trainer and the number of a step: its losses, and the gradients."""

    def of(trainer, epoch=3):
        passes, parallel = trainer.lesson.draw(epoch, trainer.micro_batch), trainer.parallel
        losses, _ = parallel.backward(passes, [])
        return losses, [p.grad.clone() for p in parallel.objective.weights()]

    return of
