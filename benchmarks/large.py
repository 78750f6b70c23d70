"""A domain of 268 million nodes on a small machine, or a box of a thousand million: seconds, memory, file and error.

``mosaicdd solve`` on several ranks, as a user starts it; its file is then opened by plain h5py, and sampled rows, of a box
planes, are compared with the discrete solution: that of a rectangle, with random values on its sides, is found independently by
separation of variables; in a box values are those of ``sin(2 x) cos(3 z) exp(g y)``, with the ``g`` that makes it a solution of the
discrete equation. The box is solved by half-overlapping cubes, and certified. With ``--medium`` it is one of contrast 10,000 by an expression,
with a constant source and zero on all faces, solved by multigrid to a residual of 1e-8, and nothing is compared.
"""

import math
import tempfile
from pathlib import Path

import h5py
import numpy as np
import scipy.fft
from common import mosaicdd, publish, table, timed

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.sides.boundary import Boundary

_SAMPLES = 16
_ALONG_X, _ALONG_Z = 2.0, 3.0
_MEDIUM = "a=expr:100**(sin(13*x+2*y)*cos(9*y-3*z)*sin(11*z+x))"
_COLUMNS = 256  # of the independent solution, worked on at a time

SMALL = {"cells": 64}


def main(
    *, cells: int | None = None, ranks: int = 2, box: bool = False, medium: bool = False
) -> None:
    """Solve, check, print the table and write it to ``benchmarks/``."""
    box = box or medium
    cells = cells or (512 if medium else 1024 if box else 16384)
    size = "x".join([str(cells)] * (3 if box else 2))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "large.h5"
        command = ["solve", "-o", str(output), "--cells", size]
        if medium:
            command += ["--spacing", repr(1 / cells), "--pde", "diffusion", "--field", _MEDIUM]
            command += ["--field", "f=1", "--boundary", "0", "--rtol", "1e-8"]
        elif box:
            command += ["--spacing", repr(1 / cells), "--local-solver", "laplace-cubes"]
            command += ["--boundary", f"expr:{_harmonic(cells)}", "--certify", "1e-5"]
        report, seconds = timed(mosaicdd, ranks, *command)
        bytes_of_file = output.stat().st_size
        rows = np.random.default_rng(0).choice(np.arange(1, cells), _SAMPLES, replace=False)
        compared = _of_planes if box else _of_rows
        difference = None if medium else compared(output, cells, rows)
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
        "error estimate": f"{report['error_estimate']:.1e}",
        "residual": f"{report['discrete_residual']:.1e}",
    }
    if difference is not None:
        sampled = f"MAE on {_SAMPLES} sampled {'planes' if box else 'rows'}"
        results[sampled] = f"{difference.mean():.1e}"
        results["largest error there"] = f"{difference.max():.1e}"
    note = (
        "float64. Fill and write go on side by side: the fill is the time until the last strip, without what the "
        "first rank spends in writing."
    )
    if box:
        note += f" {_MEDIUM if medium else 'Values of ' + _harmonic(cells)}."
    name, times = f"large_box_{cells}" if box else f"large_{cells}", size.replace("x", " x ")
    name, kind = (f"fields_box_{cells}", "A medium") if medium else (name, "Laplace")
    publish(name, f"{kind}, {times}, {ranks} ranks", table(["", ""], results.items()), note)


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


def solution_rows(boundary: Boundary, rows: list[int]) -> np.ndarray:
    """Return the values on rows of grid nodes inside the domain, ``(len(rows), nx + 1)``.

    By separation of variables, with the discrete eigenvalues: a mode of the data on one edge decays towards the other
    as ``sinh(mu (n - i)) / sinh(mu n)`` with ``cosh(mu) = 1 + lambda / 2``. Nothing here is shared with the solvers, and
    no array is larger than a few rows.
    """
    ny, nx = boundary.shape
    rows = np.asarray(rows)
    field = np.zeros((len(rows), nx + 1))
    field[:, 0], field[:, -1] = boundary.named["left"][rows], boundary.named["right"][rows]
    for data, distance in ((boundary.named["bottom"], rows), (boundary.named["top"], ny - rows)):
        modes = scipy.fft.dst(data[1:-1], type=1)
        decayed = modes * _decay(_exponents(nx), distance[:, None], ny)
        field[:, 1:-1] += scipy.fft.idst(decayed, type=1, axis=1)
    mu = _exponents(ny)
    angles = np.pi / ny * np.outer(rows, np.arange(1, ny))
    weights = [
        np.sin(angles) * scipy.fft.dst(e[1:-1], type=1) / ny
        for e in (boundary.named["left"], boundary.named["right"])
    ]
    for start in range(1, nx, _COLUMNS):
        columns = np.arange(start, min(start + _COLUMNS, nx))
        for weight, distance in zip(weights, (columns, nx - columns), strict=True):
            field[:, columns] += weight @ _decay(mu[:, None], distance, nx)
    return field


def _exponents(cells: int) -> np.ndarray:
    """Return ``mu`` of the modes along an axis."""
    eigenvalues = 2 - 2 * np.cos(np.pi * np.arange(1, cells) / cells)
    return np.arccosh(1 + eigenvalues / 2)


def _decay(mu: np.ndarray, distance: np.ndarray, cells: int) -> np.ndarray:
    """Return ``sinh(mu (n - i)) / sinh(mu n)`` at a distance ``i``, without overflow."""
    far = -np.expm1(-2 * mu * (cells - distance)) / -np.expm1(-2 * mu * cells)
    return np.exp(-mu * distance) * far
