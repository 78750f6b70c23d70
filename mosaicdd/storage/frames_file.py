"""Frames of a march that goes on: values at the nodes for one time after another.

They are appended to a plain file, which a killed process leaves whole: little-endian float64, row by row. The file does not
say how many there are.
"""

import fcntl
import math
import os
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from mosaicdd.storage.atomic import naming

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
