"""Where tensors live and of which type they are.

Torch itself is not imported: settings, and so ``--help``, need only the names.
"""

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

if TYPE_CHECKING:
    import torch


class Tensors(TypedDict):
    """Device and type of the tensors that belong together, for ``**tensors`` in calls."""

    device: "torch.device"
    dtype: "torch.dtype"


def read_only(array: Any) -> Any:
    """Return a read-only view of an array; a tensor, of which there are no such views, is copied."""
    if not isinstance(array, np.ndarray):
        return array.clone()
    view = array.view()
    view.flags.writeable = False
    return view


class _Lent:
    """The memory of an array, as numpy asks for it, without the mark that it is read-only."""

    def __init__(self, array: np.ndarray):
        self.array = array  # which lives as long as views of it
        self.__array_interface__ = {
            **array.__array_interface__,
            "data": (array.ctypes.data, False),
        }


def lent(array: np.ndarray) -> np.ndarray:
    """Return a view of an array of which torch makes a tensor without a copy or a warning, if it is read-only.

    For what only reads: who writes to it changes the array.
    """
    return array if array.flags.writeable else np.asarray(_Lent(array))
