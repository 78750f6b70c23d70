"""A rough answer in a box, on a grid two times coarser, beside the first iterations of the exact engine.

Usage: bench_rough.py [CELLS], by default 96 along each axis. One thread, float64, media of `media.IN_SPACE` per voxel,
a source of 1 and a smooth function on all faces. On the coarser grid a voxel conducts along each axis as its eight do:
pairs in series, side by side; what its solution lacks is estimated by how far that of a grid two times coarser again
is from it. Between its nodes the field is linear. Errors and estimates are root mean squares relative to that of the
solution; seconds are those of the processor, from the problem to the field, after a solve of each kind to warm up, and
those of the estimate stand beside. Written to ``benchmarks/rough.md``.
"""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from media import IN_SPACE
from tables import publish, table

import mosaicdd as m

_CONSTANT = "constant"
_NAMES = ("azz", "ayy", "axx")
_ITERATIONS = (1, 2, 3, 4, 6)
_EXACT = 1e-11  # relative residual of the solution that others are compared with
_ON_FACES = m.Dirichlet("sin(3*x)*cos(2*y)+z")


def main(cells: int) -> None:
    """Measure each medium, and write the table."""
    torch.set_num_threads(1)
    rows = []
    for kind, make in IN_SPACE.items():
        if kind == _CONSTANT:  # goes by transforms
            continue
        for n in (16, cells):  # what is loaded once is not measured
            a = make((n,) * 3, np.random.default_rng(0))
            measured = [_rough(a)] + [_iterated(a, number) for number in _ITERATIONS]
        exact = _fine(a, rtol=_EXACT).field
        size = _rms(exact)
        for by, field, estimate, seconds, more in measured:
            error = _rms(field - exact) / size
            said = estimate / size
            rows.append([kind, by, f"{error:.1e}", f"{said:.1e}", f"{seconds:.2f}", more])
            print(*rows[-1], flush=True)
    header = ["medium", "by", "error", "estimate", "seconds", "of the estimate"]
    publish(
        "rough",
        f"A grid two times coarser as a rough answer, {cells} x {cells} x {cells}",
        f"By `python scripts/bench_rough.py`; its head says what is measured.\n\n{table(header, rows)}",
    )


def _rough(a: np.ndarray) -> tuple[str, np.ndarray, float, float, str]:
    """Solve on every second node; return a name, the field on all, its estimated error, and seconds."""
    (coarse, field), seconds = _timed(lambda: _coarser(_pairs(a)))
    (_, again), more = _timed(lambda: _coarser([_pairs(k)[axis] for axis, k in enumerate(coarse)]))
    return "coarser", field, _rms(again - field[::2, ::2, ::2]), seconds, f"{more:.2f}"


def _coarser(tensor: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Solve with conductivities along each axis, per voxel; return these and the field on a grid twice as fine."""
    fields = dict(zip(_NAMES, tensor, strict=True)) | {"f": 1.0}
    cells = tensor[0].shape
    problem = m.Problem(m.Domain(cells, 1 / cells[0]), "diffusion", fields, _ON_FACES)
    return tensor, _doubled(m.solve(problem, rtol=1e-4).field)


def _pairs(a: np.ndarray) -> list[np.ndarray]:
    """Return what voxels twice as large conduct along each axis: pairs in series, four of them side by side."""
    along = []
    for axis in range(a.ndim):
        moved = np.moveaxis(a, axis, 0)
        series = np.moveaxis(2 / (1 / moved[::2] + 1 / moved[1::2]), 0, axis)
        for other in {*range(a.ndim)} - {axis}:
            moved = np.moveaxis(series, other, 0)
            series = np.moveaxis((moved[::2] + moved[1::2]) / 2, 0, other)
        along.append(series)
    return along


def _doubled(values: np.ndarray) -> np.ndarray:
    """Return values at nodes, and half way between them."""
    for axis in range(values.ndim):
        low = np.moveaxis(values, axis, 0)
        between = np.empty((2 * len(low) - 1, *low.shape[1:]))
        between[::2], between[1::2] = low, (low[1:] + low[:-1]) / 2
        values = np.moveaxis(between, 0, axis)
    return values


def _iterated(a: np.ndarray, number: int) -> tuple[str, np.ndarray, float, float, str]:
    """Return what so many iterations of the exact engine give; as `_rough`."""
    solution, seconds = _timed(lambda: _fine(a, rtol=_EXACT, max_iterations=number))
    by = f"exact, {number} iteration{'s' * (number > 1)}"
    return by, solution.field, solution.error_estimate, seconds, ""


def _fine(a: np.ndarray, **settings: float) -> m.Solution:
    problem = m.Problem(
        m.Domain(a.shape, 1 / a.shape[0]), "diffusion", {"a": a, "f": 1.0}, _ON_FACES
    )
    return m.solve(problem, settings=m.SolveSettings(**settings))


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def _rms(values: np.ndarray) -> float:
    return math.sqrt(np.mean(np.square(values)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 96)
