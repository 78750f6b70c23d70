"""Checkpoints of trainings: a tree of numbers, texts and tensors.

``/tree`` is JSON in which ``{"array": i, "axes": [...]}`` stands for the array ``/arrays/i``, whose axes had this
order in memory: products of matrices round differently in another. Nothing in a file is executed. A checksum over all of it
tells a damaged file from a whole one.
"""

import hashlib
import json
from os import PathLike
from typing import Any

import h5py
import numpy as np
import torch

from mosaicdd.storage import hdf5
from mosaicdd.storage.atomic import atomic_file

_VERSION = 1


def write_training_checkpoint(path: str | PathLike, identity: dict, state: dict) -> None:
    """Write a checkpoint and what must be equal for it to be of use, whole or not at all; errors as `atomic_file`.

    The state is of dictionaries, lists and tuples of numbers, texts, None and tensors; keys are
    texts or whole numbers.
    """
    arrays: list[np.ndarray] = []
    tree = json.dumps(_flatten(state, arrays))
    # Made in memory: HDF5 does not survive a disk that fills up under an open file.
    with h5py.File("checkpoint", "w", driver="core", backing_store=False) as file:
        hdf5.mark(file, "training checkpoint", _VERSION)
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
    with hdf5.open_to_read(path, "training checkpoint", _VERSION) as file:
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
