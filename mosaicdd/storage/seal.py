"""A seal at the end of a file: the CRC-32 of all before it.

HDF5 checks neither plain arrays nor texts, and does not survive damage to what it calls metadata:
a sealed file is checked as a whole before HDF5 sees it. HDF5 does not mind bytes behind its own.
"""

import os
import zlib
from pathlib import Path
from typing import BinaryIO

_HEAD = b"\nmosaicdd crc32 "
_LENGTH = len(_HEAD) + 9
_CHUNK = 2**20  # bytes


def append_seal(file: BinaryIO) -> None:
    """Seal a complete file that is open for reading and writing."""
    size = file.seek(0, os.SEEK_END)
    digest = _digest(file, size)
    file.seek(size)
    file.write(_HEAD + b"%08x\n" % digest)


def is_sealed(path: str | os.PathLike) -> bool:
    """Say whether a file ends with a seal, broken or not."""
    with Path(path).open("rb") as file:
        return _seal_of(file) is not None


def digest_of_seal(path: str | os.PathLike) -> str | None:
    """Return the checksum that a file's seal states, None if it has none."""
    with Path(path).open("rb") as file:
        seal = _seal_of(file)
    return seal and seal.removeprefix(_HEAD).strip().decode()


def require_unbroken_seal(path: str | os.PathLike) -> None:
    """Check the seal of a file that has one.

    Raises
    ------
    ValueError
        If the file is not what was sealed.
    """
    with Path(path).open("rb") as file:
        seal = _seal_of(file)
        if seal is None:
            return
        size = file.seek(0, os.SEEK_END) - _LENGTH
        if seal != _HEAD + b"%08x\n" % _digest(file, size):
            raise ValueError(f"{path}: damaged or changed, its checksum differs")


def _seal_of(file: BinaryIO) -> bytes | None:
    """Return the seal at the end of a file, None if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LENGTH))
    seal = file.read()
    return seal if seal.startswith(_HEAD) else None


def _digest(file: BinaryIO, size: int) -> int:
    """Return the CRC-32 of the first ``size`` bytes."""
    file.seek(0)
    digest = 0
    while size > 0 and (data := file.read(min(size, _CHUNK))):
        digest = zlib.crc32(data, digest)
        size -= len(data)
    return digest
