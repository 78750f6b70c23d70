"""Arrays that are written to an open file part by part, as the ranks hand them over."""

import functools
from collections.abc import Callable

import h5py
import numpy as np

from mosaicdd.storage.checksums import Part, part_of, seal


class ArrayWriter:
    """Writes to an open HDF5 file."""

    def __init__(self, file: h5py.File):
        self._file = file
        self._parts: dict[str, list[Part]] = {}

    def create(self, name: str, shape: tuple[int, int], dtype: str) -> None:
        """Add an array of zeros that parts can be written to."""
        self._file.create_dataset(name, shape=shape, dtype=dtype)
        self._parts[name] = []

    def write(self, name: str, part: np.ndarray, place: tuple[slice, slice]) -> None:
        """Write a part of an array to its place."""
        array = self._file[name]
        part = np.asarray(part, dtype=array.dtype)
        array[place] = part
        self._parts[name].append(part_of(part, place, array.shape))

    def into(self, name: str) -> Callable[[np.ndarray, tuple[slice, slice]], None]:
        """Return the `write` of one array."""
        return functools.partial(self.write, name)

    def history(self, history: dict[str, list[float]]) -> None:
        """Write one number per iteration and name."""
        for name, values in history.items():
            self._file[f"history/{name}"] = np.asarray(values, dtype=float)

    def seal(self) -> None:
        """Write the checksums, when everything else is written."""
        seal(self._file, self._parts)
