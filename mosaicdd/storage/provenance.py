"""By what, when and where a file was made: what a year later tells two of them apart."""

import functools
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mosaicdd

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
    """Let `made_by` say which files a command line names, with a checksum of each, and from where paths count."""
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
    """Return command line and the files it names, date (of UTC), host, commit of the package where it runs from a checkout, and versions."""
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
