"""Values at points along an outline."""

import numpy as np
from scipy.spatial import cKDTree


class Scattered:
    """A function of coordinates from values at points: linear between the two that are nearest.

    At one of the points it is the value there.

    `ValueError` if there is no point, or there are not as many values.

    Parameters
    ----------
    points
        ``(N, 2)``, (x, y), in units of domain length.
    values
        ``(N,)``.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray, name: str = "points"):
        if points.ndim != 2 or points.shape[1] != 2 or not len(points) == len(values) > 0:
            raise ValueError(
                f"{name}: rows x, y and a value for each are needed, got points of the shape "
                f"{points.shape} and {len(values)} values"
            )
        self.points, self.values = points, values
        self._name = name
        self._tree = cKDTree(points)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the values at coordinates."""
        places = np.stack(np.broadcast_arrays(x, y), axis=-1)
        count = min(2, len(self.points))
        distances, nearest = self._tree.query(places, k=[1, 2][:count])
        if count == 1:
            return self.values[nearest[..., 0]]
        first, other = self.points[nearest[..., 0]], self.points[nearest[..., 1]]
        along = other - first
        length = np.maximum((along**2).sum(-1), 1e-300)
        t = (((places - first) * along).sum(-1) / length).clip(0.0, 1.0)
        t = np.where(distances[..., 0] == 0, 0.0, t)
        low, high = self.values[nearest[..., 0]], self.values[nearest[..., 1]]
        return (1 - t) * low + t * high

    def require_near(self, distance: float, nearest: np.ndarray) -> None:
        """Raise `ValueError` if a point is farther than a distance from all places ``(M, 2)`` on an outline."""
        far, _ = cKDTree(nearest).query(self.points)
        if (far > distance).any():
            at = int(far.argmax())
            x, y = self.points[at]
            raise ValueError(
                f"{self._name}: {int((far > distance).sum())} of {len(far)} points are off the outline "
                f"by more than {distance:g}, two cells; the farthest is ({x:.10g}, {y:.10g}), off by "
                f"{far[at]:g}"
            )

    def __str__(self) -> str:
        return self._name
