"""Checkpoints of iterations and of trainings, and what each belongs to.

Of an iteration, it is the interface of the whole domain: ``/lines/0`` and ``/lines/1`` are all lines
constant in y and in x, whatever the number of ranks. Methods on all nodes add ``/field``, the values there. Of several
problems a checkpoint is a folder. Each file in it holds some of them, with the same in ``/problems/NUMBER``: ``begun-NUMBER`` of
those that were at work, ``ended-NUMBER`` of those that had ended, with what the solution file is to have of them.

Of a training, it is a tree of numbers, texts and tensors: ``/tree`` is JSON in which ``{"array": i,
"axes": [...]}`` stands for the array ``/arrays/i``, whose axes had this order in memory: products of
matrices round differently in another. Nothing in a file is executed. A checksum over all of it tells
a damaged file from a whole one.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

import h5py
import numpy as np
import torch

from mosaicdd.storage import hdf5
from mosaicdd.storage.atomic import atomic_file

FIELD = "field"
ROWS = "rows/"
_TRAINING_VERSION = 1


class CheckpointWriter(hdf5.ArrayWriter):
    """Fills an open checkpoint: arrays part by part, and what is told of each of several problems."""

    def told(self, group: str, **told: Any) -> None:
        """Write what is told of a problem, as JSON."""
        for name, value in told.items():
            self._file[group or "/"].attrs[name] = json.dumps(value)

    def arrays(self, group: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write whole arrays of a problem."""
        for name, array in arrays.items():
            self._file[f"{group}{name}"] = array


@contextmanager
def writing_checkpoint(path: str | PathLike, problem: dict) -> Iterator[CheckpointWriter]:
    """Open a checkpoint of a problem for writing; it replaces the one before when all is written."""
    with hdf5.new_file(path, "checkpoint") as file:
        file.attrs["problem"] = json.dumps(problem, sort_keys=True)
        yield CheckpointWriter(file)


def group_of(number: int | None) -> str:
    """Return where a file holds what belongs to one of several problems; of a single one at its root."""
    return "" if number is None else f"problems/{number}/"


def read_checkpoint(
    path: str | PathLike, problem: dict, group: str = ""
) -> tuple[tuple[np.ndarray, ...], dict[str, list[float]]]:
    """Read the lines, none of a method on the whole grid, and the history of a problem; errors as `open_to_read` and `require_same`."""
    with hdf5.open_to_read(path, "checkpoint") as file:
        require_same(path, json.loads(file.attrs["problem"]), problem)
        at = file[group or "/"]
        axes = at[hdf5.line_name(0)].ndim if hdf5.line_name(0) in at else 0
        lines = tuple(at[hdf5.line_name(axis)][()] for axis in range(axes))
        history = _history(at)
    if not all(np.isfinite(part).all() for part in lines):
        raise ValueError(f"{path} holds values that are not finite; start without resume=True")
    return lines, history


def read_told(path: str | PathLike, problem: dict) -> dict[int, dict[str, Any]]:
    """Read what is told of each of the problems of a file, its history among it; errors as `read_checkpoint`."""
    with hdf5.open_to_read(path, "checkpoint") as file:
        require_same(path, json.loads(file.attrs["problem"]), problem)
        return {
            int(number): {name: json.loads(text) for name, text in at.attrs.items()}
            | {"history": _history(at)}
            for number, at in file["problems"].items()
        }


def read_rows(path: str | PathLike, number: int) -> dict[str, np.ndarray]:
    """Read what the solution file is to have of a problem that had ended; errors as `open_to_read`."""
    with hdf5.open_to_read(path, "checkpoint") as file:
        at = file[f"{group_of(number)}{ROWS}"]
        rows: dict[str, np.ndarray] = {}
        at.visititems(
            lambda name, a: rows.update({name: a[()]} if isinstance(a, h5py.Dataset) else {})
        )
        return rows


def _history(at: h5py.Group) -> dict[str, list[float]]:
    return {name: data[()].tolist() for name, data in at["history"].items()}


def require_same(path: str | PathLike, stored: dict, identity: dict) -> None:
    """Raise `ValueError` if a checkpoint belongs to another problem, with the first difference."""
    if told := hdf5.first_difference(stored, identity, identity):
        raise ValueError(f"{path} belongs to another problem: its {told}")


def read_field(
    path: str | PathLike, place: tuple[slice, ...], group: str = ""
) -> np.ndarray | None:
    """Read some nodes of the field of a problem, ``(rows, columns)``; None if it has none."""
    name = group + FIELD
    with hdf5.open_to_read(path, "checkpoint") as file:
        return file[name][place] if name in file else None


def write_training_checkpoint(path: str | PathLike, identity: dict, state: dict) -> None:
    """Write a checkpoint and what must be equal for it to be of use, whole or not at all; errors as `atomic_file`.

    The state is of dictionaries, lists and tuples of numbers, texts, None and tensors; keys are
    texts or whole numbers.
    """
    arrays: list[np.ndarray] = []
    tree = json.dumps(_flatten(state, arrays))
    # Made in memory: HDF5 does not survive a disk that fills up under an open file.
    with h5py.File("checkpoint", "w", driver="core", backing_store=False) as file:
        hdf5.mark(file, "training checkpoint", _TRAINING_VERSION)
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
    with hdf5.open_to_read(path, "training checkpoint", _TRAINING_VERSION) as file:
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
