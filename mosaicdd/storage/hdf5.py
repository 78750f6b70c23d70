"""HDF5 files of the package: kind, format version, attributes, and refusals of others.

A file's root carries ``kind`` and ``format_version``; `open_to_read` turns everything that can be
wrong with a file into one line. `inspect_file` says what a file holds, whatever it is.

Attributes say by what command, when and where a file was made.
"""

import functools
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import mosaicdd
from mosaicdd.settings import argument
from mosaicdd.storage.atomic import is_sealed, renew_seal, require_unbroken_seal, sealed_file
from mosaicdd.unsupported import refuse_former

_PAGE = 4096  # bytes that HDF5 reads where less is asked for
_VERSION = 2  # of the formats: from this one on they have a seal
# What comes of looking for something that is not there, or is something else.
_DAMAGE = (
    *(OSError, KeyError, IndexError, RuntimeError, TypeError, AttributeError),
    *(OverflowError, MemoryError),
)
_PLAIN = (str, int, float, bool)
_PRESENTATIONS = ("VTKHDF",)  # groups of links
_SLAB = 2**24  # values that are read at once where all are read


def built_with_mpi() -> bool:
    """Whether h5py can write one file on many ranks."""
    return bool(h5py.get_config().mpi)


def mark(file: h5py.File, kind: str) -> None:
    """Write the kind, the format version, and by what the file is made, to a new file."""
    file.attrs["kind"] = f"mosaicdd {kind}"
    file.attrs["format_version"] = _VERSION
    for name, text in made_by().items():
        file.attrs[name] = decoded(text)


@contextmanager
def new_file(path: str | os.PathLike, kind: str) -> Iterator[h5py.File]:
    """Open a new file of a kind; it appears under its name, sealed, when it is complete; errors as `atomic_file`."""
    with sealed_file(path) as sealed, h5py.File(sealed, "w") as file:
        mark(file, kind)
        yield file


def first_difference(theirs: dict, ours: dict, names: Iterable[str] = ()) -> str:
    """Return the first difference of two identities, as ``epochs is 3, not 4``; nothing if there is none.

    ``names``: of what counts; by default all, in their order.
    """
    for name in names or sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            return f"{name} is {theirs.get(name)}, not {ours.get(name)}"
    return ""


def line_name(axis: int) -> str:
    """Return the name of the interface's lines constant in an axis, all of the domain."""
    return f"lines/{axis}"


def write_attributes(file: h5py.File, attributes: dict) -> None:
    """Write attributes: plain values as they are, containers and None as JSON texts."""
    for name, value in attributes.items():
        match value:
            case int() | float():
                file.attrs[name] = value
            case str():
                file.attrs[name] = decoded(value)
            case _:
                file.attrs[name] = json.dumps(value)


def read_attributes(file: h5py.File) -> dict:
    """Read all attributes as plain values, lists and dictionaries."""
    return {name: _decoded(value) for name, value in file.attrs.items()}


def _decoded(value: Any) -> Any:
    match value:
        case str() if value[:1] in ("[", "{", "n"):
            try:
                return json.loads(value)
            except ValueError:
                return value
        case h5py.Empty():
            return None
        case np.generic() | np.ndarray():
            value = value.tolist()
    match value:
        case list():
            return [_decoded(entry) for entry in value]
        case bytes():
            return value.decode(errors="replace")
    return value if isinstance(value, _PLAIN) else str(value)


@contextmanager
def open_any(path: str | os.PathLike, what: str, *, sealed: bool = True) -> Iterator[h5py.File]:
    """Open an HDF5 file of any origin; ``what`` it should be goes into the messages.

    ``sealed``: whether its seal, if it has one, must be unbroken.

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
        state = "a folder" if path.is_dir() else "missing"
        raise FileNotFoundError(f"{path}: the {what} file is {state}")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"{path}: the {what} file may not be read")
    if sealed:
        require_unbroken_seal(path)
    # HDF5 reads short pieces by a buffer of 64 KiB: a rank with half of the columns would read all of each row.
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_sieve_buf_size(_PAGE)
    try:
        opened = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, fapl=access)
        with h5py.File(opened) as file:
            yield file
    except _DAMAGE as error:  # what HDF5 stumbles over becomes one line
        reason = " ".join(str(error).strip("'\"").split())
        raise ValueError(f"{path}: not a complete {what} file ({reason})") from error


@contextmanager
def open_to_read(path: str | os.PathLike, kind: str) -> Iterator[h5py.File]:
    """Open a file of this package.

    Parameters
    ----------
    kind
        ``"dataset"``, ``"model"``, ``"checkpoint"`` or ``"solution"``: what the file must say that it is.

    Raises
    ------
    FileNotFoundError, PermissionError
        If there is no such file, or it may not be read.
    ValueError
        If it is not a complete HDF5 file of this kind, or a newer version of the format.
    """
    with open_any(path, kind) as file:
        _check_marks(file, Path(path), kind)
        yield file


def _check_marks(file: h5py.File, path: Path, kind: str) -> None:
    """Refuse foreign files and formats of the future."""
    marked = file.attrs.get("kind")
    with argument(str(path)):
        refuse_former("kind of file", str(marked).removeprefix("mosaicdd "))
    if str(marked) != f"mosaicdd {kind}":
        what = f"a {marked} file" if isinstance(marked, str) else "an HDF5 file of something else"
        raise ValueError(f"{path}: {what}, a mosaicdd {kind} file is needed")
    number = file.attrs.get("format_version", -1)
    if not isinstance(number, (int, np.integer)) or not 1 <= number <= _VERSION:
        raise ValueError(
            f"{path}: {kind} format {number}, this version of mosaicdd reads 1 to {_VERSION}; "
            "update mosaicdd"
        )
    if number >= _VERSION and not is_sealed(path):
        raise ValueError(
            f"{path}: not a complete {kind} file (its checksum is missing); if another program has "
            f"written to it on purpose: mosaicdd info --reseal {path}"
        )


def inspect_file(path: str | os.PathLike) -> tuple[str, dict, list[tuple[str, tuple, str]]]:
    """Look into a file, without reading its arrays; errors as `open_any`.

    Returns its kind, as ``"mosaicdd solution"``, or ``"HDF5 file"`` if it does not say; its attributes, texts of JSON
    decoded; and of each array the name, the shape and the type, without those that are presented to other programs.
    """
    with open_any(path, "mosaicdd") as file:
        attributes = read_attributes(file)
        arrays = [(array.name, array.shape, str(array.dtype)) for array in _arrays_of(file)]
    return str(attributes.pop("kind", "HDF5 file")), attributes, arrays


def _arrays_of(entry: h5py.Group) -> list[h5py.Dataset]:
    """List the arrays in a group and its groups, without links for other programs."""
    arrays = []
    for name in entry:
        if isinstance(entry[name], h5py.Dataset):
            arrays.append(entry[name])
        elif name not in _PRESENTATIONS:
            arrays += _arrays_of(entry[name])
    return arrays


def reseal(path: str | os.PathLike) -> int:
    """Give a file that another program has written to a new checksum; return the bytes of its arrays.

    Before that, all of it is read by HDF5; whether the values are those that were once written,
    nobody can say any more. Errors are those of `open_any`, and `ValueError` if its seal is
    unbroken or its kind has none.
    """
    path = Path(path)
    with open_any(path, "mosaicdd", sealed=False) as file:
        kind = str(file.attrs.get("kind", "HDF5 file"))
        if not kind.startswith("mosaicdd "):
            raise ValueError(f"{path}: a {kind} carries no checksum, it is read without one")
        read_attributes(file)
        size = 0
        for array in _arrays_of(file):
            for _ in slabs(array) if array.ndim else [array[()]]:
                pass
            size += array.nbytes
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is read-only; it cannot be given a new checksum")
    renew_seal(path)
    return size


def slabs(array: Any) -> Iterator[np.ndarray]:
    """Yield the rows of an array, some of them at once."""
    rows = max(1, _SLAB * len(array) // max(1, array.size))
    for first in range(0, len(array), rows):
        yield array[first : first + rows]


_LIBRARIES = ("h5py", "numpy", "pyamg", "pytorch-optimizer", "scipy", "torch")
_SECONDS = 5  # for git to answer
_run: dict[str, str] = {}  # of the command that runs, if one does


def library_versions() -> dict[str, str]:
    """Return the versions of the package and of the libraries that its results depend on."""
    versions = {"mosaicdd": mosaicdd.__version__}
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = "absent"
    return versions


@contextmanager
def run_with(files: Mapping[str, str]) -> Iterator[None]:
    """Add the files that a command line names, with a checksum of each, and its folder to `made_by`."""
    _run.update(folder=os.getcwd(), inputs=json.dumps(files))
    try:
        yield
    finally:
        _run.clear()


def decoded(text: str) -> str:
    """Decode as UTF-8 the bytes that Python could not decode in a name, and mark what is none.

    Python keeps such bytes as single surrogates (PEP 383), which no file takes as text.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def made_by() -> dict[str, str]:
    """Return the provenance of a file: command line, files, date (UTC), host, commit of a checkout, versions."""
    made = {
        "command_line": shlex.join(sys.argv),
        **_run,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
    }
    if commit := _commit():
        made["commit"] = commit
    libraries = library_versions().items()
    return made | {f"version_{name.replace('-', '_')}": number for name, number in libraries}


@functools.cache
def _commit() -> str:
    """Return the commit of the package's checkout, with ``-dirty`` if files of it were changed; empty without one."""
    folder = Path(mosaicdd.__file__).parents[1]
    if not (folder / ".git").exists():
        return ""
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        told = subprocess.run(
            [*git, *describe], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip()
