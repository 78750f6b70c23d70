"""What all files of the package share: their kind, their format version, and honest refusals.

A file's root carries ``kind`` and ``format_version``; `open_to_read` turns everything that can be
wrong with a file into one line.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import h5py
import numpy as np

import mosaicdd
from mosaicdd.storage.atomic import atomic_file
from mosaicdd.storage.seal import append_seal, is_sealed, require_unbroken_seal

SEALED = 2  # the first format version of models, solutions and checkpoints with a seal
# What comes of looking for something that is not there, or is something else.
_DAMAGE = (
    *(OSError, KeyError, IndexError, RuntimeError, TypeError, AttributeError),
    *(OverflowError, MemoryError),
)
_LIBRARIES = ("h5py", "numpy", "pyamg", "pytorch-optimizer", "scipy", "torch")


def library_versions() -> dict[str, str]:
    """Return the versions of the package and of the libraries that its results depend on."""
    versions = {"mosaicdd": mosaicdd.__version__}
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = "absent"
    return versions


def built_with_mpi() -> bool:
    """Return whether h5py can write one file on many ranks."""
    return bool(h5py.get_config().mpi)


def mark(file: h5py.File, kind: str, format_version: int) -> None:
    """Write the kind, the format version and the library versions to a new file."""
    file.attrs["kind"] = f"mosaicdd {kind}"
    file.attrs["format_version"] = format_version
    for library, number in library_versions().items():
        file.attrs[f"version_{library.replace('-', '_')}"] = number


@contextmanager
def new_file(path: str | os.PathLike) -> Iterator[h5py.File]:
    """Open a new file; it appears under its name, sealed, when it is complete.

    Raises
    ------
    OSError
        If it cannot be written, as on a full disk; a file that was there before stays.
    """
    with atomic_file(path) as temporary, _PatientFile(temporary) as patient:
        with h5py.File(patient, "w") as file:
            yield file
        append_seal(patient)
        if patient.error is not None:
            reason = patient.error.strerror or patient.error
            raise OSError(f"{path}: the file could not be written ({reason})") from patient.error


class _PatientFile(io.FileIO):
    """A file that keeps its first error for later: HDF5 does not survive one while it closes.

    After an error nothing more is written.
    """

    def __init__(self, path: Path):
        super().__init__(path, "w+b")
        self.error: OSError | None = None

    def write(self, data: memoryview) -> int:
        """Write all of ``data``."""
        rest = memoryview(data)
        try:
            while self.error is None and len(rest):
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size."""
        try:
            return super().truncate(size) if self.error is None else size
        except OSError as error:
            self.error = error
            return size

    def readinto(self, buffer: memoryview) -> int:
        """Fill ``buffer``, with zeros where nothing has been written."""
        count = super().readinto(buffer)
        memoryview(buffer)[count:] = bytes(len(buffer) - count)
        return len(buffer)


@contextmanager
def open_any(path: str | os.PathLike, what: str) -> Iterator[h5py.File]:
    """Open an HDF5 file of any origin; ``what`` it should be goes into the messages.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If its seal is broken, it is not a complete HDF5 file, or lacks something that the caller
        looks up.
    """
    path = Path(path)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "missing"
        raise FileNotFoundError(f"{path}: the {what} file is {found}")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"{path}: the {what} file may not be read")
    require_unbroken_seal(path)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except _DAMAGE as error:
        reason = " ".join(str(error).strip("'\"").split())
        raise ValueError(f"{path}: not a complete {what} file ({reason})") from error


@contextmanager
def open_to_read(path: str | os.PathLike, kind: str, format_version: int) -> Iterator[h5py.File]:
    """Open a file of this package.

    Parameters
    ----------
    kind
        ``"dataset"``, ``"model"`` or ``"solution"``: what the file must say that it is.
    format_version
        The newest format that the caller understands.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If it is not a complete HDF5 file of this kind, or a newer version of the format.
    """
    with open_any(path, kind) as file:
        _check_marks(file, Path(path), kind, format_version)
        yield file


def _check_marks(file: h5py.File, path: Path, kind: str, format_version: int) -> None:
    """Refuse foreign files and formats of the future."""
    found = file.attrs.get("kind")
    if not isinstance(found, str) or found != f"mosaicdd {kind}":
        what = f"a {found} file" if isinstance(found, str) else "an HDF5 file of something else"
        raise ValueError(f"{path}: {what}, a mosaicdd {kind} file is needed")
    given = file.attrs.get("format_version", -1)
    if not isinstance(given, (int, np.integer)) or not 1 <= given <= format_version:
        raise ValueError(
            f"{path}: {kind} format {given}, this version of mosaicdd reads 1 to {format_version}; "
            "update mosaicdd"
        )
    if given >= SEALED and not is_sealed(path):
        raise ValueError(f"{path}: not a complete {kind} file (its checksum is missing)")
