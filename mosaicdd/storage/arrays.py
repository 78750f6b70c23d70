"""Arrays that are written to an open file part by part, as the ranks hand them over."""

import functools
from collections.abc import Callable

import h5py
import numpy as np


class ArrayWriter:
    """Writes to an open HDF5 file."""

    def __init__(self, file: h5py.File):
        self._file = file

    def create(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Add an array of zeros that parts can be written to."""
        self._file.create_dataset(name, shape=shape, dtype=dtype)

    def write(self, name: str, part: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part of an array to its place."""
        self._file[name][place] = part

    def into(self, name: str) -> Callable[[np.ndarray, tuple[slice, ...]], None]:
        """Return the `write` of one array."""
        return functools.partial(self.write, name)

    def history(self, history: dict[str, list[float]]) -> None:
        """Write one number per iteration and name."""
        for name, values in history.items():
            self._file[f"history/{name}"] = np.asarray(values, dtype=float)
