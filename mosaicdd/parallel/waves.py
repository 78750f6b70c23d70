"""The waves along an axis of a grid that are eigenvectors of second differences, and transforms to and from them.

Which waves these are, the ends of the axis say: where values are given, waves are zero at the nodes of the ends, which
are no unknowns; where fluxes are given, waves are symmetric about them, and the volumes there are halves.
"""

from dataclasses import dataclass

import numpy as np
import scipy.fft
import scipy.fftpack

_NATURAL, _QUARTER = 1, 3  # types of discrete transforms: symmetric about both ends, zero at one


@dataclass(frozen=True)
class Waves:
    """Those of ``count`` unknowns along an axis.

    ``given``: whether values are given at the low and the high end; None between periodic sides.
    """

    count: int
    given: tuple[bool, bool] | None = (True, True)

    @property
    def eigenvalues(self) -> np.ndarray:
        """Of ``-u[i - 1] + 2 u[i] - u[i + 1]``, in the order of the transform, ``(count,)``."""
        k, n = np.arange(self.count), self.count
        if self.given is None:
            turns = (k + 1) // 2 * 2 / n  # sines and cosines in turns
        elif all(self.given):
            turns = (k + 1) / (n + 1)
        elif any(self.given):
            turns = (k + 0.5) / n
        else:
            turns = k / (n - 1)
        return 4 * np.sin(np.pi / 2 * turns) ** 2

    def heights(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Return the waves' heights of values along an axis, maybe in their place; of a residual per volume."""
        if self.given is None:
            return scipy.fftpack.rfft(values, axis=axis, overwrite_x=True)
        if all(self.given):
            return scipy.fft.dst(values, type=1, axis=axis, norm="ortho", overwrite_x=True)
        if self.given[0]:
            return scipy.fft.dst(values, type=_QUARTER, axis=axis, overwrite_x=True)
        kind = _QUARTER if self.given[1] else _NATURAL
        return scipy.fft.dct(values, type=kind, axis=axis, overwrite_x=True)

    def values(self, heights: np.ndarray, axis: int) -> np.ndarray:
        """Return the values of waves of such heights, maybe in their place."""
        if self.given is None:
            return scipy.fftpack.irfft(heights, axis=axis, overwrite_x=True)
        if all(self.given):
            return self.heights(heights, axis)
        if self.given[0]:
            return scipy.fft.idst(heights, type=_QUARTER, axis=axis, overwrite_x=True)
        kind = _QUARTER if self.given[1] else _NATURAL
        return scipy.fft.idct(heights, type=kind, axis=axis, overwrite_x=True)
