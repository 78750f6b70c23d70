"""A source that moves in a circle, for `heat` and what it is compared with."""

import numpy as np


def moving_source(x: np.ndarray, y: np.ndarray, t: float) -> np.ndarray:
    """Return its values on a grid: a product of two Gaussian curves, which takes little to evaluate."""
    along = np.exp(-20 * (x - 2 - np.cos(2 * t)) ** 2)
    return 50 * along * np.exp(-20 * (y - 2 - np.sin(2 * t)) ** 2)
