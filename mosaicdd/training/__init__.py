"""Data and networks: datasets of small problems, and networks trained on them.

To be read in this order: `settings`; `generation`, which draws data; `samples` and `losses`; `equation_lesson`, what a
network learns of them, and `family`, for a range of parameters; `trainer`, the steps of a training, with `objective`,
`optimisers` and `memory`; `loop`, a training from a dataset to a model file.

`generate` and `train` are the two functions that a program calls. They are imported at their first
use, because the command line reads the settings here where nothing slow may be imported.
"""

from typing import Any

from mosaicdd.training.settings import ExecutionSettings, GenerationSettings, TrainingSettings

__all__ = [
    "ExecutionSettings",
    "GenerationSettings",
    "TrainingSettings",
    "generate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "generate":
        from mosaicdd.training.generation import generate

        return generate
    if name == "train":
        from mosaicdd.training.loop import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
