"""Data and networks: datasets of small problems, and networks trained on them.

To be read in this order: `settings`; `data`, which `generation` and `media` draw; `lesson`, what a network is
taught, on solutions of linear equations (`equation_lesson`), on rows of a dataset (`row_lesson`: `conductances`) or on media that ranks share (`whole_media`, through `coarse_solve`); `course`, a lesson with its
data; `trainer`, its steps, with `objective`, `optimisers` and `memory`; `loop`, a training from a dataset to a model file.

`generate` and `train` are the two functions that a program calls. They are imported at their first
use, because the command line reads the settings here where nothing slow may be imported.
"""

from typing import Any

from mosaicdd.training.settings import (
    ExecutionSettings,
    GenerationSettings,
    MediaSettings,
    TrainingSettings,
)

__all__ = [
    "ExecutionSettings",
    "GenerationSettings",
    "MediaSettings",
    "TrainingSettings",
    "generate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "generate":
        from mosaicdd.training.data import generate

        return generate
    if name == "train":
        from mosaicdd.training.loop import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
