"""Data drawn and solved in this process, and written nowhere."""

from mosaicdd.storage.dataset_file import joined
from mosaicdd.training.generation import PartGenerator
from mosaicdd.training.settings import SquareSettings
from mosaicdd.training.squares import SquareGenerator


def generate_dataset(settings):
    kind = SquareGenerator if isinstance(settings, SquareSettings) else PartGenerator
    generator = kind(settings)
    return generator.dataset(**joined(map(generator.part, range(generator.parts))))
