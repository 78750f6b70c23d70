"""Coefficients and sources in files of any size: a rank reads the part that it needs."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mosaicdd.storage.atomic import version_of
from mosaicdd.storage.hdf5 import open_any
from mosaicdd.storage.raster import RASTERS, Raster, read_raster


class FieldFile:
    """An array in a file, which is read when it is sliced; in place of an array in a `Problem`.

    Nothing stays open between two readings, so that it can be kept, copied and sent to other ranks.

    ``spec``: ``FILE.npy``, or ``FILE.h5:/dataset`` of any HDF5 file; or a raster, ``FILE.asc``, ``FILE.csv``,
    ``FILE.tif`` or ``FILE.nc``, of several variables ``FILE.nc:/NAME``, which every rank reads whole.

    Attributes
    ----------
    path
        Of the file.
    shape, dtype
        Of the whole array: ``(ny + 1, nx + 1)`` at the nodes, of several problems ``(n, ny + 1, nx +
        1)``.
    times
        Of how many times it is, if it is the solution of a series; else None.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If it is neither, is damaged, or the array is missing or does not hold real numbers.
    """

    def __init__(self, spec: str | PathLike):
        self.name = str(spec)
        path, colon, dataset = self.name.rpartition(":/")
        self.path = Path(path if colon else self.name)
        self._dataset = dataset if colon else None
        self._is_raster = self.path.suffix.lower() in RASTERS
        if not colon and self.path.suffix != ".npy" and not self._is_raster:
            raise ValueError(
                f"{spec}: a field is a number, expr:FORMULA, FILE.npy or FILE.h5:/dataset, or a raster, "
                f"{', '.join(RASTERS)}"
            )
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: the file of field values is missing")
        self._version = version_of(self.path)
        self.shape: tuple[int, ...]
        self.dtype: np.dtype
        self.shape, self.dtype = self._read(None)
        self.times = self._times()
        if self.dtype.kind not in "fiu":
            raise ValueError(f"{spec} must hold real numbers, got {self.dtype}")
        if not self.shape:
            raise ValueError(
                f"{spec} holds one number, not values at nodes (ny + 1, nx + 1); give the number itself"
            )

    @property
    def as_value(self) -> tuple:
        """What tells it from others: a file that has changed is not read."""
        return self.name, self._version

    @property
    def coords(self) -> Mapping[str, np.ndarray]:
        """The coordinates along the axes of a raster, by their letters, where it has any."""
        return self._raster.coords if self._is_raster else {}

    @property
    def _raster(self) -> Raster:
        return read_raster(self.path, self._dataset, self._version)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __getitem__(self, place: Any) -> np.ndarray:
        """Read a part; `ValueError` if the file has changed since it was looked at first."""
        if version_of(self.path) != self._version:
            raise ValueError(f"{self.path} has changed since it was opened; open it again")
        return self._read(place)

    def __repr__(self) -> str:
        return f"FieldFile({self.name!r}, shape={self.shape})"

    def _times(self) -> int | None:
        if self._is_raster or self._dataset != "solution":
            return None
        with open_any(self.path, "field") as file:
            return self.shape[0] if "time" in file and self.shape else None

    def _read(self, place: Any) -> Any:
        """Read a part; if that is None, return the shape and the type."""
        if self._is_raster:
            values = self._raster.values
            return (values.shape, values.dtype) if place is None else np.array(values[place])
        if self._dataset is None:
            array = npy_array(self.path, "r")
            return (array.shape, array.dtype) if place is None else np.array(array[place])
        with open_any(self.path, "field") as file:
            array = file.get(f"/{self._dataset}")
            if not hasattr(array, "shape"):  # nothing, or a group
                raise ValueError(f"{self.path} holds no array /{self._dataset}")
            return (array.shape, array.dtype) if place is None else array[place]


def npy_array(path: Path, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Read an array, or map it into memory; objects are refused.

    `ValueError` if the file is no such array, or cut short.
    """
    with path.open("rb") as file:
        begins = file.read(len(np.lib.format.MAGIC_PREFIX))
    if begins != np.lib.format.MAGIC_PREFIX:  # of which numpy would say that it may be a pickle
        raise ValueError(f"{path}: not an array of numpy's: it begins with {begins!r}")
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not an array of numpy's ({error})") from error
