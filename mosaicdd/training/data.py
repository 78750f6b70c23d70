"""Data for every kind of network: of one equation, of media, or of squares of a nonlinear equation."""

import os
from collections.abc import Callable
from typing import Any

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.dataset_file import Dataset, write_dataset
from mosaicdd.storage.media_file import MediaDataset, write_media
from mosaicdd.storage.square_file import SquareDataset, write_squares
from mosaicdd.training.generation import PartGenerator
from mosaicdd.training.in_parts import Generation
from mosaicdd.training.media import MediaGenerator
from mosaicdd.training.settings import GenerationSettings, MediaSettings, SquareSettings
from mosaicdd.training.squares import SquareGenerator

_KINDS: dict[type, tuple[Any, Callable]] = {
    GenerationSettings: (PartGenerator, write_dataset),
    MediaSettings: (MediaGenerator, write_media),
    SquareSettings: (SquareGenerator, write_squares),
}


def generate(
    path: str | os.PathLike,
    settings: GenerationSettings | MediaSettings | SquareSettings | None = None,
    *,
    ranks: Any = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Dataset | MediaDataset | SquareDataset | None:
    """Draw and solve data to train on, and write them to a file; all ranks call this together.

    Parameters
    ----------
    settings
        What is drawn: `GenerationSettings` for networks of a linear equation, the defaults if not given;
        `MediaSettings`, random media of ``diffusion``, for the networks ``conductances`` and ``operator``;
        `SquareSettings`, of a nonlinear equation, for ``correction`` and ``unrolled``.
    ranks
        Who shares the work, the samples being the same on any number of ranks: a communicator,
        `Ranks`, or None for this process alone.
    overwrite
        Whether a file that is there is replaced.
    progress
        Called with the fraction of this rank's work that is done.

    Returns
    -------
    Dataset, MediaDataset or SquareDataset
        What was written, on rank 0; None on the others.

    Raises
    ------
    FileExistsError
        If the file is there and is not to be overwritten.
    ValueError
        If the equation is unknown, cannot be learned or draws no parameters of its own, or parts of other
        data lie beside the file.
    OSError
        If the file or a part of it cannot be written or read; what was made of the parts is kept.
    RuntimeError
        If multigrid misses its residual.
    """
    with Ranks.of(ranks) as everyone:
        generation = prepared(path, settings or GenerationSettings(), everyone, overwrite=overwrite)
        return generation.run(progress)


def prepared(
    path: str | os.PathLike,
    settings: GenerationSettings | MediaSettings | SquareSettings,
    ranks: Ranks | None = None,
    *,
    overwrite: bool = False,
) -> Generation[Any]:
    """Check what is to be drawn, and return what makes it; arguments and errors as `generate`."""
    kind, write = _KINDS[type(settings)]

    def maker() -> Any:
        generator = kind(settings)
        generator.check()
        return generator

    return Generation(path, settings, maker, write, ranks, overwrite=overwrite)
