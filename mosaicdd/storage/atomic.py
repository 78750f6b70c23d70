"""Write a file under a temporary name and rename it when it is complete.

A reader never sees half a file, and an interrupted run leaves the old one. Every file that the
package writes goes through `atomic_file`; commands call `require_writable` before they work.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def require_writable(path: str | os.PathLike) -> Path:
    """Check that a file can be created at ``path``, and return it as a `Path`.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    NotADirectoryError
        If what should be the folder is a file.
    IsADirectoryError
        If ``path`` itself is a folder.
    FileExistsError
        If ``path`` is a device, a pipe or a socket.
    PermissionError
        If the folder cannot be written to.
    """
    path = Path(path)
    folder = path.parent
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
    return path


@contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it at success, remove it otherwise.

    Raises
    ------
    OSError
        As `require_writable`, before anything is written.
    """
    path = require_writable(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """Return the mask of new files, which `tempfile` ignores."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
