"""The gallery: every example runs, converges and draws; and the site is built without a warning."""

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))
_LONG = {"plot_own_network", "plot_large_medium", "plot_cluster_run"}  # of seconds
_LONG |= {"plot_inverse_conductivity", "plot_heat_sink", "plot_pumping_test", "plot_soap_film"}


def each():
    """Return the examples, those that take long for the night."""
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * (path.stem in _LONG))
        for path in EXAMPLES
    ]


@pytest.mark.parametrize("example", each())
def test_an_example_runs_and_draws_what_converged(example, capsys):
    before = matplotlib.get_backend()
    matplotlib.use("Agg")
    try:
        runpy.run_path(str(example))
        printed = capsys.readouterr().out
        assert pyplot.get_fignums()
    finally:
        pyplot.close("all")
        matplotlib.use(before)
    assert "converged" in printed
    assert "diverged" not in printed


def test_an_example_begins_with_a_title_and_what_it_is_about():
    assert len(EXAMPLES) >= 12
    for path in EXAMPLES:
        title, line, empty, text, *_ = path.read_text().split("\n")[1:]
        assert set(line) == {"="}, path
        assert len(line) == len(title)
        assert not empty
        assert text


@pytest.mark.nightly
@pytest.mark.limit(900)
def test_the_site_is_built_without_a_warning(tmp_path):
    if any(importlib.util.find_spec(name) is None for name in ("sphinx", "sphinx_gallery", "furo")):
        pytest.skip("needs the packages of the extra site")
    copy = tmp_path / "copy"
    for name in ("docs", "benchmarks", "data", "mosaicdd", "scripts", "slurm", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", copy)
    command = [sys.executable, "-m", "sphinx", "-c", "docs", "-W", "--keep-going", ".", "site"]
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert (copy / "site" / "docs" / "index.html").exists()
