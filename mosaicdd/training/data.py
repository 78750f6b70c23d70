"""Data for every kind of network: of one equation, of media, or of squares of a nonlinear equation."""

import os
from collections.abc import Callable
from typing import Any

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.media_file import MediaDataset
from mosaicdd.storage.square_file import SquareDataset
from mosaicdd.training.generation import generate as generate_dataset
from mosaicdd.training.media import generate_media
from mosaicdd.training.settings import GenerationSettings, MediaSettings, SquareSettings
from mosaicdd.training.squares import prepared_squares
from mosaicdd.unsupported import Unsupported


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
        If the equation is unknown or cannot be learned, or parts of other data lie beside the file.
    Unsupported
        If several ranks are to draw media.
    RuntimeError
        If multigrid misses its residual.
    """
    with Ranks.of(ranks) as everyone:
        if isinstance(settings, SquareSettings):
            return prepared_squares(path, settings, everyone, overwrite=overwrite).run(progress)
        if isinstance(settings, MediaSettings):
            if everyone.size > 1:
                raise Unsupported(f"media are drawn on one rank, there are {everyone.size}")
            return generate_media(path, settings, overwrite=overwrite, progress=progress)
        return generate_dataset(
            path, settings, ranks=everyone, overwrite=overwrite, progress=progress
        )
