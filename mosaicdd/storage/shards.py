"""Shards: the field of a solution in one file per rank, ``OUT.h5.shards/RUN-0003.h5``.

``OUT.h5`` presents them as one virtual dataset, and keeps their names, relative to its own folder,
and their checksums: where a shard is missing HDF5 gives fill values without a word. Every run names
its shards anew, so those of the file before stay until that file is replaced.

Without shards all ranks write one file together: the root writes the parts that they hand over.
"""

import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import h5py
import numpy as np

from mosaicdd.axes import Slices, within
from mosaicdd.parallel.collect import Part, Sink, collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.atomic import digest_of_seal, require_unbroken_seal, require_writable
from mosaicdd.storage.hdf5 import new_file, open_to_read


class SharedFile:
    """An HDF5 file that the root has open for all ranks.

    All ranks call each method together. An error of the root is raised on all of them.

    Parameters
    ----------
    file
        On the root the open file, None on the others.
    clock
        Measures the writing of parts.
    """

    def __init__(
        self,
        ranks: Ranks,
        file: h5py.File | None,
        clock: AbstractContextManager | None = None,
    ):
        self.ranks, self._file = ranks, file
        self._clock = nullcontext() if clock is None else clock
        self._dtypes: dict[str, str] = {}  # of the arrays that were created

    def on_root(self, function: Callable[[h5py.File], object]) -> None:
        """Call a function of the open file on the root."""
        file = self._file
        self.ranks.run_on_all(lambda: None if file is None else function(file))

    def create(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Add an array of zeros, if this file has not created one of this name."""
        if name not in self._dtypes:
            self.on_root(lambda file: file.create_dataset(name, shape=shape, dtype=dtype))
            self._dtypes[name] = dtype

    def add(self, group: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Add whole arrays that the root has, below the name of a group."""

        def add(file: h5py.File) -> None:
            for name, array in arrays.items():
                file[group + name] = array

        self.on_root(add)

    def into(self, name: str) -> Sink:
        """Return the function that writes a part of an array to its place; the root alone calls it.

        A part ``(1, ...)`` with an axis more than the array is written without its first axis.
        """
        file = self._file

        def write(part: np.ndarray, place: tuple[slice, ...]) -> None:
            if file is not None:
                with self._clock:
                    array = file[name]
                    more = len(place) > array.ndim
                    array[place[1:] if more else place] = part[0] if more else part

        return write

    def fill(self, name: str, parts: Iterable[Part]) -> None:
        """Write the parts that the ranks have of an array that was created."""
        collect(self.ranks, parts, self._dtypes[name], self.into(name))

    def write(self, name: str, part: np.ndarray, place: tuple[slice, ...]) -> None:
        """Write a part that the root has to its place."""
        self.on_root(lambda file: self.into(name)(part, place))


@contextmanager
def writing_together(path: str | PathLike, kind: str, ranks: Ranks) -> Iterator[SharedFile]:
    """Open a new file of a kind for all ranks; it appears when it is complete.

    `OSError` on all ranks, if it cannot be written; a file that was there before stays.
    """
    with ranks.held_by_root(lambda: new_file(path, kind)) as file:
        yield SharedFile(ranks, file)


_DATASET = "solution"
_FILE_NAME = re.compile(r"[0-9a-f]+-\d{4,}\.h5")


@dataclass(frozen=True)
class ShardFile:
    """One complete shard."""

    name: str  # relative to the folder of the solution file
    place: Slices  # where its values belong in the field of the file
    digest: str  # its seal's


def shard_folder(output: str | PathLike) -> Path:
    """Return the folder of a solution file's shards."""
    return Path(f"{output}.shards")


def require_shard_folder(output: str | PathLike) -> None:
    """Raise `OSError` if the folder of a solution file's shards cannot be written to."""
    folder = shard_folder(output)
    if folder.exists():
        require_writable(folder / "shard")


def write_shard(path: Path, parts: Iterable[Part], place: Slices, dtype: str) -> ShardFile:
    """Write a shard by this process alone; it appears under its name when all parts are written."""
    shape = tuple(part.stop - part.start for part in place)
    path.parent.mkdir(exist_ok=True)
    with new_file(path, "shard") as file:
        values = file.create_dataset(_DATASET, shape=shape, dtype=dtype)
        for array, there in parts:
            values[within(there, place)] = array
    return ShardFile(f"{path.parent.name}/{path.name}", place, digest_of_seal(path) or "")


def _discard(path: Path) -> None:
    """Remove a shard of a run that failed, and their folder, if nothing else is in it."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def write_shards(
    output: str | PathLike,
    ranks: Ranks,
    parts: Iterable[Part],
    place: Slices,
    dtype: str,
    clock: AbstractContextManager,
) -> list[ShardFile]:
    """Write every rank's parts of the field to a file of its own; return all of them.

    `OSError` on all ranks, if one could not write; no shard is left.
    ``place``: where this rank's parts together belong in the field of the file; a rank without any writes no file.
    ``clock``: measures the writing.
    """
    run = ranks.bcast(secrets.token_hex(4))
    path = shard_folder(output) / f"{run}-{ranks.rank:04d}.h5"
    # The first part comes after an exchange between the ranks, in which none may be missing.
    parts = iter(parts)
    first = list(itertools.islice(parts, 1))

    def timed() -> Iterator[Part]:
        for part in itertools.chain(first, parts):
            with clock:
                yield part

    try:
        shard = ranks.run_on_all(
            lambda: write_shard(path, timed(), place, dtype) if first else None
        )
    except BaseException:
        _discard(path)
        raise
    return [shard for shard in ranks.allgather(shard) if shard is not None]


def link_shards(
    file: h5py.File, name: str, shape: tuple[int, ...], dtype: str, shards: list[ShardFile]
) -> None:
    """Add a virtual dataset of all shards to an open file, and what tells whether they are there."""
    layout = h5py.VirtualLayout(shape, dtype)
    for shard in shards:
        size = tuple(part.stop - part.start for part in shard.place)
        # HDF5 replaces %b in the names of sources by numbers.
        source = h5py.VirtualSource(shard.name.replace("%", "%%"), _DATASET, size, dtype)
        layout[shard.place] = source
    file.create_virtual_dataset(name, layout, fillvalue=np.nan)
    text = h5py.string_dtype()
    file.create_dataset("shards/name", data=[shard.name for shard in shards], dtype=text)
    file.create_dataset("shards/crc32", data=[shard.digest for shard in shards], dtype=text)


def require_shards(file: h5py.File) -> None:
    """Raise `ValueError` if a shard of an open solution file is missing, damaged, or not of this file."""
    if "shards" not in file:
        return
    path = Path(file.filename)
    names, digests = (file[f"shards/{key}"].asstr()[()] for key in ("name", "crc32"))
    for name, digest in zip(names, digests, strict=True):
        shard = path.resolve().parent / name  # HDF5 follows links, too
        if not shard.is_file():
            raise ValueError(
                f"{path}: its shard {name} is missing; keep the folder {Path(name).parent} beside "
                "the file, under its name"
            )
        require_unbroken_seal(shard)
        if digest_of_seal(shard) != digest:
            raise ValueError(f"{path}: its shard {name} is of another run; solve again")


@contextmanager
def replacing_shards(path: str | PathLike, shards: list[ShardFile]) -> Iterator[None]:
    """Remove the shards of the solution file that is replaced; at a failure, those of the new one."""
    before: list[str] = []  # a missing or damaged file has none
    if shard_folder(path).is_dir():  # to open the file means to read all of it
        with suppress(OSError, ValueError), open_to_read(path, "solution") as file:
            before = list(file["shards/name"].asstr()[()]) if "shards" in file else []
    left = [shard.name for shard in shards]
    try:
        yield
        left = before
    finally:
        for name in left:
            file_name = Path(name).name
            if _FILE_NAME.fullmatch(file_name):  # whatever a foreign file may say
                _discard(shard_folder(path) / file_name)
