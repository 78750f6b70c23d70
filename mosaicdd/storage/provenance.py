"""By what, when and where a file was made: what a year later tells two of them apart."""

import functools
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mosaicdd

_LIBRARIES = ("h5py", "numpy", "pyamg", "pytorch-optimizer", "scipy", "torch")
_SECONDS = 5  # for git to answer


def library_versions() -> dict[str, str]:
    """Return the versions of the package and of the libraries that its results depend on."""
    versions = {"mosaicdd": mosaicdd.__version__}
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = "absent"
    return versions


def made_by() -> dict[str, str]:
    """Return command line, date (of UTC), host, commit of the package where it runs from a checkout, and versions."""
    made = {
        "command_line": shlex.join(sys.argv),
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
