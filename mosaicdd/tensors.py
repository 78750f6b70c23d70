"""Device and type of tensors, and views of arrays.

Torch itself is not imported: settings, and so ``--help``, need only the names.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

if TYPE_CHECKING:
    import torch


class Tensors(TypedDict):
    """Device and type of the tensors that belong together, for ``**tensors`` in calls."""

    device: "torch.device"
    dtype: "torch.dtype"


def read_only(array: Any) -> Any:
    """Return a read-only view of an array, or a copy of a tensor."""
    if not isinstance(array, np.ndarray):
        return array.clone()
    view = array.view()
    view.flags.writeable = False
    return view


def lent(array: np.ndarray) -> np.ndarray:
    """Return a view of an array, even a read-only one, that torch shares without a warning.

    For what only reads: who writes to it changes the array.
    """
    if array.flags.writeable:
        return array
    # The memory as numpy asks for it, without the mark that it is read-only; `array` lives as long as views of it.
    memory = {**array.__array_interface__, "data": (array.ctypes.data, False)}
    return np.asarray(SimpleNamespace(array=array, __array_interface__=memory))
