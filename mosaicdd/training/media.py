"""Generation of random media with solutions in them.

Each medium is a square with smooth boundary data, and with sources between zero sides, solved by a sparse
factorisation; only the values at every fourth node are kept. Each has random numbers of its own, seeded by
(seed, index), so it does not depend on how many others are drawn.
"""

from collections.abc import Sequence

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, restricted
from mosaicdd.problems.discretisation.discrete import MediumSystem
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import draw
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.settings import MediaSettings

_PART = 64  # media: what an ended run makes again, at most, on each rank
_CELLS = 32
_AROUND = 2 * MARGIN  # cells of the medium around the square
_SMOOTH, _SOURCES, _WAVES = 2, 2, 4  # random boundary data, sources, and what they are made of


class MediaGenerator:
    """Draws and solves media part by part, in any order."""

    def __init__(self, settings: MediaSettings):
        self._settings = settings
        self.parts = -(-settings.samples // _PART)

    def part(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a part by the names that they have in a `MediaDataset`."""
        seed, last = self._settings.seed, min((number + 1) * _PART, self._settings.samples)
        samples = [
            _sample(np.random.default_rng([seed, index])) for index in range(number * _PART, last)
        ]
        kinds, *columns = zip(*samples, strict=True)
        logarithm, solution, source = (np.stack(column).astype("f4") for column in columns)
        kind = np.array(kinds)
        return {"kind": kind, "logarithm": logarithm, "solution": solution, "source": source}

    def dataset(self, parts: Sequence[dict[str, np.ndarray]]) -> MediaDataset:
        """Put all parts, in their order, together."""
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        kinds = tuple(arrays.pop("kind").tolist())
        validation, seed = self._settings.validation, self._settings.seed
        return MediaDataset("diffusion", kind=kinds, validation=validation, seed=seed, **arrays)


def _sample(rng: np.random.Generator) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """Draw a medium; return its kind, its logarithms, solutions and sources at coarse nodes."""
    nodes = _CELLS + 1
    kind, logarithm = draw(rng, nodes + 2 * _AROUND)
    inner = slice(_AROUND, -_AROUND)
    a = np.exp(logarithm.astype("f4").astype(float))
    system = MediumSystem(Medium({"a": Field("a", a[inner, inner])}), Grid((_CELLS, _CELLS), 1.0))
    edges, sources = _boundary_data(rng, nodes), _sources(rng, nodes)
    none = np.zeros((nodes, nodes))
    fields = np.stack([*edges, *(none for _ in sources)])
    loads = np.stack([*(none for _ in edges), *sources])
    rhs = [system.right_hand_side(u, f) for u, f in zip(fields, loads, strict=True)]
    fields[:, 1:-1, 1:-1] = system.solve(np.stack(rhs, axis=1)).T.reshape(
        len(fields), nodes - 2, -1
    )
    shared = restricted(np.pad(loads, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))))
    return kind, logarithm, fields[:, ::RATIO, ::RATIO], shared


def _boundary_data(rng: np.random.Generator, nodes: int) -> list[np.ndarray]:
    """Return linear and quadratic functions, and some that are random."""
    y, x = _coordinates(nodes)
    plain = [x + 0 * y, y + 0 * x, x * y, x * x - y * y]
    return plain + [_waves(rng, nodes) for _ in range(_SMOOTH)]


def _sources(rng: np.random.Generator, nodes: int) -> list[np.ndarray]:
    return [np.ones((nodes, nodes)), *(_waves(rng, nodes) for _ in range(_SOURCES - 1))]


def _waves(rng: np.random.Generator, nodes: int) -> np.ndarray:
    y, x = _coordinates(nodes)
    waves = zip(rng.normal(0.0, 1.5, (_WAVES, 2)), rng.uniform(0, 2 * np.pi, _WAVES), strict=True)
    return sum(np.sin(kx * x + ky * y + phase) for (kx, ky), phase in waves)


def _coordinates(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    t = np.linspace(-1.0, 1.0, nodes)
    return t[:, None], t
