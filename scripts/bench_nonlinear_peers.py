"""Nonlinear equations by Newton's method here, and by Newton's method with other linear solvers.

Usage: bench_nonlinear_peers.py CELLS EQUATION [METHOD...], each METHOD one of ``newton``, ``cholmod``, ``pfmg``,
``pfmg-red-black``, ``hypre``, ``hypre-tuned`` or ``pyamg``; by default all. One thread, float64. The
problems: ``-lap u + 10 sinh u = f`` with smooth boundary data of amplitude 2 and a smooth source; a minimal surface over
smooth boundary data with slopes up to 1.2. Errors are root mean squares over all nodes, relative to the solution's,
against a solution to a residual of 1e-11, which is kept in the folder for temporary files. Peers begin at zero, so
that their first step solves the linear equation; of their seconds those in the linear solver are told apart. Their
matrices are made as fast as we can: one that does not change and a diagonal, or the derivative's conductances by this
package. Their linear systems are solved only as well as it pays (Eisenstat and Walker). Rows go to
``benchmarks/nonlinear_peers.csv`` and ``nonlinear_peers.md``.
"""

import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from nonlinear_peers import TIGHT, peer, problem, relative
from peers import petsc_described
from tables import BENCHMARKS, publish, table

import mosaicdd as m

_COLUMNS = (
    "equation",
    "cells",
    "method",
    "iterations",
    "seconds",
    "in the solver",
    "relative error",
)
_OURS = "newton"
_PEERS = ("cholmod", "pfmg", "pfmg-red-black", "hypre", "hypre-tuned", "pyamg")
_ORDER = (_OURS, *_PEERS)
_FILE = BENCHMARKS / "nonlinear_peers.csv"


def reference(name: str, one: m.Problem) -> np.ndarray:
    """Return the solution, computed once."""
    path = Path(tempfile.gettempdir()) / f"{name}.npy"
    if not path.exists():
        np.save(path, m.solve(one, rtol=1e-11).field)
    return np.load(path)


def ours(equation: str, cells: int, method: str, truth: np.ndarray) -> Iterator[list[object]]:
    """Measure Newton's method here, from the problem to the field."""
    m.solve(problem(equation, 64), rtol=TIGHT)  # so that nothing has to be loaded
    begun = time.perf_counter()
    solution = m.solve(problem(equation, cells), rtol=TIGHT)
    seconds = time.perf_counter() - begun
    if not solution.converged:
        raise RuntimeError(f"{method}: {solution.status}")
    error = relative(solution.field, truth)
    yield [equation, cells, method, solution.iterations, seconds, "", error]


def keep(rows: list[list[object]]) -> list[list[str]]:
    """Put rows into the file, in the place of those with the same first columns; return all."""
    known: list[list[str]] = []
    if _FILE.exists():
        with _FILE.open(newline="") as file:
            known = list(csv.reader(file))[1:]
    new = [[str(v) if isinstance(v, (int, str)) else f"{v:.4g}" for v in row] for row in rows]

    def place(row: list[str]) -> tuple[object, ...]:
        return row[0], int(row[1]), _ORDER.index(row[2].partition(",")[0])

    measured = {place(row) for row in new}
    every = sorted([row for row in known if place(row) not in measured] + new, key=place)
    with _FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *every])
    return every


def main(cells: int, equation: str, methods: list[str]) -> None:
    """Measure, and write the table."""
    torch.set_num_threads(1)
    rows: list[list[object]] = []
    truth = reference(f"{equation}-{cells}", problem(equation, cells))
    for method in methods or _ORDER:
        measure = ours if method == _OURS else peer
        for row in measure(equation, cells, method, truth):
            print(*row, flush=True)
            rows.append(row)
    text = (
        f"{table(list(_COLUMNS), keep(rows))}\n\n"
        "By `python scripts/bench_nonlinear_peers.py`; its head says what was measured. "
        f"{petsc_described()} Each row of a peer is the state after another of its steps, so the one to "
        "compare with is the first that is as good."
    )
    publish("nonlinear_peers", "Nonlinear equations beside peers", text)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
