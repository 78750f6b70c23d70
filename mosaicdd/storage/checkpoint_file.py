"""Checkpoints of an iteration: the interface of the whole domain, and which problem it belongs to.

``/lines/0`` and ``/lines/1`` are all lines constant in y and in x, whatever the number of ranks.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

import numpy as np

from mosaicdd.storage.arrays import ArrayWriter
from mosaicdd.storage.hdf5 import SEALED, mark, new_file, open_to_read

FORMAT_VERSION = SEALED


def line_name(axis: int) -> str:
    """Return the name of the lines constant in an axis."""
    return f"lines/{axis}"


@contextmanager
def writing_checkpoint(path: str | PathLike, problem: dict) -> Iterator[ArrayWriter]:
    """Open a checkpoint for writing; it replaces the one before when all is written.

    Parameters
    ----------
    problem
        What must be equal for the checkpoint to be of use.
    """
    with new_file(path) as file:
        mark(file, "checkpoint", FORMAT_VERSION)
        file.attrs["problem"] = json.dumps(problem, sort_keys=True)
        yield ArrayWriter(file)


def read_checkpoint(
    path: str | PathLike, problem: dict
) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, list[float]]]:
    """Read the lines and the history of a checkpoint.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is damaged, or belongs to another problem; the message names the first difference.
    """
    with open_to_read(path, "checkpoint", FORMAT_VERSION) as file:
        stored = json.loads(file.attrs["problem"])
        for name, value in problem.items():
            if stored.get(name) != value:
                raise ValueError(
                    f"{path} belongs to another problem: its {name} is {stored.get(name)}, "
                    f"not {value}"
                )
        lines = tuple(file[line_name(axis)][()] for axis in (0, 1))
        history = {name: data[()].tolist() for name, data in file["history"].items()}
    if not all(np.isfinite(part).all() for part in lines):
        raise ValueError(f"{path} holds values that are not finite; start without --resume")
    return lines, history
