"""What is handed on: the source distribution is the repository, the wheel all of the package."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import mosaicdd

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tracked():
    """List the files of the repository, but for its own settings, whose names begin with a dot."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no repository")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return {name for name in listed if not name.startswith(".") and (ROOT / name).is_file()}


def build(what, source):
    """Build a distribution as pip does, without a network; return its path."""
    target = source / "made"
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(target)!r})"
    target.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, check=True)
    (made,) = (path for path in target.iterdir() if path.suffix in (".gz", ".whl"))
    return made


@pytest.fixture(scope="module")
def sdist(tracked, tmp_path_factory):
    """Return the source distribution of a copy of the repository."""
    copy = tmp_path_factory.mktemp("copy")
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return build("sdist", copy)


def test_the_source_distribution_holds_every_file_of_the_repository(sdist, tracked):
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert tracked - held == set()
    made = {name for name in held - tracked if not name.startswith("mosaicdd.egg-info/")}
    assert made == {"PKG-INFO"}


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Return a wheel made from the source distribution."""
    folder = tmp_path_factory.mktemp("source")
    shutil.unpack_archive(sdist, folder)
    (source,) = folder.iterdir()
    return build("wheel", source)


def test_a_wheel_made_from_it_holds_all_of_the_package(wheel, tracked):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {name for name in tracked if name.startswith("mosaicdd/")}
    assert held == package
    assert {Path(name).suffix for name in package} >= {".py", ".h5", ".css"}


@pytest.mark.nightly
def test_outside_of_the_checkout_the_wheel_solves(wheel, tmp_path):
    place, folder = tmp_path / "site", tmp_path / "work"
    folder.mkdir()
    install = ("install", "--quiet", "--no-deps", "--no-index", "--target", str(place), str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    where = "import mosaicdd; print(mosaicdd.__file__)"
    solve = ("solve", "-o", "out.h5", "--cells", "128x64", "--local-solver", "laplace")
    said = [
        subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(place)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for arguments in (
            ("-c", where),
            ("-m", "mosaicdd.cli.main", *solve, "--boundary", "expr:x*x-y*y"),
            ("-m", "mosaicdd.cli.main", "compare", "out.h5", "--reference", "expr:x*x-y*y"),
            ("-m", "mosaicdd.cli.main", "report", "out.h5", "-o", "page.html"),
        )
    ]
    assert Path(said[0].strip()).is_relative_to(place)
    assert "converged_rtol" in said[1]
    assert float(re.search(r"largest error (\S+),", said[2])[1]) < 1e-5
    assert (folder / "page.html").stat().st_size > 10_000


def test_the_citation_is_of_this_version():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == mosaicdd.__version__
