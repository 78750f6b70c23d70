"""What a network is: the parts that the local solvers and the training ask for."""

from typing import Any, ClassVar

import torch


class Network(torch.nn.Module):
    """A network ``N`` of perimeter values and points, as `registry` describes it.

    Attributes
    ----------
    Settings, settings
        A frozen dataclass, and the network's own.
    linear
        Whether it is linear in the perimeter values.
    recompute
        Whether hidden layers are computed again in a backward pass; of networks that can.
    """

    Settings: ClassVar[type[Any]]
    settings: Any
    linear: bool
    recompute: bool

    def prepare(self, points: torch.Tensor) -> Any:
        """Prepare points ``(Q, 2)``; a linear network's operator ``(Q, P)``."""
        raise NotImplementedError

    def apply_prepared(self, g: torch.Tensor, prepared: Any) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points."""
        raise NotImplementedError
