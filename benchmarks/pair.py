"""The main jobs by this tree and by an earlier commit of it, run in turns: seconds, memory, fields.

A worktree of the commit is checked out beside; each job is run by both, the order changing from pair
to pair, as a user starts it. ``seconds`` is what the report says from the set-up to the last strip
of the field, writing apart; the ratio is the median over the pairs of one by the other. The
start-up is ``mosaicdd solve`` of the smallest domain, the whole command. Modules are compiled once for
each tree, before, as they are when a package is installed.
"""

import contextlib
import functools
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from common import ROOT, in_turns, mosaicdd, publish, table

_JOBS = {
    "2048 x 2048": (1, ("--cells", "2048x2048")),
    "8192 x 8192, 2 ranks": (2, ("--cells", "8192x8192")),
    "64 problems of 256 x 256": (1, ("--cells", "256x256", "--boundary", "gp:seed=0..63")),
}
_SMALLEST = ("--cells", "64x64")
_PARTS = ("setup", "iterate", "estimate", "assemble")


def main(commit: str, pairs: int = 10) -> None:
    """Run all jobs, print the table and write it to ``benchmarks/``."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tree"
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(there), commit], check=True)
        try:
            trees = {commit: there, "this": ROOT}
            rows = [row for name in _JOBS for row in _compared(name, trees, pairs, Path(folder))]
            rows.append(_started(trees, pairs, Path(folder)))
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)
    header = ["job", "iterations", "seconds", "before", "ratio", "MiB", "before", "ratio"]
    text = table([*header, "fields differ by"], rows)
    note = f"Before: {commit}. {pairs} pairs; seconds and MiB of all ranks are medians."
    publish("pair", "The main jobs, before and after", text, note)


def _compared(name: str, trees: dict[str, Path], pairs: int, folder: Path) -> list[list[str]]:
    """Return the row of a job."""
    ranks, arguments = _JOBS[name]
    reports = _in_turns(
        trees,
        pairs,
        lambda key: mosaicdd(ranks, "solve", "-o", str(folder / f"{key}.h5"), *arguments),
    )
    after, before = reports["this"], next(iter(reports.values()))
    seconds = [[sum(r["seconds"][p] for p in _PARTS) for r in runs] for runs in (after, before)]
    memory = [[r["peak_memory_bytes"] / 2**20 for r in runs] for runs in (after, before)]
    counts = {str(r["iterations"]) for r in after + before}
    files = [folder / f"{key}.h5" for key in trees]
    difference = f"{_difference(*files):.0e}"
    for file in files:
        file.unlink()
    numbers = [*_ratio(*seconds, "{:.3f}"), *_ratio(*memory, "{:.0f}")]
    return [[name, " or ".join(sorted(counts)), *numbers, difference]]


def _started(trees: dict[str, Path], pairs: int, folder: Path) -> list[str]:
    """Return the row of the start-up."""

    def run(key: str) -> float:
        begun = time.perf_counter()
        mosaicdd(1, "solve", "-o", str(folder / f"{key}.h5"), *_SMALLEST)
        return time.perf_counter() - begun

    spent = _in_turns(trees, 2 * pairs, run)
    after, before = spent["this"], next(iter(spent.values()))
    return ["start-up", "", *_ratio(after, before, "{:.2f}"), "", "", "", ""]


def _in_turns(trees: dict[str, Path], pairs: int, run: Callable[[str], Any]) -> dict[str, list]:
    """Run something by all trees, in turns; the first compiles modules."""

    def within(key: str) -> Any:
        with contextlib.chdir(trees[key]):  # ``python -m`` looks there first
            return run(key)

    return in_turns({key: functools.partial(within, key) for key in trees}, pairs)


def _ratio(after: list[float], before: list[float], form: str) -> list[str]:
    """Return both medians, and the median of the ratios of the pairs."""
    ratios = [a / b for a, b in zip(after, before, strict=True)]
    medians = [form.format(statistics.median(runs)) for runs in (after, before)]
    return [*medians, f"{statistics.median(ratios):.3f}"]


def _difference(first: Path, second: Path) -> float:
    """Return the largest difference of the fields of two files."""
    with h5py.File(first) as a, h5py.File(second) as b:
        fields = a["solution"], b["solution"]
        parts = range(0, len(fields[0]), 512)
        return max(
            float(np.abs(fields[0][i : i + 512] - fields[1][i : i + 512]).max()) for i in parts
        )
