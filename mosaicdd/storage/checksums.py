"""Checksums over all that a file holds: what is damaged is refused, never read as other numbers.

HDF5 checks neither plain arrays nor texts. ``/checksums`` is JSON: a digest of the root's
attributes, and for every array those of the parts that it was written in; nodes that no part holds
are zero. Formats before `SEALED` had none.
"""

import hashlib
import json
from collections.abc import Mapping

import h5py
import numpy as np

SEALED = 2  # the first format version of models, solutions and checkpoints with checksums
_NAME = "checksums"
_NOT_OURS = "VTKHDF"  # names for ParaView, of arrays that have others

Part = tuple[list[list[int]], str]
"""Start and stop per axis, and the digest of what lies between."""


def part_of(values: np.ndarray, place: tuple[slice, ...], shape: tuple[int, ...]) -> Part:
    """Return place and digest of the part of an array."""
    bounds = [list(s.indices(n)[:2]) for s, n in zip(place, shape, strict=True)]
    return bounds, _digest(values)


def seal(file: h5py.File, parts: Mapping[str, list[Part]] | None = None) -> None:
    """Write the checksums of a complete file.

    Parameters
    ----------
    parts
        Of the arrays that were written part by part; the others are read again.
    """
    arrays = dict(parts or {})
    if _NAME in file:
        del file[_NAME]

    def add(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset) and name not in arrays:
            values = np.asarray(item[()])
            arrays[name] = [part_of(values, (slice(None),) * values.ndim, values.shape)]

    for name, item in file.items():
        if isinstance(item, h5py.Dataset):
            add(name, item)
        elif name != _NOT_OURS:
            item.visititems(lambda below, found, above=name: add(f"{above}/{below}", found))
    content = json.dumps({"attributes": _digest_of_attributes(file), "arrays": arrays})
    file[_NAME] = np.frombuffer(content.encode(), dtype=np.uint8)


class Sealed:
    """Reads the arrays of an open file, and checks them if it is sealed.

    Raises
    ------
    ValueError
        If the attributes are not those that were sealed.
    """

    def __init__(self, file: h5py.File):
        self._file = file
        self._arrays = None
        if _NAME not in file and int(file.attrs.get("format_version", 1)) < SEALED:
            return
        try:
            content = json.loads(file[_NAME][()].tobytes())
            self._arrays = content["arrays"]
            whole = content["attributes"] == _digest_of_attributes(file)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{file.filename}: damaged, its checksums cannot be read") from error
        if not whole:
            raise ValueError(f"{file.filename}: damaged, the checksum of its attributes differs")

    def read(self, name: str) -> np.ndarray:
        """Read an array.

        Raises
        ------
        KeyError
            If there is no such array.
        TypeError
            If it is not an array.
        ValueError
            If it is not what was sealed.
        """
        item = self._file[name]
        if not isinstance(item, h5py.Dataset):
            raise TypeError(f"/{name} is not an array")
        values = item[()]
        if self._arrays is not None and not self._fits(np.asarray(values), name):
            raise ValueError(f"{self._file.filename}: damaged, the checksum of /{name} differs")
        return values

    def _fits(self, values: np.ndarray, name: str) -> bool:
        try:
            parts = [(tuple(slice(*b) for b in place), d) for place, d in self._arrays[name]]
            if any(_digest(values[place]) != digest for place, digest in parts):
                return False
            return _is_zero_outside(values, [place for place, _ in parts])
        except (ValueError, TypeError, KeyError, IndexError):
            return False


def _is_zero_outside(values: np.ndarray, places: list[tuple[slice, ...]]) -> bool:
    outside = np.ones(values.shape, dtype=bool)
    for place in places:
        outside[place] = False
    return not (outside.any() and values[outside].any())


def _digest(values: np.ndarray) -> str:
    values = np.ascontiguousarray(values)
    header = f"{values.dtype.str} {values.shape}".encode()
    data = values if values.dtype != object else repr(values.tolist()).encode()
    return hashlib.sha256(header + b"\n" + hashlib.sha256(data).digest()).hexdigest()


def _digest_of_attributes(file: h5py.File) -> str:
    entries = []
    for name in sorted(file.attrs):
        value = file.attrs[name]
        known = value if isinstance(value, str) else _digest(np.asarray(value))
        entries.append([name, type(value).__name__, known])
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
