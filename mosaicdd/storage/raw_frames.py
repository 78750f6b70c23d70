"""Values at the nodes for one time after another in a plain file, which a killed process leaves whole.

Frames are appended as little-endian float64, row by row. It is what a series is kept in until it is complete;
how many frames count is for others to know. The process that has it open has it for itself.
"""

import fcntl
import math
import os
from os import PathLike
from pathlib import Path

import numpy as np

from mosaicdd.storage.atomic import naming

_TYPE = np.dtype("<f8")


class RawFrames:
    """A file of frames, which is made if there is none.

    Parameters
    ----------
    shape
        Of each frame.

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
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise FileExistsError(
                f"{path} is in use: another run writes the same output; choose another name, or wait"
            ) from error
        except OSError:  # some network file systems have no locks
            return

    def keep(self, count: int) -> None:
        """Drop all frames but the first ones.

        Raises
        ------
        ValueError
            If there are fewer.
        """
        size = os.fstat(self._file.fileno()).st_size
        if size < count * self._bytes:
            raise ValueError(
                f"{self.path} holds {size // self._bytes} frames, {count} are needed: it is not of this run"
            )
        with naming(self.path):
            self._file.truncate(count * self._bytes)

    def write(self, number: int, values: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part of a frame to its place.

        Raises
        ------
        OSError
            If it cannot be written, as on a full disk.
        """
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
