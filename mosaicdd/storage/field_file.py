"""Coefficients and sources in files of any size: a rank reads the part that it needs.

Frames of a march that goes on: values at the nodes for one time after another.

They are appended to a plain file, which a killed process leaves whole: little-endian float64, row by row. The file does not
say how many there are.
"""

import fcntl
import math
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from mosaicdd.storage.atomic import naming, version_of
from mosaicdd.storage.hdf5 import open_any
from mosaicdd.storage.raster import RASTERS, Raster, read_raster


class FieldFile:
    """An array in a file, which is read when it is sliced; in place of an array in a `Problem`.

    Nothing stays open between two readings, so that it can be kept, copied and sent to other ranks.

    Parameters
    ----------
    spec
        ``FILE.npy``, or ``FILE.h5:/dataset`` of any HDF5 file; or a raster, ``FILE.asc``, ``FILE.csv``,
        ``FILE.tif`` or ``FILE.nc``, of several variables ``FILE.nc:/NAME``, which every rank reads whole.
    first
        Of a dataset, what is taken along its first axes, which the array then does not have.
    coords
        The coordinates along the axes, by their letters, where the file itself does not say.

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

    def __init__(
        self,
        spec: str | PathLike,
        first: tuple[int, ...] = (),
        coords: Mapping[str, np.ndarray] | None = None,
    ):
        self.name, self._first, self._coords = str(spec), first, coords or {}
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
        self.times: int | None = None
        if self._dataset == "solution" and not first:
            with open_any(self.path, "field") as file:
                self.times = self.shape[0] if "time" in file and self.shape else None
        if self.dtype.kind not in "fiu":
            raise ValueError(f"{spec} must hold real numbers, got {self.dtype}")
        if not self.shape:
            raise ValueError(
                f"{spec} holds one number, not values at nodes (ny + 1, nx + 1); give the number itself"
            )

    @property
    def as_value(self) -> tuple:
        """Its fingerprint: name and version; a file that has changed is not read."""
        return self.name, self._first, self._version

    @property
    def coords(self) -> Mapping[str, np.ndarray]:
        """The coordinates along the axes, by their letters, where there are any."""
        return self._raster.coords if self._is_raster else self._coords

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
            if place is None:
                return array.shape[len(self._first) :], array.dtype
            place = place if isinstance(place, tuple) else (place,)
            return np.asarray(array[(*self._first, *place)])


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


_TYPE = np.dtype("<f8")


class RawFrames:
    """A file of frames of a shape, which is made if there is none; the process that has it open has it for itself.

    Raises
    ------
    FileExistsError
        If another process has it open.
    OSError
        If it cannot be made.
    """

    def __init__(self, path: str | PathLike, shape: tuple[int, ...]):
        self.path = Path(path)
        self._shape = shape
        self._bytes = math.prod(shape) * _TYPE.itemsize
        with naming(path):
            self.path.touch()
            self._file = self.path.open("r+b", buffering=0)
        if not _locked(self._file):
            self._file.close()
            raise FileExistsError(
                f"{path} is in use: another run writes the same output; choose another name, or wait"
            )

    def keep(self, count: int) -> None:
        """Drop all frames but the first ones; `ValueError` if there are fewer."""
        size = os.fstat(self._file.fileno()).st_size
        if size < count * self._bytes:
            raise ValueError(
                f"{self.path} holds {size // self._bytes} frames, {count} are needed: it is not of this run"
            )
        with naming(self.path):
            self._file.truncate(count * self._bytes)

    def write(self, number: int, values: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part of a frame to its place; `OSError` if it cannot be written, as on a full disk."""
        *rows, columns = place
        with naming(self.path):
            for row in np.ndindex(values.shape[:-1]):
                first = (*(p.start + i for p, i in zip(rows, row, strict=True)), columns.start)
                node = int(np.ravel_multi_index(first, self._shape))
                at = number * self._bytes + node * _TYPE.itemsize
                rest = np.ascontiguousarray(values[row], _TYPE).data.cast("B")
                while len(rest):
                    done = os.pwrite(self._file.fileno(), rest, at)
                    rest, at = rest[done:], at + done

    def read(self, number: int) -> np.ndarray:
        """Return a frame."""
        self._file.seek(number * self._bytes)
        return np.fromfile(self._file, _TYPE, self._bytes // _TYPE.itemsize).reshape(self._shape)

    def close(self) -> None:
        """Leave the file to others; a second time nothing is done."""
        self._file.close()

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
        self.close()


class ArrayFrames:
    """Frames of a shape in memory, as those of `RawFrames` in a file."""

    def __init__(self, shape: tuple[int, ...]):
        self._shape = shape
        self._frames: dict[int, np.ndarray] = {}

    def keep(self, count: int) -> None:
        """Drop all frames but the first ones."""
        self._frames = {number: frame for number, frame in self._frames.items() if number < count}

    def write(self, number: int, values: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part of a frame to its place."""
        self._frames.setdefault(number, np.empty(self._shape))[place] = values

    def read(self, number: int) -> np.ndarray:
        """Return a frame, not to be changed."""
        return self._frames[number]

    def close(self) -> None:
        """Keep all: there is nothing else."""

    remove = close


def remove_idle_frames(path: str | PathLike) -> None:
    """Remove the files ``PATH.3`` of ranks, but for those that a process has open.

    `OSError` if one cannot be removed.
    """
    path = Path(path)
    for other in path.parent.iterdir():  # no pattern: the name is the user's
        stem, _, rank = other.name.rpartition(".")
        if stem == path.name and rank.isascii() and rank.isdecimal() and other.is_file():
            with other.open("r+b", buffering=0) as file:
                if _locked(file):
                    other.unlink(missing_ok=True)


def _locked(file: IO[bytes]) -> bool:
    """Lock a file for this process until it is closed; say whether no other one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        return True
    return True
