"""Arrays of a file of which a rank reads the rows that it needs, and the hash of arrays, wherever they are."""

import hashlib
import os
from collections.abc import Iterator

import h5py
import numpy as np

from mosaicdd.storage.hdf5 import open_any

_SLAB = 2**24  # values that are read at once where all are read


class FileArray:
    """An array that stays in its file: indexed, it reads.

    Parameters
    ----------
    array
        Of the open file; it is closed in between.
    """

    def __init__(self, path: str | os.PathLike, array: h5py.Dataset):
        self.path, self.name = path, array.name.lstrip("/")
        self.shape, self.dtype = array.shape, array.dtype
        self.size = array.size

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Read some rows.

        Raises
        ------
        ValueError
            If the file is no longer what it was, or the rows hold what is not finite.
        """
        with open_any(self.path, "dataset") as file:
            values = file[self.name][rows]
        if not np.isfinite(values).all():
            first, last, _ = rows.indices(len(self))
            raise ValueError(
                f"{self.path}: the {self.name} of rows {first} to {last - 1} must be finite, found NaN or "
                "infinity"
            )
        return values


def hash_of(arrays: list[np.ndarray], dtype: str) -> str:
    """Return the SHA-256 of all values, one array after the other, read slab by slab."""
    digest = hashlib.sha256()
    for array in arrays:
        for slab in _slabs(array):
            digest.update(np.ascontiguousarray(slab, dtype=dtype).data)
    return digest.hexdigest()


def _slabs(array: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, _SLAB * len(array) // max(1, array.size))
    for first in range(0, len(array), rows):
        yield array[first : first + rows]
