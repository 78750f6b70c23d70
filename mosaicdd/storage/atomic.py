"""Files that are whole or not there, and that say so: temporary names, and a seal at the end.

A reader never sees half a file, and an interrupted run leaves the old one: every file that the
package writes goes through `atomic_file`. Before any work `require_replaceable` looks at what is there:
files of this package end with a seal, or have its mark near one of their ends; nothing else is replaced.

The seal is the CRC-32 of all before it. HDF5 checks neither plain arrays nor texts, and does not
survive damage to what it calls metadata: a sealed file is checked as a whole before HDF5 sees it,
once per process. HDF5 does not mind bytes behind its own.
"""

import errno
import glob
import io
import os
import secrets
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_HEAD = b"\nmosaicdd crc32 "
_LENGTH = len(_HEAD) + 9
_CHUNK = 2**20  # bytes
MARK = "written by mosaicdd"
"""What pictures and texts say of themselves."""
_MARKS = (MARK.encode(), b'"format": "mosaicdd ')  # or of files of rates
_NEAR = (
    2**13
)  # bytes at either end of a file in which the mark is looked for; PDF has it near its last one
# Of the clock of files, at most: one that is younger may change again under the same time.
_TICK = 50_000_000  # nanoseconds
_unbroken: dict[str, tuple[int, ...]] = {}  # files that were found to be whole, and their version


def require_writable(path: str | os.PathLike) -> Path:
    """Return ``path`` as a `Path`; an `OSError` of its kind says why no file can be created there."""
    path = Path(path)
    folder = _target(path).parent
    if not folder.exists():
        raise FileNotFoundError(f"{path}: the folder {folder} does not exist; create it first")
    if not folder.is_dir():
        raise NotADirectoryError(f"{path}: {folder} is a file, a folder is needed")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, the name of a file is needed")
    if path.exists() and not path.is_file():
        raise FileExistsError(
            f"{path} is no regular file and would be replaced; choose another one"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: the folder {folder} is read-only; choose another one")
    try:
        with tempfile.NamedTemporaryFile(dir=folder):  # as in /proc, whoever asks
            return path
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # a disk may have room by then
            return path
        why = error.strerror or error
        raise type(error)(
            f"{path}: no file can be made in the folder {folder} ({why}); choose another one"
        ) from error


def _target(path: Path) -> Path:
    """Return the path that a file is written to: the target of a symbolic link."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def require_replaceable(
    path: str | os.PathLike,
    *,
    overwrite: bool = False,
    suffix: str = "",
    inputs: Iterable[str | os.PathLike] = (),
) -> Path:
    """Check that a file can be created at ``path``, and that no file of the user's is lost.

    Parameters
    ----------
    overwrite
        Whether a file that this package has not written may be replaced.
    suffix
        What the name must end in.
    inputs
        Files that the work reads, which are never replaced.

    Raises
    ------
    ValueError
        If the name ends in something else.
    FileExistsError
        If a file that is there is not to be replaced.
    OSError
        As `require_writable`.
    """
    path = require_writable(path)
    if suffix and path.suffix != suffix:
        raise ValueError(f"{path}: the name of this file must end in {suffix}")
    if not path.exists():
        return path
    # Some of the names are expressions, which may be longer than a name can be.
    if any(os.path.exists(name) and path.samefile(name) for name in inputs):
        raise FileExistsError(f"{path} is read and would be replaced; choose another name")
    if not (overwrite or _is_ours(path)):
        raise FileExistsError(
            f"{path}: there is a file of this name that mosaicdd has not written; choose another, or use "
            "overwrite=True"
        )
    return path


def _is_ours(path: Path) -> bool:
    """Say whether a file has a seal or the mark; what cannot be read has none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            ends = file.read(_NEAR)
            file.seek(max(0, size - _NEAR))
            ends += file.read(_NEAR)
    except OSError:
        return False
    return any(mark in ends for mark in _MARKS) or _HEAD in ends[-_LENGTH:]


def require_new(path: str | os.PathLike, *, overwrite: bool = False) -> Path:
    """Check that a dataset can be created at ``path`` where no file is, unless it may be replaced.

    Errors are those of `require_replaceable`.
    """
    path = require_replaceable(path, overwrite=True, suffix=".h5")
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path}: there is a file of this name; choose another, or use overwrite=True"
        )
    return path


@contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it at success, remove it otherwise.

    Errors are those of `require_writable`, or `OSError`, as on a full disk: a file that was there
    before stays, and a link leads where it did.
    """
    path = _target(require_writable(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with naming(path):
            temporary.touch(exist_ok=False)
            yield temporary
            with temporary.open("r+b") as file:
                os.fsync(
                    file.fileno()
                )  # a machine that stops must not leave the name without content
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, if there is one, and what killed runs left of it unfinished."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        left.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


@contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Raise errors of writing a file with its name and the reason in one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"{path}: the file could not be written ({reason})") from error


@contextmanager
def naming_checkpoint(path: str | os.PathLike | None) -> Iterator[None]:
    """Raise errors of files with the name of the last checkpoint, if there is one."""
    try:
        yield
    except OSError as error:
        if path is None or not Path(path).exists():
            raise
        more = OSError(f"{error}; the last checkpoint is {path}")
        vars(more).update(vars(error))
        raise more from error


@contextmanager
def sealed_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a new file for HDF5 to write; it appears, sealed, when it is complete; errors as `atomic_file`."""
    with atomic_file(path) as temporary, _PatientFile(temporary) as patient:
        yield patient
        append_seal(patient)
        if patient.error is not None:
            raise patient.error


class _PatientFile(io.FileIO):
    """A file that keeps its first error for later: HDF5 does not survive one while it closes.

    After an error nothing more is written.
    """

    def __init__(self, path: Path):
        super().__init__(path, "w+b")
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of ``data``."""
        rest = memoryview(data)
        try:
            while self.error is None and len(rest):
                rest = rest[super().write(rest) or 0 :]
        except OSError as error:
            self.error = error
        return memoryview(data).nbytes

    def truncate(self, size: int | None = None) -> int:
        """Set the size."""
        size = self.tell() if size is None else size
        try:
            return super().truncate(size) if self.error is None else size
        except OSError as error:
            self.error = error
            return size

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``, with zeros where nothing has been written."""
        rest = memoryview(buffer)[super().readinto(buffer) :]
        rest[:] = bytes(len(rest))
        return memoryview(buffer).nbytes


def version_of(path: str | os.PathLike) -> tuple[int, ...]:
    """Return the version of a file: device, inode, size and time, one of which a change changes.

    `FileNotFoundError`, which names the file, if it has been removed.
    """
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: the file is missing") from None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def append_seal(file: BinaryIO) -> None:
    """Seal a complete file that is open for reading and writing."""
    size = file.seek(0, os.SEEK_END)
    seal = _sealing(file, size)
    file.seek(size)
    file.write(seal)


def renew_seal(path: str | os.PathLike) -> None:
    """Seal a complete file anew, whatever seal it has; `ValueError` if its seal is unbroken."""
    with Path(path).open("r+b") as file:
        seal = _seal_of(file)
        size = file.seek(0, os.SEEK_END)
        if seal is not None:
            size -= _LENGTH
            if seal == _sealing(file, size):
                raise ValueError(f"{path}: its checksum is right, there is nothing to renew")
            file.truncate(size)
        append_seal(file)


def is_sealed(path: str | os.PathLike) -> bool:
    """Say whether a file ends with a seal, broken or not."""
    with Path(path).open("rb") as file:
        return _seal_of(file) is not None


def digest_of_seal(path: str | os.PathLike) -> str | None:
    """Return the checksum that a file's seal states, None if it has none."""
    with Path(path).open("rb") as file:
        seal = _seal_of(file)
    return None if seal is None else seal.removeprefix(_HEAD).strip().decode()


def require_unbroken_seal(path: str | os.PathLike) -> None:
    """Raise `ValueError` if a file is not what was sealed; of one that this process has checked, by its time."""
    name, version, begun = str(Path(path).resolve()), version_of(path), time.time_ns()
    if _unbroken.get(name) == version:
        return
    *_, size, changed = version
    with Path(path).open("rb") as file:
        seal = _seal_of(file)
        if seal is None:
            return
        if seal != _sealing(file, size - _LENGTH):
            raise ValueError(
                f"{path}: damaged or changed, its checksum differs; if it was changed on purpose, "
                f"mosaicdd info --reseal {path}"
            )
    if begun - changed > _TICK:
        _unbroken[name] = version


def trust_seal(path: str | os.PathLike) -> None:
    """Note that a file is whole: another rank has just checked its seal for all."""
    _unbroken[str(Path(path).resolve())] = version_of(path)


def _seal_of(file: BinaryIO) -> bytes | None:
    """Return the seal at the end of a file, None if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LENGTH))
    seal = file.read()
    return seal if seal.startswith(_HEAD) else None


def _sealing(file: BinaryIO, size: int) -> bytes:
    """Return the seal of the first ``size`` bytes."""
    file.seek(0)
    digest = 0
    while size > 0 and (data := file.read(min(size, _CHUNK))):
        digest = zlib.crc32(data, digest)
        size -= len(data)
    return _HEAD + b"%08x\n" % digest
