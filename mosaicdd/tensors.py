"""Where tensors live and of which type they are.

Torch itself is not imported: settings, and so ``--help``, need only the names.
"""

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch


class Tensors(TypedDict):
    """Device and type of the tensors that belong together, for ``**tensors`` in calls."""

    device: "torch.device"
    dtype: "torch.dtype"
