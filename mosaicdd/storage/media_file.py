"""Files of random media with solutions in them: what a network of conductances is trained on.

``/logarithm (n, N + 17, N + 17)``, of the coefficient at the nodes of a square of ``N`` cells and 8 more all
around; ``/solution`` and ``/source (n, q, N / 4 + 1, N / 4 + 1)``: of ``q`` problems in each medium, the values at
every fourth node, and the sources shared out to these; ``/kind (n,)``, names.
"""

import os
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mosaicdd.storage.hdf5 import SEALED, mark, new_file, open_to_read
from mosaicdd.storage.rows import FileArray, hash_of

FORMAT_VERSION = SEALED
_ARRAYS = ("logarithm", "solution", "source")


@dataclass(frozen=True)
class MediaDataset:
    """Media and solutions; the last ``validation`` of them are held out.

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or hold what is not finite.
    """

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
        arrays = [array for array in self._arrays if isinstance(array, np.ndarray)]
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("media and solutions must be finite, found NaN or infinity")

    @property
    def held_out(self) -> int:
        """Number of media that training does not see."""
        return round(self.validation * len(self.kind))

    @property
    def content_hash(self) -> str:
        """SHA-256 of media and solutions, independent of the file that holds them."""
        return hash_of(self._arrays, "<f4")

    def __len__(self) -> int:
        """Return the number of media."""
        return len(self.kind)

    def rows(self, rows: slice) -> Self:
        """Return some of the media, in memory."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return replace(self, kind=self.kind[rows], **arrays)

    @property
    def _arrays(self) -> list[np.ndarray]:
        return [getattr(self, name) for name in _ARRAYS]


def write_media(path: str | os.PathLike, media: MediaDataset) -> None:
    """Write a file of media, whole or not at all."""
    with new_file(path) as file:
        mark(file, "media", FORMAT_VERSION)
        file.attrs["pde"] = media.pde
        file.attrs["seed"] = media.seed
        file.attrs["validation"] = media.validation
        file["kind"] = list(media.kind)
        for name in _ARRAYS:
            file.create_dataset(name, data=getattr(media, name).astype("f4"))


def read_media(path: str | os.PathLike, *, whole: bool = True) -> MediaDataset:
    """Read a file of media.

    Parameters
    ----------
    whole
        Whether the arrays are read, or stay in the file until `MediaDataset.rows` reads some.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is foreign, truncated or inconsistent; the message names it.
    """
    with open_to_read(path, "media", FORMAT_VERSION) as file:
        content: dict[str, Any] = {
            "pde": str(file.attrs["pde"]),
            "validation": float(file.attrs["validation"]),
            "seed": int(file.attrs["seed"]),
            "kind": tuple(name.decode() for name in file["kind"][()]),
        } | {name: file[name][()] if whole else FileArray(path, file[name]) for name in _ARRAYS}
    try:
        return MediaDataset(**content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
