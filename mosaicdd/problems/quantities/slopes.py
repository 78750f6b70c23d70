"""The derivatives of a field at its nodes, of second order inside, near an outline of first."""

from collections.abc import Sequence

import numpy as np


def slopes(u: np.ndarray, steps: Sequence[float]) -> list[np.ndarray]:
    """Return the derivative of fields ``(n, rows, columns)`` along each axis, of their shape.

    ``steps``: how far apart nodes are along each axis.

    Central differences where both neighbours have values; at the ends of the domain one-sided ones of three nodes,
    of two where there is no third; NaN where there is no neighbour at all, or no value.
    """
    return [
        _along(np.moveaxis(u, axis, -1), axis, step) for axis, step in enumerate(steps, start=1)
    ]


def _along(u: np.ndarray, axis: int, spacing: float) -> np.ndarray:
    wide = np.full((*u.shape[:-1], u.shape[-1] + 4), np.nan)
    wide[..., 2:-2] = u
    before2, before, after, after2 = (wide[..., k : k + u.shape[-1]] for k in (0, 1, 3, 4))
    choices = (
        (after - before) / 2,
        (-3 * u + 4 * after - after2) / 2,
        (3 * u - 4 * before + before2) / 2,
        after - u,
        u - before,
    )
    slope = choices[-1]
    for better in reversed(choices[:-1]):
        slope = np.where(np.isfinite(better), better, slope)
    slope = np.where(np.isfinite(u), slope, np.nan)
    return np.moveaxis(slope, -1, axis) / spacing
