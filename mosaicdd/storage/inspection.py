"""What a file of this package holds, without reading its arrays."""

from dataclasses import dataclass
from os import PathLike

import h5py

from mosaicdd.storage.attributes import read_attributes
from mosaicdd.storage.hdf5 import open_any

_PRESENTATIONS = ("VTKHDF",)  # groups of links


@dataclass(frozen=True)
class Contents:
    """What `inspect_file` finds.

    Parameters
    ----------
    kind
        As ``"mosaicdd solution"``; ``"HDF5 file"`` if the file does not say.
    attributes
        Of the whole file; texts of JSON are decoded.
    arrays
        Name, shape and type of each array; what is only presented to other programs is left out.
    """

    kind: str
    attributes: dict
    arrays: list[tuple[str, tuple[int, ...], str]]


def inspect_file(path: str | PathLike) -> Contents:
    """Look into a file.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If its seal is broken, or it is not a complete HDF5 file.
    """
    with open_any(path, "mosaicdd") as file:
        attributes = read_attributes(file)
        arrays = [
            (array.name, array.shape, str(array.dtype))
            for name in file
            if name not in _PRESENTATIONS
            for array in _arrays(file[name])
        ]
    return Contents(str(attributes.pop("kind", "HDF5 file")), attributes, arrays)


def _arrays(found: h5py.Group | h5py.Dataset) -> list[h5py.Dataset]:
    """List the arrays in a group, those of its groups included."""
    if isinstance(found, h5py.Dataset):
        return [found]
    return [array for name in found for array in _arrays(found[name])]
