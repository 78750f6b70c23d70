"""Data drawn and solved in this process, and written nowhere."""

from mosaicdd.storage.dataset_file import joined
from mosaicdd.training.generation import PartGenerator


def generate_dataset(settings):
    generator = PartGenerator(settings)
    return generator.dataset(**joined(map(generator.part, range(generator.parts))))
