"""A domain of 268 million nodes on a small machine: seconds, memory, file and error.

``mosaicdd solve`` on two ranks, as a user starts it; its file is then opened by plain h5py, and
sampled rows are compared with the discrete solution, which `row_reference` finds independently.

Usage: bench_large.py [CELLS [RANKS]]
"""

import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
from ranks import mosaicdd
from row_reference import solution_rows
from tables import publish, table

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.sides.boundary import Boundary

_SAMPLES = 16


def main(cells: int, ranks: int) -> None:
    """Solve, check, print the table and write it to ``benchmarks/``."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "large.h5"
        start = time.perf_counter()
        report = mosaicdd(ranks, "solve", "-o", str(output), "--cells", f"{cells}x{cells}")
        seconds = time.perf_counter() - start
        size = output.stat().st_size
        rows = np.random.default_rng(0).choice(np.arange(1, cells), _SAMPLES, replace=False)
        with h5py.File(output) as file:
            written = np.stack([file["solution"][row] for row in rows])
    boundary = Boundary.of_gaussian_process(Grid((cells, cells), 0.5 / 32), seed=0)
    difference = np.abs(written - solution_rows(boundary, list(rows)))
    spent = report["seconds"]
    results = {
        "ranks": ranks,
        "grid nodes": f"{(cells + 1) ** 2:,}",
        "iterations": report["iterations"],
        "status": report["status"],
        "seconds: set-up": f"{spent['setup']:.1f}",
        "seconds: iterations": f"{spent['iterate']:.1f}",
        "seconds: error estimate": f"{spent['estimate']:.1f}",
        "seconds: fill": f"{spent['assemble']:.1f}",
        "seconds: write": f"{spent['write']:.1f}",
        "seconds: whole command": f"{seconds:.1f}",
        "peak memory of all ranks, GB": f"{report['peak_memory_bytes'] / 1e9:.2f}",
        "file, GB": f"{size / 1e9:.2f}",
        f"MAE on {_SAMPLES} sampled rows": f"{difference.mean():.1e}",
        "largest error there": f"{difference.max():.1e}",
        "error estimate": f"{report['error_estimate']:.1e}",
    }
    text = table(["", ""], [[name, str(value)] for name, value in results.items()])
    note = (
        "Shipped linear network, float64, two levels. Fill and write go on side by side: the fill "
        "is the time until the last strip, without what the first rank spends in writing."
    )
    publish(f"large_{cells}", f"Laplace, {cells} x {cells}, {ranks} ranks", f"{text}\n\n{note}")


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(*(numbers + [16384, 2][len(numbers) :]))
