"""Checkpoints: named arrays of the whole domain, whatever the ranks, and a state of numbers and texts.

``/state`` is JSON, and ``identity``, an attribute, JSON of what must be equal for the checkpoint to be of use. Nothing in a
file is executed.

- Of an iteration ``/problems/NUMBER`` has them for each problem: on lattice lines constant in y and in x ``lines/0`` and
  ``lines/1``, and of methods on the whole grid ``field``. Of several problems a checkpoint is a folder. Its files
  ``begun-NUMBER`` hold those that were at work, ``ended-NUMBER`` those that had ended, with ``rows``, their part of the
  solution file.
- Of a march ``/levels``, ``(n, ny + 1, nx + 1)``, holds the values at its last times.

- Of a training the state is a tree of numbers, texts and tensors, in which ``{"array": i, "axes": [...]}`` stands for the
  array ``/arrays/i``, whose axes had this order in memory: products of matrices round differently in another.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import h5py
import numpy as np
import torch

from mosaicdd.discretisation.given_conditions import conditions_of
from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.hdf5 import first_difference, open_to_read
from mosaicdd.storage.shards import SharedFile, writing_together

SOLVE, MARCH, TRAINING = "a solve", "steps in time", "a training"
"""What a checkpoint is of."""
_NEEDED = {SOLVE: "problems", MARCH: "records", TRAINING: "tree"}  # of the state


@contextmanager
def writing_checkpoint(
    path: str | PathLike, ranks: Ranks, of: str, identity: dict, state: dict
) -> Iterator[SharedFile]:
    """Open a checkpoint for writing by all ranks; it replaces the one before when all is written.

    Parameters
    ----------
    of
        `SOLVE`, `MARCH` or `TRAINING`.
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
    stored, state = _read(path, of)
    identity = json.loads(json.dumps(identity))
    if told := first_difference(stored, identity, identity):
        raise ValueError(f"{path} belongs to another problem: its {told}")
    return state


def _read(path: str | PathLike, of: str) -> tuple[dict, dict[str, Any]]:
    """Read what a checkpoint belongs to, and its state."""
    with open_to_read(path, "checkpoint") as file:
        state = json.loads(file["state"][()].tobytes()) if "state" in file else {"of": of}
        identity = json.loads(file.attrs.get("identity", "{}"))
    if (held := state.get("of", MARCH)) != of:
        raise ValueError(f"{path} is the checkpoint of {held}, not of {of}")
    if _NEEDED[of] not in state:
        raise ValueError(
            f"{path} is a checkpoint by an earlier version of mosaicdd: go on with that version, or begin anew without "
            "resume"
        )
    return identity, state


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


def digest_of_sides(problems: Iterable[Problem], grid: Grid) -> str:
    """Return a digest of the data on the outline of problems."""
    digest = hashlib.sha256()
    for problem in problems:
        if problem.plain:
            for boundary in problem.boundaries(grid):
                for edge in boundary.edges.values():
                    digest.update(edge.tobytes())
        else:
            for condition in conditions_of(problem, grid):
                digest.update(condition.digest())
    return digest.hexdigest()[:16]


def write_training_checkpoint(path: str | PathLike, identity: dict, state: dict) -> None:
    """Write the state of a training and its identity, whole or not at all; errors as `atomic_file`.

    The state is of dictionaries, lists and tuples of numbers, texts, None and tensors; keys are
    texts or whole numbers.
    """
    arrays: list[np.ndarray] = []
    tree = {"tree": _flatten(state, arrays)}
    with writing_checkpoint(path, Ranks.alone(), TRAINING, identity, tree) as file:
        file.add("arrays/", {str(number): array for number, array in enumerate(arrays)})


def read_training_checkpoint(path: str | PathLike) -> tuple[dict, dict]:
    """Read a checkpoint: what it belongs to, and its state; errors as `open_to_read`."""
    identity, state = _read(path, TRAINING)
    arrays = read_arrays(path, "arrays")
    return identity, _restore(state["tree"], [arrays[str(n)] for n in range(len(arrays))])


def _flatten(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return JSON for a tree, and append its tensors to the arrays."""
    match value:
        case torch.Tensor():
            strides = value.stride()
            axes = sorted(range(value.ndim), key=lambda axis: -strides[axis])
            arrays.append(value.detach().cpu().permute(axes).contiguous().numpy())
            return {"array": len(arrays) - 1, "axes": axes}
        case dict():
            return {"items": [[key, _flatten(item, arrays)] for key, item in value.items()]}
        case tuple():
            return {"tuple": [_flatten(item, arrays) for item in value]}
        case list():
            return {"list": [_flatten(item, arrays) for item in value]}
    return value


def _restore(value: Any, arrays: list[np.ndarray]) -> Any:
    """Undo `_flatten`."""
    match value:
        case {"array": number, "axes": axes}:
            return torch.as_tensor(arrays[number]).permute(np.argsort(axes).tolist())
        case {"items": items}:
            return {key: _restore(item, arrays) for key, item in items}
        case {"tuple": items}:
            return tuple(_restore(item, arrays) for item in items)
        case {"list": items}:
            return [_restore(item, arrays) for item in items]
    return value
