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
