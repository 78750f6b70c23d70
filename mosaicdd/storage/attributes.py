"""Attributes of a file: plain values as they are, containers and None as JSON texts."""

import json

import h5py
import numpy as np

_PLAIN = (str, int, float, bool)


def write_attributes(file: h5py.File, attributes: dict) -> None:
    """Write attributes to an open file."""
    for name, value in attributes.items():
        file.attrs[name] = value if isinstance(value, _PLAIN) else json.dumps(value)


def read_attributes(file: h5py.File) -> dict:
    """Read all attributes of an open file."""
    return {name: _decode(value) for name, value in file.attrs.items()}


def _decode(value):
    if isinstance(value, str) and value[:1] in ("[", "{", "n"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value.item() if isinstance(value, np.generic) else value
