"""A domain of 268 million nodes on a small machine, or a box of a thousand million: seconds, memory, file and error.

``mosaicdd solve`` on several ranks, as a user starts it; its file is then opened by plain h5py, and sampled rows, of a box
planes, are compared with the discrete solution: that of a rectangle, with random values on its sides, is found independently by
`row_reference`; in a box values are those of ``sin(2 x) cos(3 z) exp(g y)``, with the ``g`` that makes it a solution of the
discrete equation. The box is solved by half-overlapping cubes, and certified.

Usage: bench_large.py [--cells CELLS] [--ranks RANKS] [--box]
"""

import argparse
import math
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
_ALONG_X, _ALONG_Z = 2.0, 3.0


def main(cells: int, ranks: int, *, box: bool) -> None:
    """Solve, check, print the table and write it to ``benchmarks/``."""
    size = "x".join([str(cells)] * (3 if box else 2))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "large.h5"
        command = ["solve", "-o", str(output), "--cells", size]
        if box:
            command += ["--spacing", repr(1 / cells), "--local-solver", "laplace-cubes"]
            command += ["--boundary", f"expr:{_harmonic(cells)}", "--certify", "1e-5"]
        start = time.perf_counter()
        report = mosaicdd(ranks, *command)
        seconds = time.perf_counter() - start
        bytes_of_file = output.stat().st_size
        rows = np.random.default_rng(0).choice(np.arange(1, cells), _SAMPLES, replace=False)
        difference = _of_planes(output, cells, rows) if box else _of_rows(output, cells, rows)
    spent = report["seconds"]
    results = {
        "ranks": ranks,
        "grid nodes": f"{(cells + 1) ** (3 if box else 2):,}",
        "iterations": report["iterations"],
        "status": report["status"],
        "seconds: set-up": f"{spent['setup']:.1f}",
        "seconds: iterations": f"{spent['iterate']:.1f}",
        "seconds: error estimate": f"{spent['estimate']:.1f}",
        "seconds: fill": f"{spent['assemble']:.1f}",
        "seconds: write": f"{spent['write']:.1f}",
        "seconds: whole command": f"{seconds:.1f}",
        "peak memory of all ranks, GB": f"{report['peak_memory_bytes'] / 1e9:.2f}",
        "file, GB": f"{bytes_of_file / 1e9:.2f}",
        f"MAE on {_SAMPLES} sampled {'planes' if box else 'rows'}": f"{difference.mean():.1e}",
        "largest error there": f"{difference.max():.1e}",
        "error estimate": f"{report['error_estimate']:.1e}",
    }
    text = table(["", ""], [[name, str(value)] for name, value in results.items()])
    note = (
        f"Shipped {'network of faces' if box else 'linear network'}, float64, two levels. Fill and write go on side by side: the fill "
        "is the time until the last strip, without what the first rank spends in writing."
    )
    if box:
        note += f" Values of `{_harmonic(cells)}`."
    name, times = f"large_box_{cells}" if box else f"large_{cells}", size.replace("x", " x ")
    publish(name, f"Laplace, {times}, {ranks} ranks", f"{text}\n\n{note}")


def _harmonic(cells: int) -> str:
    """Return a solution of the discrete equation on a cube of side 1, as an expression."""
    return f"sin({_ALONG_X:g}*x)*cos({_ALONG_Z:g}*z)*exp({_along_y(cells)!r}*y)"


def _along_y(cells: int) -> float:
    h = 1 / cells
    squares = math.sin(_ALONG_X * h / 2) ** 2 + math.sin(_ALONG_Z * h / 2) ** 2
    return 2 / h * math.asinh(math.sqrt(squares))


def _of_planes(path: Path, cells: int, numbers: np.ndarray) -> np.ndarray:
    """Return the errors of a box's file, (z, y, x), on planes across z."""
    along = np.linspace(0, 1, cells + 1)
    plane = np.exp(_along_y(cells) * along)[:, None] * np.sin(_ALONG_X * along)
    with h5py.File(path) as file:
        errors = [
            np.abs(file["solution"][n] - math.cos(_ALONG_Z * along[n]) * plane) for n in numbers
        ]
    return np.stack(errors)


def _of_rows(path: Path, cells: int, numbers: np.ndarray) -> np.ndarray:
    """Return the errors of a rectangle's file on rows."""
    with h5py.File(path) as file:
        written = np.stack([file["solution"][number] for number in numbers])
    boundary = Boundary.of_gaussian_process(Grid((cells, cells), 0.5 / 32), seed=0)
    return np.abs(written - solution_rows(boundary, list(numbers)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cells", type=int, help="along each axis; by default 16384, of a box 1024"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--box", action="store_true", help="of three axes")
    arguments = parser.parse_args()
    main(arguments.cells or (1024 if arguments.box else 16384), arguments.ranks, box=arguments.box)
