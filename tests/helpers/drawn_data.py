"""Data drawn and solved in this process, and written nowhere; trainers of networks that learn from them."""

import time

import torch

from mosaicdd import GenerationSettings, TrainingSettings
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.storage.dataset_file import joined
from mosaicdd.training.equation_lesson import EquationLesson
from mosaicdd.training.generation import PartGenerator
from mosaicdd.training.trainer import Trainer


def generation(cells=8, size=0.125, axes=2, **settings):
    """Return settings of data of squares, or of cubes, of so many cells."""
    return GenerationSettings(subdomain=Subdomain(cells, size, axes), **settings)


def generate_dataset(settings):
    generator = PartGenerator(settings)
    return generator.dataset(**joined(map(generator.part, range(generator.parts))))


def trainer_of(dataset, name, network, *, ranks=None, execution=None, **settings):
    """Return what trains a network of some settings, of the same first weights each time."""
    torch.manual_seed(0)
    built, chosen = build_network(name, network, dataset.subdomain), TrainingSettings(**settings)
    lesson = EquationLesson(built, dataset, chosen, ranks)
    return Trainer(lesson, chosen, time.perf_counter(), ranks, execution)
