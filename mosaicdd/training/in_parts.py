"""Datasets that are made part by part, by all ranks together.

What a run that was ended has made is kept, and the next one continues from it, on any number of ranks.
"""

import os
from collections.abc import Callable, Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.atomic import require_new
from mosaicdd.storage.dataset_file import DatasetParts

Data = TypeVar("Data", bound=Sized)
Made_co = TypeVar("Made_co", covariant=True)


class PartMaker(Protocol[Made_co]):
    """Makes the parts of a dataset in any order, and puts them together."""

    @property
    def parts(self) -> int:
        """Their number."""
        ...

    def part(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a part by name."""
        ...

    def dataset(self, parts: Sequence[dict[str, np.ndarray]]) -> Made_co:
        """Put all parts, in their order, together."""
        ...


class Generation(Generic[Data]):
    """A dataset that is to be made by all ranks together: checked first, then run.

    Parameters
    ----------
    path
        Of the dataset's file; the parts lie in ``PATH.parts`` until it is complete.
    settings
        A dataclass of what the parts depend on, the number of ``samples`` among it.
    maker
        Makes what makes the parts, after it has checked that this can be done.
    write
        Writes the dataset to a path.
    ranks
        They share the work; by default one alone.
    overwrite
        Whether a file that is there is replaced.

    Raises
    ------
    FileExistsError
        If the file is there and is not to be overwritten.
    ValueError
        If parts of another dataset lie beside the file, or from ``maker``.
    OSError
        If the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings: Any,
        maker: Callable[[], PartMaker[Data]],
        write: Callable[[str | os.PathLike, Data], None],
        ranks: Ranks | None = None,
        *,
        overwrite: bool = False,
    ):
        self._path, self._maker, self._write = path, maker, write
        self._samples = settings.samples
        self._ranks = ranks or Ranks.alone()
        # As JSON gives it back.
        identity = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(settings).items()}
        self._parts = DatasetParts(Path(path), identity)

        def check() -> None:
            maker()
            require_new(path, overwrite=overwrite)
            self._parts.open()

        self._ranks.on_root(check)

    def run(self, progress: Callable[[float], None] | None = None) -> Data | None:
        """Make what is missing of the parts, every ``size``-th on a rank, and write the file.

        Returns
        -------
        Data
            What was written, on rank 0; None on the others.

        Raises
        ------
        OSError
            On all ranks, if a part or the file cannot be written, or the root cannot read a part: then
            all parts are kept.
        """
        maker, parts = self._maker(), self._parts
        dataset: Data | None = None

        def make() -> None:
            mine = range(self._ranks.rank, maker.parts, self._ranks.size)
            for done, number in enumerate(mine, start=1):
                if parts.read(number) is None:
                    parts.write(number, maker.part(number))
                if progress:
                    progress(done / len(mine))

        def assemble() -> None:
            nonlocal dataset
            made = maker.dataset(parts.every(maker.parts))
            if len(made) != self._samples:
                raise RuntimeError(
                    f"{parts.folder} holds {len(made)} samples, {self._samples} are to be "
                    "written; remove the folder, and they are made anew"
                )
            self._write(self._path, made)
            dataset = made
            parts.remove()

        self._ranks.agree(make)
        self._ranks.on_root(assemble)
        return dataset
