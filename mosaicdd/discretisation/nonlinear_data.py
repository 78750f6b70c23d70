"""What a nonlinear problem gives besides its operator: sources, fluxes and values; see `NonlinearEquations`."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NonlinearData:
    """What one problem gives on a part of the grid."""

    # Values that are given at the ends of ties, first those on the sides of the rectangle
    beside: np.ndarray
    source: np.ndarray  # into the volumes of the active nodes, ``(K,)``
    inflow: np.ndarray  # of fluxes through the sides of the rectangle, ``(K,)``
    fluxes: np.ndarray  # at the pieces of natural outlines, ``(T,)``
    # Where in the ring values are given at nodes, and these; of residuals that couple nodes across cells
    held: tuple[tuple[np.ndarray, ...], np.ndarray]
