"""A dataset made by several ranks, part by part, and continued where it was left."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from mosaicdd.storage.dataset_file import Dataset, DatasetParts, write_dataset
from mosaicdd.training.dataset import PartGenerator, assemble_dataset
from mosaicdd.training.generation_settings import GenerationSettings

Together = Callable[[Callable], object]
"""Calls a function on every rank; an error of one is raised on all. Waits for all of them."""


class ParallelGeneration:
    """One dataset file, made by all ranks together.

    Parameters
    ----------
    rank, size
        Number of this rank, and of all.
    together
        How the ranks wait for each other; one rank alone just calls.
    """

    def __init__(
        self,
        output: str | Path,
        settings: GenerationSettings,
        rank: int = 0,
        size: int = 1,
        together: Together = lambda function: function(),
    ):
        self._output = output
        self._settings = settings
        self._rank, self._size = rank, size
        self._together = together
        self._parts = DatasetParts(output, {n: _plain(v) for n, v in asdict(settings).items()})

    def open(self) -> None:
        """Prepare the folder of parts.

        Raises
        ------
        ValueError
            On all ranks, if parts of another dataset lie beside the output.
        """
        self._together(lambda: self._parts.open() if self._rank == 0 else None)

    def run(self, progress: Callable[[float], None] | None = None) -> Dataset | None:
        """Make what is missing of the parts, every ``size``-th on a rank, and write the file.

        Parameters
        ----------
        progress
            Called with the fraction of this rank's parts that is done.

        Returns
        -------
        Dataset
            What was written, on rank 0; None on the others.

        Raises
        ------
        RuntimeError
            On all ranks, if multigrid misses its residual.
        """
        generator = PartGenerator(self._settings)

        def make() -> None:
            mine = range(self._rank, generator.parts, self._size)
            for done, number in enumerate(mine, start=1):
                if self._parts.read(number) is None:
                    self._parts.write(number, generator.part(number))
                if progress:
                    progress(done / len(mine))

        self._together(make)
        if self._rank > 0:
            return None
        every = (self._parts.read(number) for number in range(generator.parts))
        dataset = assemble_dataset(self._settings, every)
        write_dataset(self._output, dataset)
        self._parts.remove()
        return dataset


def _plain(value):
    """Return a setting as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
