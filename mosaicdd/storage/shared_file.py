"""Files that all ranks write together: the root writes the parts that the ranks hand over."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike

import h5py
import numpy as np

from mosaicdd.parallel.collect import Part, Sink, collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.hdf5 import new_file


class SharedFile:
    """An HDF5 file that the root has open for all ranks.

    All ranks call each method together. An error of the root is raised on all of them.

    Parameters
    ----------
    file
        On the root the open file, None on the others.
    clock
        Measures the writing of parts.
    """

    def __init__(
        self,
        ranks: Ranks,
        file: h5py.File | None,
        clock: AbstractContextManager | None = None,
    ):
        self.ranks, self._file = ranks, file
        self._clock = nullcontext() if clock is None else clock
        self._dtypes: dict[str, str] = {}  # of the arrays that were created

    def on_root(self, function: Callable[[h5py.File], object]) -> None:
        """Call a function of the open file on the root."""
        file = self._file
        self.ranks.run_on_all(lambda: None if file is None else function(file))

    def create(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Add an array of zeros, if this file has not created one of this name."""
        if name not in self._dtypes:
            self.on_root(lambda file: file.create_dataset(name, shape=shape, dtype=dtype))
            self._dtypes[name] = dtype

    def into(self, name: str) -> Sink:
        """Return the function that writes a part of an array to its place; the root alone calls it.

        A part ``(1, ...)`` with an axis more than the array is written without its first axis.
        """
        file = self._file

        def write(part: np.ndarray, place: tuple[slice, ...]) -> None:
            if file is not None:
                with self._clock:
                    array = file[name]
                    more = len(place) > array.ndim
                    array[place[1:] if more else place] = part[0] if more else part

        return write

    def fill(self, name: str, parts: Iterable[Part]) -> None:
        """Write the parts that the ranks have of an array that was created."""
        collect(self.ranks, parts, self._dtypes[name], self.into(name))

    def write(self, name: str, part: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part that the root has to its place."""
        self.on_root(lambda file: self.into(name)(part, place))


@contextmanager
def writing_together(path: str | PathLike, kind: str, ranks: Ranks) -> Iterator[SharedFile]:
    """Open a new file of a kind for all ranks; it appears when it is complete.

    `OSError` on all ranks, if it cannot be written; a file that was there before stays.
    """
    with ranks.held_by_root(lambda: new_file(path, kind)) as file:
        yield SharedFile(ranks, file)
