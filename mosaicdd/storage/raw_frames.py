"""Values at the nodes for one time after another in a plain file, which a killed process leaves whole.

Frames are appended as little-endian float64, row by row. It is what a series is kept in until it is complete;
how many frames count is for others to know.
"""

import os
from os import PathLike
from pathlib import Path

import numpy as np

_TYPE = np.dtype("<f8")


class RawFrames:
    """A file of frames.

    Parameters
    ----------
    shape
        Of each frame.
    """

    def __init__(self, path: str | PathLike, shape: tuple[int, ...]):
        self.path = Path(path)
        self._shape = shape
        self._bytes = shape[0] * shape[1] * _TYPE.itemsize

    def keep(self, count: int) -> None:
        """Drop all frames but the first ones.

        Raises
        ------
        ValueError
            If there are fewer.
        """
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < count * self._bytes:
            raise ValueError(
                f"{self.path} holds {size // self._bytes} frames, {count} are needed: it is not of this run"
            )
        self.path.touch()
        os.truncate(self.path, count * self._bytes)

    def write(self, number: int, values: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part of a frame to its place."""
        rows, columns = place
        with self.path.open("r+b") as file:
            for row, line in zip(range(rows.start, rows.stop), values, strict=True):
                at = row * self._shape[1] + columns.start
                file.seek(number * self._bytes + at * _TYPE.itemsize)
                file.write(np.ascontiguousarray(line, _TYPE).data)

    def read(self, number: int) -> np.ndarray:
        """Return a frame."""
        with self.path.open("rb") as file:
            file.seek(number * self._bytes)
            return np.fromfile(file, _TYPE, self._shape[0] * self._shape[1]).reshape(self._shape)

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
