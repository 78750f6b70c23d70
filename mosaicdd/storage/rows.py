"""Samples in arrays with a row for each, of which a rank reads from a file the rows that it needs."""

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from mosaicdd.storage.hdf5 import SEALED, mark, open_any, open_to_read

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


class Samples:
    """Samples in arrays; the last ``validation`` of them are held out.

    Attributes
    ----------
    kind_of_file
        As messages call it.
    arrays
        Names of those that tell them from others, the first of which has a row for each.
    precision
        Of these in a hash.
    """

    kind_of_file: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]]
    precision: ClassVar[str] = "<f4"
    pde: str
    validation: float
    seed: int

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(getattr(self, self.arrays[0]))

    @property
    def held_out(self) -> int:
        """Number of samples that training does not see."""
        return round(self.validation * len(self))

    @property
    def content_hash(self) -> str:
        """SHA-256 of the samples, independent of the file that holds them."""
        digest = hashlib.sha256()
        for name in self.arrays:
            for slab in _slabs(getattr(self, name)):
                digest.update(np.ascontiguousarray(slab, dtype=self.precision).data)
        return digest.hexdigest()

    def describe(self, file: h5py.File) -> None:
        """Write to a new file what samples of all kinds have in common, but for their arrays."""
        mark(file, self.kind_of_file, SEALED)
        file.attrs.update(pde=self.pde, seed=self.seed, validation=self.validation)

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, more: Callable[[h5py.File], dict], *, whole: bool = True
    ) -> Self:
        """Read a file of them.

        Parameters
        ----------
        more
            Reads what samples of this kind have besides.
        whole
            Whether the arrays are read, or stay in the file until some rows are asked for.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is foreign, truncated or inconsistent; the message names it.
        """
        with open_to_read(path, cls.kind_of_file, SEALED) as file:
            attributes = file.attrs
            content: dict[str, Any] = {
                "pde": str(attributes["pde"]),
                "validation": float(attributes["validation"]),
                "seed": int(attributes["seed"]),
                **more(file),
            }
            for name in cls.arrays:
                content[name] = file[name][()] if whole else FileArray(path, file[name])
        try:
            return cls(**content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _slabs(array: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, _SLAB * len(array) // max(1, array.size))
    for first in range(0, len(array), rows):
        yield array[first : first + rows]
