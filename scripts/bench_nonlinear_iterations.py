"""Iterations for nonlinear equations: Newton's method in the subdomains, and on the grid where that does not serve.

Usage: bench_nonlinear_iterations.py [PROBLEM ...], by default all of `PROBLEMS`. One thread, to a relative update of 1e-8, on the
square of side 4, so that finer grids have more subdomains. *Apart* is the largest difference on the first grid, of
solutions to 1e-11, from Newton's method on the grid with a sparse direct solver. Rows go to
``benchmarks/nonlinear_iterations.csv`` and ``nonlinear_iterations.md``. Seconds are the processor's.
"""

import csv
import sys
import time

import numpy as np
import torch
from tables import BENCHMARKS, publish, table

import mosaicdd as m
from mosaicdd.problems.references.references import solve_directly

_SIDE, _SIZES = 4.0, (256, 512, 1024)
_FILE = BENCHMARKS / "nonlinear_iterations.csv"
_HEADER = ["equation", "with", "Newton on", *map(str, _SIZES), "CPU s of the last", "apart"]
_BY_SUBDOMAINS = "subdomain-newton"


def source(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a smooth source."""
    return np.sin(2 * x) * np.cos(y)


def _times(factor: float) -> dict[str, object]:
    return {"f": lambda x, y: factor * source(x, y)}


_WAVES, _FLAT = "2*sin(3*x) + cos(y)", "0.5*sin(3*x) + 0.3*cos(y)"
PROBLEMS: dict[str, tuple[str, dict[str, object], str, str]] = {
    "c 20, f to 20": ("poisson-boltzmann", {"c": 20.0} | _times(20.0), _WAVES, _BY_SUBDOMAINS),
    "eps 0.2 to 0.4, c 10": (
        "allen-cahn",
        {"eps": "0.2 + 0.05*x", "c": 10.0} | _times(20.0),
        _WAVES,
        _BY_SUBDOMAINS,
    ),
    "slopes to 2": ("minimal-surface", _times(0.2), _FLAT, _BY_SUBDOMAINS),
    "p 1.5, a 0.5 to 2.5": (
        "p-laplace",
        {"p": 1.5, "eps": 0.1, "a": "1.5 + sin(x)"} | _times(0.2),
        _FLAT,
        _BY_SUBDOMAINS,
    ),
    "p 4, a 0.5 to 2.5": (
        "p-laplace",
        {"p": 4.0, "eps": 0.1, "a": "1.5 + sin(x)"} | _times(0.2),
        _FLAT,
        _BY_SUBDOMAINS,
    ),
    "p 4, a 0.2 to 1.8": (
        "p-laplace",
        {"p": 4.0, "eps": 0.1, "a": "1 + 0.8*sin(7*x + 2*y)"},
        "cos(2*x)*y/4",
        _BY_SUBDOMAINS,
    ),
    "k 1 + u^2, u to 5": (
        "quasilinear-diffusion",
        {"k": "1 + u**2"} | _times(20.0),
        "5*sin(x + y)",
        "exact",
    ),
    "slopes to 4": ("minimal-surface", _times(0.2), "4*sin(x)", "exact"),
}


def main(names: list[str]) -> None:
    """Solve, print and write the table."""
    torch.set_num_threads(1)
    for what in names:
        row = _row(what)
        known = {line[1]: line for line in _known()} | {what: row}
        with open(_FILE, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([_HEADER, *(known[name] for name in PROBLEMS if name in known)])
    text = "By `python scripts/bench_nonlinear_iterations.py`; its head says what is measured."
    title = "Iterations for nonlinear equations"
    publish("nonlinear_iterations", title, f"{text}\n\n{table(_HEADER, _known())}")


def _known() -> list[list[str]]:
    """Return the rows that were measured."""
    if not _FILE.exists():
        return []
    with open(_FILE, newline="") as file:
        return list(csv.reader(file))[1:]


def _row(what: str) -> list[str]:
    """Solve a problem on all grids."""
    equation, fields, boundary, solver = PROBLEMS[what]

    def problem(cells: int) -> m.Problem:
        domain = m.Domain((cells, cells), _SIDE / cells)
        return m.Problem(domain, equation, fields, m.Dirichlet(boundary))

    counts, seconds = [], 0.0
    for cells in _SIZES:
        begun = time.process_time()
        solution = m.solve(problem(cells), solver, settings=m.SolveSettings(rtol=1e-8))
        seconds = time.process_time() - begun
        if not solution.converged:
            raise RuntimeError(f"{equation} at {cells}: {solution.status}")
        counts.append(str(solution.iterations))
    tight = m.solve(problem(_SIZES[0]), solver, settings=m.SolveSettings(rtol=1e-11))
    apart = np.abs(np.asarray(tight.field) - solve_directly(problem(_SIZES[0]))).max()
    by = "subdomains" if solver == _BY_SUBDOMAINS else "the grid"
    return [equation, what, by, *counts, f"{seconds:.1f}", f"{apart:.0e}"]


if __name__ == "__main__":
    main(sys.argv[1:] or list(PROBLEMS))
