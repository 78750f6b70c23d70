"""Data to train on, made part by part by all ranks together.

What a run that was ended has made is kept, and the next one continues from it, on any number of ranks.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.settings import require_type
from mosaicdd.storage.atomic import require_new
from mosaicdd.storage.dataset_file import Dataset, DatasetParts, joined
from mosaicdd.torch_defaults import on_processor
from mosaicdd.training.generation import PartGenerator
from mosaicdd.training.settings import GenerationSettings


@on_processor()
def generate(
    path: str | os.PathLike,
    settings: GenerationSettings | None = None,
    *,
    ranks: Any = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Dataset | None:
    """Draw and solve data to train on, and write them to a file; all ranks call this together.

    Parameters
    ----------
    settings
        What is drawn; the defaults if not given.
    ranks
        Who shares the work, the samples being the same on any number of ranks: a communicator,
        `Ranks`, or None for this process alone.
    overwrite
        Whether a file that is there is replaced.
    progress
        Called with the fraction of this rank's work that is done.

    Returns
    -------
    Dataset
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
    settings = GenerationSettings() if settings is None else settings
    require_type("settings", settings, GenerationSettings)
    with Ranks.of(ranks) as everyone:
        generation = Generation(path, settings, everyone, overwrite=overwrite)
        return generation.run(progress)


class Generation:
    """Data that are to be made by all ranks together: checked first, then run; for arguments and errors see `generate`.

    The parts lie in ``PATH.parts`` until the file is complete.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings: GenerationSettings,
        ranks: Ranks | None = None,
        *,
        overwrite: bool = False,
    ):
        self._path, self._settings, self._ranks = path, settings, ranks or Ranks.alone()
        # As JSON gives it back.
        identity = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(settings).items()}
        self._parts = DatasetParts(Path(path), identity)

        def check() -> None:
            PartGenerator(settings)
            require_new(path, overwrite=overwrite)
            self._parts.open()

        self._ranks.on_root(check)

    def run(self, progress: Callable[[float], None] | None = None) -> Dataset | None:
        """Make what is missing of the parts, every ``size``-th on a rank, and write the file.

        Errors are raised on all ranks, and all parts are kept.
        """
        generator, parts, ranks = PartGenerator(self._settings), self._parts, self._ranks
        written: list[Dataset] = []

        def make() -> None:
            mine = range(ranks.rank, generator.parts, ranks.size)
            for done, number in enumerate(mine, start=1):
                if not parts.is_whole(number):
                    parts.write(number, generator.part(number))
                if progress:
                    progress(done / len(mine))

        def assemble() -> None:
            made = generator.dataset(**joined(parts.every(generator.parts)))
            if len(made) != self._settings.samples:
                raise RuntimeError(
                    f"{parts.folder} holds {len(made)} samples, {self._settings.samples} are to be "
                    "written; remove the folder, and they are made anew"
                )
            made.write(self._path)
            written.append(made)
            parts.remove()

        ranks.agree(make)
        ranks.on_root(assemble)
        return written[0] if written else None
