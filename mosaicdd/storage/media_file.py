"""Files of random media with solutions in them: what a network of conductances is trained on.

``/logarithm (n, N + 17, N + 17)``, of the coefficient at the nodes of a square of ``N`` cells and 8 more all
around; ``/solution`` and ``/source (n, q, N / 4 + 1, N / 4 + 1)``: of ``q`` problems in each medium, the values at
every fourth node, and the sources shared out to these; ``/kind (n,)``, names.
"""

import os
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mosaicdd.storage.hdf5 import new_file
from mosaicdd.storage.rows import Samples


@dataclass(frozen=True)
class MediaDataset(Samples):
    """Media and solutions; the last ``validation`` of them are held out.

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or hold what is not finite.
    """

    kind_of_file = "media"
    arrays = ("logarithm", "solution", "source")

    pde: str
    logarithm: np.ndarray
    solution: np.ndarray
    source: np.ndarray
    kind: tuple[str, ...]
    validation: float
    seed: int

    def __post_init__(self) -> None:
        count, problems, nodes = self.solution.shape[:3]
        wide = 4 * (nodes - 1) + 17
        shapes = (count, wide, wide), (count, problems, nodes, nodes)
        held = self.logarithm.shape, self.source.shape
        if held != shapes or len(self.kind) != count:
            raise ValueError(f"media and sources must have the shapes {shapes}, got {held}")
        arrays = [getattr(self, name) for name in self.arrays]
        if not all(np.isfinite(a).all() for a in arrays if isinstance(a, np.ndarray)):
            raise ValueError("media and solutions must be finite, found NaN or infinity")

    def rows(self, rows: slice) -> Self:
        """Return some of the media, in memory."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in self.arrays}
        return replace(self, kind=self.kind[rows], **arrays)


def write_media(path: str | os.PathLike, media: MediaDataset) -> None:
    """Write a file of media, whole or not at all."""
    with new_file(path) as file:
        media.describe(file)
        file["kind"] = list(media.kind)
        for name in media.arrays:
            file.create_dataset(name, data=getattr(media, name).astype("f4"))


def read_media(path: str | os.PathLike, *, whole: bool = True) -> MediaDataset:
    """Read a file of media; see `Samples.of_file`."""
    return MediaDataset.of_file(
        path, lambda file: {"kind": tuple(name.decode() for name in file["kind"][()])}, whole=whole
    )
