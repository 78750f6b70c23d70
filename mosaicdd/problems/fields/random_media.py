"""Random media, a lognormal coefficient over a domain of any size, and random boundary data.

These are a Gaussian process along a closed curve, or at points in space. The kernel is the squared exponential, made periodic by summing it over all windings of the curve,
so its spectrum is a Gaussian and a sample costs one FFT (infinitely differentiable, as in section
5.1 of the paper).
"""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from mosaicdd.axes import common, within
from mosaicdd.grid.grid import Grid
from mosaicdd.settings import read_settings

_WAVES = 256


def sample_closed_curve(
    rng: np.random.Generator,
    nodes: int,
    curve_length: float,
    length_scale: float,
    amplitude: float = 1.0,
    noise: float = 0.0,
) -> np.ndarray:
    """Draw one sample of a zero-mean process at equidistant nodes of a closed curve.

    Returns values ``(nodes,)``, the first node once.

    Parameters
    ----------
    nodes
        Number of nodes, equally spaced along the curve.
    curve_length, length_scale
        Both in units of domain length; the kernel is ``exp(-d**2 / (2 length_scale**2))``.
    amplitude
        Standard deviation of the process.
    noise
        Standard deviation of white noise added at each node.
    """
    frequency = np.arange(nodes // 2 + 1)
    spectrum = np.exp(-0.5 * (2 * np.pi * frequency * length_scale / curve_length) ** 2)
    two_sided = 2 * spectrum.sum() - spectrum[0] - (spectrum[-1] if nodes % 2 == 0 else 0)
    white = np.fft.rfft(rng.standard_normal(nodes))
    smooth = np.fft.irfft(white * np.sqrt(spectrum * nodes / two_sided), n=nodes)
    return amplitude * smooth + noise * rng.standard_normal(nodes)


def sample_at_points(
    rng: np.random.Generator,
    points: np.ndarray,
    length_scale: float,
    amplitude: float = 1.0,
    noise: float = 0.0,
) -> np.ndarray:
    """Draw one sample ``(n,)`` of a zero-mean process at points ``(n, axes)``.

    It is a sum of 256 plane waves of random phases, whose wave numbers have the spectrum of the squared exponential
    kernel (Rahimi and Recht 2007). Parameters are those of `sample_closed_curve`.
    """
    waves = rng.standard_normal((points.shape[1], _WAVES)) / length_scale
    phases = points @ waves + 2 * np.pi * rng.random(_WAVES)
    smooth = np.sqrt(2 / _WAVES) * np.cos(phases).sum(axis=1)
    return amplitude * smooth + noise * rng.standard_normal(len(points))


def sobol_hyperparameters(
    count: int, seed: int, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Draw hyperparameters from a scrambled Sobol sequence, uniform in the logarithm.

    ``lower`` and ``upper``: bounds ``(p,)``, positive.
    Returns ``(count, p)``; the first rows do not depend on ``count``.
    """
    import scipy.stats  # a third of a second, which no solve needs to wait for

    sobol = scipy.stats.qmc.Sobol(d=len(lower), scramble=True, rng=np.random.default_rng(seed))
    unit = sobol.random_base2(max(1, int(np.ceil(np.log2(max(count, 2))))))[:count]
    return np.exp(np.log(lower) + unit * (np.log(upper) - np.log(lower)))


PREFIX = "lognormal:"
_SETTINGS = {"seed": (int, 0.0), "length": (float, 0.0), "contrast": (float, 1.0)}
_REACH = 10  # points of the noise on both sides of a place: exp(-25) of the weight is beyond
_TILE = 64  # points a side
_DEVIATIONS = 6.0  # between the values whose ratio is the contrast: three on both sides


@dataclass(frozen=True)
class Lognormal:
    """A field ``exp(sigma z)``, ``z`` with the covariance ``exp(-d**2 / (2 length**2))``.

    White noise on a grid of its own, with half a correlation length between its points, is smoothed by
    Gaussian weights. It is drawn in tiles, each by a generator of its own: so each rank makes what it needs,
    all get the same values, and a finer grid sees the same medium.

    Parameters
    ----------
    seed
        Of the noise.
    length
        In domain units; 0 for values that are independent at all nodes.
    contrast
        ``exp(6 sigma)``: between three standard deviations above the median, which is 1, and below.
    """

    seed: int = 0
    length: float = 0.25
    contrast: float = 100.0

    @classmethod
    def of_text(cls, text: str) -> "Lognormal":
        """Read ``lognormal:seed=0,length=L,contrast=C``; what is not given has its default.

        `ValueError` if a setting is unknown, given twice, no number or out of range.
        """
        return cls(**read_settings("lognormal", text.removeprefix(PREFIX), _SETTINGS))  # type: ignore[arg-type]

    def require_grid(self, grid: Grid) -> None:
        """Raise `ValueError` unless neighbours on a grid are correlated, or all independent."""
        if 0.0 < self.length < max(grid.steps) / 2:
            raise ValueError(
                f"lognormal:length={self.length:g} is below half of the grid's spacing, "
                f"{max(grid.steps):g}; take length=0 for values that are independent at all nodes"
            )

    def sample(self, grid: Grid, part: tuple[slice, ...]) -> np.ndarray:
        """Return the values at the nodes of a part of a grid."""
        shape = [max(0, p.stop - p.start) for p in part]
        if 0 in shape:
            return np.empty(shape)
        sigma = np.log(self.contrast) / _DEVIATIONS
        if self.length == 0.0:
            return np.exp(sigma * self._noise(part))
        weights, places = zip(*map(self._weights, part, grid.steps), strict=True)
        values = self._noise(places)
        for axis in reversed(range(len(part))):
            moved = np.moveaxis(values, axis, 0)
            smooth = weights[axis] @ moved.reshape(len(moved), -1)
            values = np.moveaxis(smooth.reshape(-1, *moved.shape[1:]), 0, axis)
        return np.exp(sigma * values)

    def _weights(self, nodes: slice, spacing: float) -> tuple[scipy.sparse.csr_array, slice]:
        """Return the weights ``(nodes, points)`` of the noise along an axis, and at which points."""
        places = np.arange(nodes.start, nodes.stop) * (spacing / (self.length / 2))
        points = np.floor(places).astype(int)[:, None] + np.arange(2 * _REACH)
        distances = places[:, None] - (points - (_REACH - 1))  # the first points lie outside
        weights = np.exp(-0.25 * distances**2)
        weights /= np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
        low, high = int(points[0, 0]), int(points[-1, -1]) + 1
        starts = np.arange(len(points) + 1) * points.shape[1]
        matrix = scipy.sparse.csr_array(
            (weights.ravel(), (points - low).ravel(), starts), shape=(len(points), high - low)
        )
        return matrix, slice(low, high)

    def _noise(self, places: tuple[slice, ...]) -> np.ndarray:
        """Draw standard normal values at some points."""
        tiles = [range(p.start // _TILE, -(-p.stop // _TILE)) for p in places]
        drawn = np.empty([p.stop - p.start for p in places])
        for tile in itertools.product(*tiles):
            values = np.random.default_rng((self.seed, *tile)).standard_normal((_TILE,) * len(tile))
            whole = tuple(slice(n * _TILE, (n + 1) * _TILE) for n in tile)
            overlap = common(places, whole)
            drawn[within(overlap, places)] = values[within(overlap, whole)]
        return drawn
