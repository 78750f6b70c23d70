"""Checkpoints of solves: named arrays of the whole domain, and a state of numbers and texts.

``/state`` is JSON, and ``identity``, an attribute, JSON of what must be equal for the checkpoint to be of use. The arrays
are those of the whole domain, whatever the number of ranks.

- Of an iteration ``/problems/NUMBER`` has them for each problem: on lattice lines constant in y and in x ``lines/0`` and
  ``lines/1``, and of methods on the whole grid ``field``. Of several problems a checkpoint is a folder. Its files
  ``begun-NUMBER`` hold those that were at work, ``ended-NUMBER`` those that had ended, with ``rows``, their part of the
  solution file.
- Of a march ``/levels``, ``(n, ny + 1, nx + 1)``, holds the values at its last times.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import h5py
import numpy as np

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.hdf5 import first_difference, open_to_read
from mosaicdd.storage.shared_file import SharedFile, writing_together

SOLVE, MARCH = "a solve", "steps in time"
"""What a checkpoint is of."""


@contextmanager
def writing_checkpoint(
    path: str | PathLike, ranks: Ranks, of: str, identity: dict, state: dict
) -> Iterator[SharedFile]:
    """Open a checkpoint for writing by all ranks; it replaces the one before when all is written.

    Parameters
    ----------
    of
        `SOLVE` or `MARCH`.
    identity
        What must be equal for it to be of use, by name.
    state
        Numbers and texts, in lists and by name.
    """

    def begin(file: h5py.File) -> None:
        file.attrs["identity"] = json.dumps(identity, sort_keys=True)
        text = json.dumps({"of": of, **state})
        file["state"] = np.frombuffer(text.encode(), np.uint8)

    with writing_together(path, "checkpoint", ranks) as file:
        file.on_root(begin)
        yield file


def read_state(path: str | PathLike, of: str, identity: dict) -> dict[str, Any]:
    """Read the state of a checkpoint.

    Errors as `open_to_read`, and `ValueError` if it is one of something else, or belongs to another problem, with the
    first difference.
    """
    with open_to_read(path, "checkpoint") as file:
        if "state" not in file:
            raise ValueError(
                f"{path} is a checkpoint by an earlier version of mosaicdd: go on with that version, or begin anew without "
                "resume"
            )
        state = json.loads(file["state"][()].tobytes())
        stored = json.loads(file.attrs["identity"])
    if (held := state.get("of", MARCH)) != of:
        raise ValueError(f"{path} is the checkpoint of {held}, not of {of}")
    identity = json.loads(json.dumps(identity))
    if told := first_difference(stored, identity, identity):
        raise ValueError(f"{path} belongs to another problem: its {told}")
    return state


def read_array(path: str | PathLike, name: str, place: tuple[slice, ...] = ()) -> np.ndarray | None:
    """Read a part of an array of a checkpoint, by default all of it; None if there is none of this name."""
    with open_to_read(path, "checkpoint") as file:
        return file[name][place] if name in file else None


def read_arrays(path: str | PathLike, group: str) -> dict[str, np.ndarray]:
    """Read all arrays below a name of a checkpoint, by the rest of their names."""
    arrays: dict[str, np.ndarray] = {}

    def take(name: str, array: h5py.Group | h5py.Dataset) -> None:
        if isinstance(array, h5py.Dataset):
            arrays[name] = array[()]

    with open_to_read(path, "checkpoint") as file:
        if group in file:
            file[group].visititems(take)
    return arrays
