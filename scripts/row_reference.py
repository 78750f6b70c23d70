"""The discrete solution of Laplace's equation on some rows of a domain of any size.

By separation of variables, with the discrete eigenvalues: a mode of the data on one edge decays
towards the other as ``sinh(mu (n - i)) / sinh(mu n)`` with ``cosh(mu) = 1 + lambda / 2``. Nothing
here is shared with the solvers, and no array is larger than a few rows.
"""

import numpy as np
import scipy.fft

from mosaicdd.problems.sides.boundary import Boundary

_COLUMNS = 256  # worked on at a time


def solution_rows(boundary: Boundary, rows: list[int]) -> np.ndarray:
    """Return the values on rows of grid nodes inside the domain, ``(len(rows), nx + 1)``."""
    ny, nx = boundary.shape
    rows = np.asarray(rows)
    field = np.zeros((len(rows), nx + 1))
    field[:, 0], field[:, -1] = boundary.named["left"][rows], boundary.named["right"][rows]
    for data, distance in ((boundary.named["bottom"], rows), (boundary.named["top"], ny - rows)):
        modes = scipy.fft.dst(data[1:-1], type=1)
        decayed = modes * _decay(_exponents(nx), distance[:, None], ny)
        field[:, 1:-1] += scipy.fft.idst(decayed, type=1, axis=1)
    mu = _exponents(ny)
    angles = np.pi / ny * np.outer(rows, np.arange(1, ny))
    weights = [
        np.sin(angles) * scipy.fft.dst(e[1:-1], type=1) / ny
        for e in (boundary.named["left"], boundary.named["right"])
    ]
    for start in range(1, nx, _COLUMNS):
        columns = np.arange(start, min(start + _COLUMNS, nx))
        for weight, distance in zip(weights, (columns, nx - columns), strict=True):
            field[:, columns] += weight @ _decay(mu[:, None], distance, nx)
    return field


def _exponents(cells: int) -> np.ndarray:
    """Return ``mu`` of the modes along an axis."""
    eigenvalues = 2 - 2 * np.cos(np.pi * np.arange(1, cells) / cells)
    return np.arccosh(1 + eigenvalues / 2)


def _decay(mu: np.ndarray, distance: np.ndarray, cells: int) -> np.ndarray:
    """Return ``sinh(mu (n - i)) / sinh(mu n)`` at a distance ``i``, without overflow."""
    far = -np.expm1(-2 * mu * (cells - distance)) / -np.expm1(-2 * mu * cells)
    return np.exp(-mu * distance) * far
