"""Checkpoints of iterations and of trainings, and what each belongs to.

Of an iteration, it is the interface of the whole domain: ``/lines/0`` and ``/lines/1`` are all lines
constant in y and in x, whatever the number of ranks. Newton's method on the grid adds ``/field``, the values
at all nodes.

Of a training, it is a tree of numbers, texts and tensors: ``/tree`` is JSON in which ``{"array": i,
"axes": [...]}`` stands for the array ``/arrays/i``, whose axes had this order in memory: products of
matrices round differently in another. Nothing in a file is executed. A checksum over all of it tells
a damaged file from a whole one.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import h5py
import numpy as np
import torch

from mosaicdd.storage.atomic import atomic_file
from mosaicdd.storage.hdf5 import (
    ArrayWriter,
    first_difference,
    line_name,
    mark,
    new_file,
    open_to_read,
)

FIELD = "field"
_TRAINING_VERSION = 1


@contextmanager
def writing_checkpoint(path: str | PathLike, problem: dict) -> Iterator[ArrayWriter]:
    """Open a checkpoint of a problem for writing; it replaces the one before when all is written."""
    with new_file(path, "checkpoint") as file:
        file.attrs["problem"] = json.dumps(problem, sort_keys=True)
        yield ArrayWriter(file)


def read_checkpoint(
    path: str | PathLike, problem: dict
) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, list[float]]]:
    """Read the lines and the history of a checkpoint; errors as `open_to_read` and `require_same`."""
    with open_to_read(path, "checkpoint") as file:
        require_same(path, json.loads(file.attrs["problem"]), problem)
        axes = file[line_name(0)].ndim
        lines = tuple(file[line_name(axis)][()] for axis in range(axes))
        history = {name: data[()].tolist() for name, data in file["history"].items()}
    if not all(np.isfinite(part).all() for part in lines):
        raise ValueError(f"{path} holds values that are not finite; start without resume=True")
    return lines, history


def require_same(path: str | PathLike, stored: dict, identity: dict) -> None:
    """Raise `ValueError` if a checkpoint belongs to another problem, with the first difference."""
    if told := first_difference(stored, identity, identity):
        raise ValueError(f"{path} belongs to another problem: its {told}")


def read_field(path: str | PathLike, place: tuple[slice, ...]) -> np.ndarray | None:
    """Read some nodes of the field of a checkpoint, ``(rows, columns)``; None if it has none."""
    with open_to_read(path, "checkpoint") as file:
        return file[FIELD][place] if FIELD in file else None


def write_training_checkpoint(path: str | PathLike, identity: dict, state: dict) -> None:
    """Write a checkpoint and what must be equal for it to be of use, whole or not at all; errors as `atomic_file`.

    The state is of dictionaries, lists and tuples of numbers, texts, None and tensors; keys are
    texts or whole numbers.
    """
    arrays: list[np.ndarray] = []
    tree = json.dumps(_flatten(state, arrays))
    # Made in memory: HDF5 does not survive a disk that fills up under an open file.
    with h5py.File("checkpoint", "w", driver="core", backing_store=False) as file:
        mark(file, "training checkpoint", _TRAINING_VERSION)
        file.attrs["identity"] = json.dumps(identity, sort_keys=True)
        file["tree"] = np.frombuffer(tree.encode(), dtype=np.uint8)
        for number, array in enumerate(arrays):
            file[f"arrays/{number}"] = array
        file.attrs["checksum"] = _checksum(tree, arrays)
        file.flush()
        image = file.id.get_file_image()
    with atomic_file(path) as temporary:
        temporary.write_bytes(image)


def read_training_checkpoint(path: str | PathLike) -> tuple[dict, dict]:
    """Read a checkpoint: what it belongs to, and its state; errors as `open_to_read`."""
    with open_to_read(path, "training checkpoint", _TRAINING_VERSION) as file:
        identity = json.loads(file.attrs["identity"])
        tree = file["tree"][()].tobytes().decode(errors="replace")
        count = len(file["arrays"]) if "arrays" in file else 0
        arrays = [file[f"arrays/{number}"][()] for number in range(count)]
        expected = str(file.attrs["checksum"])
    if _checksum(tree, arrays) != expected:
        raise ValueError(f"{path}: damaged, its checksum does not fit")
    return identity, _restore(json.loads(tree), arrays)


def _checksum(tree: str, arrays: list[np.ndarray]) -> str:
    digest = hashlib.sha256(tree.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _flatten(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return JSON for a tree, and append its tensors to the arrays."""
    if isinstance(value, torch.Tensor):
        strides = value.stride()
        axes = sorted(range(value.ndim), key=lambda axis: -strides[axis])
        arrays.append(value.detach().cpu().permute(axes).contiguous().numpy())
        return {"array": len(arrays) - 1, "axes": axes}
    if isinstance(value, dict):
        return {"items": [[key, _flatten(item, arrays)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_flatten(item, arrays) for item in value]}
    return value


def _restore(value: Any, arrays: list[np.ndarray]) -> Any:
    """Undo `_flatten`."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return torch.as_tensor(arrays[value["array"]]).permute(np.argsort(value["axes"]).tolist())
    if "items" in value:
        return {key: _restore(item, arrays) for key, item in value["items"]}
    if "tuple" in value:
        return tuple(_restore(item, arrays) for item in value["tuple"])
    return [_restore(item, arrays) for item in value["list"]]
