"""Checkpoints of a march through time: ``/levels``, ``(n, ny + 1, nx + 1)``, and where it is, as JSON.

The fields of a march are kept apart while it goes on, see `raw_frames`; complete, they are a solution file.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike

import numpy as np

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.grid import Grid
from mosaicdd.storage.checkpoint_file import require_same
from mosaicdd.storage.hdf5 import new_file, open_to_read

Write = Callable[[int, np.ndarray, tuple[slice, ...]], None]
"""``write(level, values, place)``."""


@contextmanager
def writing_march(
    path: str | PathLike, identity: dict, state: dict, levels: int, grid: Grid
) -> Iterator[Write]:
    """Open a checkpoint for writing; it replaces the one before when all is written.

    Parameters
    ----------
    identity
        What must be equal for the checkpoint to be of use.
    state
        Numbers and texts, in lists and by name.
    levels
        How many fields.
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
    """Read the state of a checkpoint.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is damaged, or belongs to another problem; the message names the first difference.
    """
    with open_to_read(path, "checkpoint") as file:
        if "levels" not in file:
            raise ValueError(f"{path} is the checkpoint of a solve, not of steps in time")
        require_same(path, json.loads(file.attrs["identity"]), json.loads(json.dumps(identity)))
        return json.loads(file["state"][()].tobytes())


def read_levels(path: str | PathLike, place: Slices) -> list[np.ndarray]:
    """Read some nodes of all fields of a checkpoint."""
    with open_to_read(path, "checkpoint") as file:
        return list(file["levels"][(slice(None), *place)])
