"""What a march through time keeps while it goes on; complete, it is a solution file.

Its checkpoint is ``/levels``, ``(n, ny + 1, nx + 1)``, and where it is, as JSON. Its frames, values at the nodes for one
time after another, are appended to a plain file, which a killed process leaves whole: little-endian float64, row by
row; how many count is for others to know.
"""

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.grid import Grid
from mosaicdd.storage.atomic import naming
from mosaicdd.storage.checkpoint_file import require_same
from mosaicdd.storage.hdf5 import new_file, open_to_read

Write = Callable[[int, np.ndarray, tuple[slice, ...]], None]
"""``write(level, values, place)``."""


@contextmanager
def writing_march(
    path: str | PathLike, identity: dict, state: dict, levels: int, grid: Grid
) -> Iterator[Write]:
    """Open a checkpoint of so many levels for writing; it replaces the one before when all is written.

    ``identity`` is what must be equal for it to be of use, ``state`` numbers and texts, in lists
    and by name.
    """
    with new_file(path, "checkpoint") as file:
        file.attrs["identity"] = json.dumps(identity, sort_keys=True)
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        file.create_dataset("state", data=text)
        values = file.create_dataset("levels", (levels, *grid.nodes), "f8")

        def write(level: int, part: np.ndarray, place: tuple[slice, ...]) -> None:
            values[(level, *place)] = part

        yield write


def read_march(path: str | PathLike, identity: dict) -> dict:
    """Read the state of a checkpoint; errors as `open_to_read` and `require_same`."""
    with open_to_read(path, "checkpoint") as file:
        if "levels" not in file:
            raise ValueError(f"{path} is the checkpoint of a solve, not of steps in time")
        require_same(path, json.loads(file.attrs["identity"]), json.loads(json.dumps(identity)))
        return json.loads(file["state"][()].tobytes())


def read_levels(path: str | PathLike, place: Slices) -> list[np.ndarray]:
    """Read some nodes of all fields of a checkpoint."""
    with open_to_read(path, "checkpoint") as file:
        return list(file["levels"][(slice(None), *place)])


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
