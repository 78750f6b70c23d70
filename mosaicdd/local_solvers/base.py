"""What the Schwarz iteration asks of a local solver.

Shape letters in this folder: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.problems.equations import Equation

Plan = Callable[[torch.Tensor, torch.Tensor], None]
"""A planned solve, ``plan(g, out)``: perimeters ``(B, P)`` to values at the points ``(B, Q)``."""

OutsideRange = Callable[[torch.Tensor], torch.Tensor]
"""Says which perimeters ``(B, P)`` are outside of the training range: ``(B,)`` booleans."""


class LocalSolver(Protocol):
    """Maps perimeter values to values inside one subdomain.

    Attributes
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    equation, subdomain
        The equation that it solves, and the square on which it does.
    linear
        Whether the map is linear in the perimeter values.
    """

    name: str
    equation: Equation
    subdomain: Subdomain
    linear: bool

    def plan(
        self,
        points: np.ndarray,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
    ) -> Plan:
        """Prepare the solve for fixed query points.

        Parameters
        ----------
        points
            ``(Q, 2)``, (y, x) in cells from the lower-left corner of the subdomain.
        weights
            ``(Q,)`` factors for the values, as of a partition of unity.
        """
        ...

    def outside_range(self, *, device: torch.device, dtype: torch.dtype) -> OutsideRange | None:
        """Return what tells perimeters outside of the training range, if there is one."""
        ...
