"""Generation of random media with solutions in them.

Each medium is a square with smooth boundary data, and with sources between zero sides, solved by a sparse
factorisation; only the values at every fourth node are kept. Each has random numbers of its own, seeded by
(seed, index), so it does not depend on how many others are drawn.
"""

import os
from collections.abc import Callable

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, restricted
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import draw
from mosaicdd.problems.operators.medium import Medium, MediumSystem
from mosaicdd.storage.atomic import require_new
from mosaicdd.storage.media_file import MediaDataset, write_media
from mosaicdd.training.settings import MediaSettings

_CELLS = 32
_AROUND = 2 * MARGIN  # cells of the medium around the square
_SMOOTH, _SOURCES, _WAVES = 2, 2, 4  # random boundary data, sources, and what they are made of


def generate_media(
    path: str | os.PathLike,
    settings: MediaSettings | None = None,
    *,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> MediaDataset:
    """Draw media and solve in them, and write a file.

    Raises
    ------
    FileExistsError
        If the file is there and is not to be overwritten.
    OSError
        If it cannot be written.
    """
    settings = settings or MediaSettings()
    require_new(path, overwrite=overwrite)
    samples = []
    for index in range(settings.samples):
        samples.append(_sample(np.random.default_rng([settings.seed, index])))
        if progress:
            progress((index + 1) / settings.samples)
    kinds, *arrays = zip(*samples, strict=True)
    logarithm, solution, source = (np.stack(column).astype("f4") for column in arrays)
    validation, seed = settings.validation, settings.seed
    media = MediaDataset("diffusion", logarithm, solution, source, kinds, validation, seed)
    write_media(path, media)
    return media


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
