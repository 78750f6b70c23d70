"""Random media: logarithms of coefficients at the nodes, of the kinds that nature and people make.

Each kind is a function of a generator and a number of nodes a side, ``n``, and returns ``(n, n)``. Lengths
are in cells, contrasts are drawn uniform in their logarithm. `Lognormal` is one over a domain of any size.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.ndimage
import scipy.sparse
import scipy.spatial

from mosaicdd.lattice.axes import common, within
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.gaussian_process import log_uniform
from mosaicdd.settings import read_settings

# Largest contrast of lognormal media, between three standard deviations on both sides, and of those that jump.
_SMOOTH, _SHARP = 1e5, 300.0


def lognormal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return a Gaussian process, correlated over 2 to 40 cells, more along one axis than the other."""
    length = log_uniform(rng, (2.0, 40.0))
    values = _process(rng, n, (length / 2 * log_uniform(rng, (0.5, 2.0)), length / 2))
    return np.log(log_uniform(rng, (2.0, _SMOOTH))) / 6 * values


def noise(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return values that are independent at every node."""
    return np.log(log_uniform(rng, (1.5, _SHARP))) / 6 * rng.standard_normal((n, n))


def inclusions(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return rectangles and discs, better or worse conductors than what is around them, or both."""
    y, x = np.ogrid[:n, :n]
    values = np.zeros((n, n))
    contrast, largest = np.log(log_uniform(rng, (1.5, _SHARP))), rng.uniform(3, 12)
    signs = ((1,), (-1,), (-1, 1))[rng.integers(3)]
    for _ in range(1 + int(n * n * log_uniform(rng, (1 / 1500, 1 / 150)))):
        (cy, cx), (ry, rx) = rng.integers(0, n, 2), rng.uniform(0.6, largest, 2)
        box = (abs(y - cy) <= ry) & (abs(x - cx) <= rx)
        where = box if rng.random() < 0.5 else np.hypot(y - cy, x - cx) <= ry
        values[where] = contrast * rng.choice(signs)
    return values


def channels(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return winding channels, or barriers, of 1 to 6 nodes along both axes, some aslant."""
    values, along = np.zeros((n, n)), np.arange(n)
    contrast = np.log(log_uniform(rng, (1.5, _SHARP))) * rng.choice((-1, 1))
    for _ in range(rng.integers(2, 10)):
        across = values if rng.random() < 0.5 else values.T
        wave = np.sin(2 * np.pi * along / rng.uniform(40, 300) + rng.uniform(0, 7))
        centre = rng.uniform(0, n) + rng.uniform(0, 15) * wave
        centre += rng.choice((-1, 0, 0, 1)) * rng.random() * (along - n / 2)
        for offset in range(rng.integers(1, 7)):
            at = centre.astype(int) + offset
            inside = (at >= 0) & (at < n)
            across[at[inside], along[inside]] = contrast
    return values


def layers(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return layers of 1 to 19 cells along one axis."""
    thick = rng.integers(1, 20, n)
    values = rng.standard_normal(n) * np.log(log_uniform(rng, (1.5, _SHARP))) / 3
    return _turned(rng, np.tile(np.repeat(values, thick)[:n, None], (1, n)))


def checkerboard(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return rectangles of 2 to 19 cells a side, of two values in turn, or of many."""
    (ry, rx), (oy, ox) = rng.integers(2, 20, 2), rng.integers(0, 20, 2)
    y, x = np.ogrid[:n, :n]
    i, j = (y + oy) // ry, (x + ox) // rx
    contrast = np.log(log_uniform(rng, (1.5, _SHARP)))
    if rng.random() < 0.6:
        return np.where((i + j) % 2, contrast, 0.0)
    return rng.standard_normal((n, n))[i, j] * contrast / 3


def grains(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return the cells of Voronoi's diagram of random points."""
    points = rng.uniform(0, n, (rng.integers(5, 120), 2))
    nodes = np.moveaxis(np.indices((n, n)), 0, -1)
    nearest = scipy.spatial.cKDTree(points).query(nodes)[1]
    return rng.standard_normal(len(points))[nearest] * np.log(log_uniform(rng, (1.5, _SHARP))) / 3


def reservoir(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return sand bodies of up to 2e4 in shale, both rough, longer along one axis."""
    lengths = log_uniform(rng, (1.5, 6.0)), log_uniform(rng, (3.0, 20.0))
    bodies = _process(rng, n, lengths) > rng.uniform(-0.5, 1.0)
    rough = _process(rng, n, (log_uniform(rng, (0.4, 3.0)), log_uniform(rng, (0.4, 6.0))))
    return _turned(rng, rng.uniform(1, 10) * bodies + rng.uniform(0.3, 2.0) * rough)


KINDS = {
    draw.__name__: draw
    for draw in (
        *(lognormal, inclusions, channels, layers),
        *(checkerboard, grains, reservoir, noise),
    )
}
_SHARES = np.array([6, 4, 4, 2, 2, 2, 3, 1]) / 24  # of these
_MIXED = 0.25  # share of media to which another is added


def draw(rng: np.random.Generator, n: int) -> tuple[str, np.ndarray]:
    """Draw a medium: the name of its kind, and the logarithms ``(n, n)`` less their mean."""
    names = list(KINDS)
    name = names[rng.choice(len(names), p=_SHARES)]
    values = KINDS[name](rng, n)
    if rng.random() < _MIXED:
        other = names[rng.choice(len(names), p=_SHARES)]
        values = values + rng.uniform(0.2, 1.0) * KINDS[other](rng, n)
    return name, values - values.mean()


def _process(rng: np.random.Generator, n: int, lengths: tuple[float, float]) -> np.ndarray:
    """Return a Gaussian process of unit variance."""
    values = scipy.ndimage.gaussian_filter(rng.standard_normal((n, n)), lengths, mode="wrap")
    return values / values.std()


def _turned(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    return values if rng.random() < 0.5 else values.T.copy()


PREFIX = "lognormal:"
_SETTINGS = {"seed": (int, 0.0), "length": (float, 0.0), "contrast": (float, 1.0)}
_REACH = 10  # points of the noise on both sides of a place: exp(-25) of the weight is beyond
_TILE = 64  # points a side
_DEVIATIONS = 6.0  # between the values whose ratio is the contrast: three on both sides


@dataclass(frozen=True)
class Lognormal:
    """``exp(sigma z)`` with ``z`` of unit variance and covariance ``exp(-d**2 / (2 length**2))``, of any size.

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
        """Return the values at the nodes of a part of a grid, in an array of its axes."""
        if any(p.stop <= p.start for p in part):
            return np.empty([max(0, p.stop - p.start) for p in part])
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
            here = common(places, whole)
            drawn[within(here, places)] = values[within(here, whole)]
        return drawn
