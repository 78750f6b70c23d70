"""Samples that networks learn from, and their files: of them a rank reads the rows that it needs.

Of random media, ``/logarithm (n, N + 17, N + 17)``, of the coefficient at the nodes of a square of ``N`` cells and 8
more all around; ``/solution`` and ``/source (n, q, N / 4 + 1, N / 4 + 1)``: of ``q`` problems in each medium, the values
at every fourth node, and the sources shared out to these; ``/kind (n,)``, names.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.hdf5 import new_file, open_any, open_to_read, slabs


class FileArray:
    """An array of an open file that stays there: indexed, it reads; in between the file is closed."""

    def __init__(self, path: str | os.PathLike, array: h5py.Dataset):
        self.path, self.name = path, array.name.lstrip("/")
        self.shape, self.dtype = array.shape, array.dtype
        self.size = array.size

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, place: slice | tuple[slice, ...]) -> np.ndarray:
        """Read some rows, or a part of each; `ValueError` if the file is no longer what it was, or they hold what is not finite."""
        with open_any(self.path, "dataset") as file:
            values = file[self.name][place]
        if not np.isfinite(values).all():
            rows = place[0] if isinstance(place, tuple) else place
            first, last, _ = rows.indices(len(self))
            raise ValueError(
                f"{self.path}: the {self.name} of rows {first} to {last - 1} must be finite, found NaN or "
                "infinity"
            )
        return values


class Samples:
    """Samples in arrays; the last ``validation`` of them are held out."""

    kind_of_file: ClassVar[str]  # as messages call it
    # Names of those that tell them from others, the first of which has a row for each
    arrays: ClassVar[tuple[str, ...]]
    precision: ClassVar[str] = "<f4"  # of these in a hash
    pde: str
    validation: float
    seed: int

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(getattr(self, self.arrays[0]))

    @property
    def held_out(self) -> int:
        """Number of samples that training does not see."""
        return round(self.validation * len(self))

    @property
    def content_hash(self) -> str:
        """SHA-256 of the samples, independent of the file that holds them."""
        digest = hashlib.sha256()
        for name in self.arrays:
            for slab in slabs(getattr(self, name)):
                digest.update(np.ascontiguousarray(slab, dtype=self.precision).data)
        return digest.hexdigest()

    def write(self, path: str | os.PathLike) -> None:
        """Write a file of them, whole or not at all."""
        with new_file(path, self.kind_of_file) as file:
            file.attrs.update(pde=self.pde, seed=self.seed, validation=self.validation)
            for name in self.arrays:
                file[name] = getattr(self, name)
            self._write_more(file)

    def _write_more(self, file: h5py.File) -> None:
        """Write what samples of this kind have besides."""
        raise NotImplementedError

    @classmethod
    def read(cls, path: str | os.PathLike, *, whole: bool = True) -> Self:
        """Read a file of them.

        ``whole``: whether the arrays are read, or stay in the file until some rows are asked for.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is foreign, truncated or inconsistent; the message names it.
        """
        with open_to_read(path, cls.kind_of_file) as file:
            kinds: dict[str, type] = {"pde": str, "validation": float, "seed": int}
            content: dict[str, Any] = {name: of(file.attrs[name]) for name, of in kinds.items()}
            content |= cls._read_more(file)
            for name in cls.arrays:
                content[name] = file[name][()] if whole else FileArray(path, file[name])
        try:
            return cls(**content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def _read_more(cls, file: h5py.File) -> dict:
        """Read what `_write_more` has written."""
        raise NotImplementedError


def write_subdomain(file: h5py.File, subdomain: Subdomain) -> None:
    """Write the square, or cube, that samples are on."""
    file.attrs.update(cells=subdomain.cells, size=subdomain.size, axes=subdomain.axes)


def read_subdomain(file: h5py.File) -> Subdomain:
    """Read the square, or cube, that samples are on."""
    axes = int(file.attrs.get("axes", 2))  # files from before there were cubes do not say it
    return Subdomain(int(file.attrs["cells"]), float(file.attrs["size"]), axes)


@dataclass(frozen=True)
class MediaDataset(Samples):
    """Random media with solutions in them, all finite; the last ``validation`` of them are held out."""

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
        count, problems, *nodes = self.solution.shape
        wide = [4 * (n - 1) + 17 for n in nodes]
        shapes = (count, *wide), (count, problems, *nodes)
        held = self.logarithm.shape, self.source.shape
        if held != shapes or len(self.kind) != count:
            raise ValueError(f"media and sources must have the shapes {shapes}, got {held}")
        arrays = [getattr(self, name) for name in self.arrays]
        if not all(np.isfinite(a).all() for a in arrays if isinstance(a, np.ndarray)):
            raise ValueError("media and solutions must be finite, found NaN or infinity")

    @property
    def cells(self) -> int:
        """Cells along a side of the squares."""
        return 4 * (self.solution.shape[3] - 1)

    def rows(self, rows: slice, *nodes: slice) -> Self:
        """Return some of the media, in memory; all of each, or what some of its coarse nodes need, per axis."""
        around = [slice(4 * part.start, 4 * (part.stop - 1) + 17) for part in nodes]
        places = {
            "logarithm": (rows, *around),
            **dict.fromkeys(("solution", "source"), (rows, slice(None), *nodes)),
        }
        arrays: dict[str, Any] = {
            name: getattr(self, name)[place if nodes else rows] for name, place in places.items()
        }
        return replace(self, kind=self.kind[rows], **arrays)

    def _write_more(self, file: h5py.File) -> None:
        file["kind"] = list(self.kind)

    @classmethod
    def _read_more(cls, file: h5py.File) -> dict:
        return {"kind": tuple(name.decode() for name in file["kind"][()])}
