"""Nonlinear equations: Newton's method here, beside the same by CHOLMOD, hypre and pyAMG.

Usage: bench_nonlinear.py CELLS [--problems NAME,..] [--by NAME,..]. One thread, float64; every row is a
process of its own. All begin with the solution on a grid twice as coarse, found by the same solver to 1e-6, the
coarsest with the harmonic surface, halve a step that does not lower the residual, and end at a relative residual
of 1e-8; iterative solvers solve a step to a tenth of the residual so far, and to 1e-2 at least. Steps are those on
the finest grid. Seconds are wall time from the problem to the field; *solver* is what the
peers' solvers took alone, set-up included, without the derivative and its matrix, which this package makes
for them, and without the start. The ratio is ours, all in all, to the fastest of the peers' solvers alone. Rows are
kept in ``benchmarks/nonlinear.csv`` and written to ``benchmarks/nonlinear.md``.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from peers import by_petsc, by_pyamg, petsc_described
from tables import KeptRows, publish, table

import mosaicdd as m
from mosaicdd.problems.coarser import coarser, refined
from mosaicdd.problems.discretisation.discrete import MediumSystem
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.problems.references.references import solve_by_sine_transform

_RTOL, _COARSE = 1e-8, 1e-6
_OURS = "mosaicdd"
_BY = (_OURS, "CHOLMOD", "hypre", "pyAMG")
_WAVES = "0.5*sin(7*x)*cos(5*y) + 0.3*x"  # on the unit square: slopes up to 3.5
_PROBLEMS = {
    "minimal-surface": {},
    "poisson-boltzmann": {"c": 50.0, "f": 20.0},
    "quasilinear-diffusion": {"k": "1 + u**2", "a": "1.5 + sin(40*x*y)", "f": 10.0},
    "p-laplace": {"p": 3.0, "a": "1.5 + sin(40*x*y)", "f": 1.0},
}
_COLUMNS = ("steps", "linear iterations", "seconds", "solver", "residual")
_rows = partial(KeptRows, "nonlinear", ("cells", "equation", "by"), _COLUMNS)


def main(arguments: argparse.Namespace) -> None:
    """Measure, a process for each row, and write the tables."""
    if arguments.row:
        _measured(arguments.cells, arguments.problems, arguments.by)
        return
    for name in filter(None, arguments.problems.split(",")):
        for by in arguments.by.split(","):
            row = [str(arguments.cells), "--problems", name, "--by", by, "--row"]
            subprocess.run([sys.executable, __file__, *row], check=True)
    _publish()


def _problem(name: str, cells: int) -> m.Problem:
    domain = m.Domain((cells, cells), 1.0 / cells)
    return m.Problem(domain, name, _PROBLEMS[name], m.Dirichlet(_WAVES))


def _measured(cells: int, name: str, by: str) -> None:
    """Measure one row, and put it beside the others."""
    torch.set_num_threads(1)
    found = _ours(name, cells) if by == _OURS else _theirs(name, cells, by)
    if found is None:
        return
    print(cells, name, by, found, flush=True)
    rows = _rows()
    rows[str(cells), name, by] = found
    rows.write()


def _ours(name: str, cells: int) -> dict[str, str]:
    settings = m.SolveSettings(rtol=_RTOL)
    m.solve(_problem(name, 64), settings=settings)  # what is loaded once per process
    start = time.perf_counter()
    solution = m.solve(_problem(name, cells), settings=settings)
    seconds = time.perf_counter() - start
    return {
        "steps": str(solution.iterations),
        "linear iterations": "",
        "seconds": f"{seconds:.1f}",
        "solver": "",
        "residual": f"{solution.report['discrete_residual']:.0e}",
    }


def _theirs(name: str, cells: int, by: str) -> dict[str, str] | None:
    """Take Newton's steps by a peer's solver; None if it is not here, or not for this matrix."""
    begun = time.perf_counter()
    found = _newton(_problem(name, cells), by, _RTOL)
    if found is None:
        return None
    return {
        "steps": str(found.steps),
        "linear iterations": str(found.iterations) if found.iterations else "direct",
        "seconds": f"{time.perf_counter() - begun:.1f}",
        "solver": f"{found.seconds:.1f}",
        "residual": f"{found.residual:.0e}",
    }


@dataclass
class _Newton:
    """Newton's method by a peer: iterations and seconds in its solver are those of coarser grids, too."""

    u: np.ndarray
    residual: float = 0.0
    steps: int = 0
    iterations: int = 0
    seconds: float = 0.0


def _newton(problem: m.Problem, by: str, tolerance: float) -> _Newton | None:
    """Solve, from the solution on a grid twice as coarse on; the coarsest begins with the harmonic surface."""
    grid = problem.domain.grid()
    (boundary,) = problem.boundaries(grid)
    whole = tuple(slice(0, nodes) for nodes in grid.nodes)
    operator, source = problem.operator.on(grid, whole), problem.source_at(grid, whole)
    force = 0.0 if source is None else grid.spacing**2 * source[0, 1:-1, 1:-1]
    harmonic = solve_by_sine_transform(m.Problem(problem.domain, "laplace", {}, boundary))
    bare = boundary.impose(np.zeros(grid.nodes))
    size = np.linalg.norm(operator.derivative(harmonic, whole).apply(bare) - force)
    now = _Newton(harmonic)
    if min(grid.shape) >= 64:
        below = _newton(coarser(problem, grid, boundary, 0, 2), by, _COARSE)
        if below is None:
            return None
        now = _Newton(boundary.impose(refined(refined(below.u, 2).T, 2).T))
        now.iterations, now.seconds = below.iterations, below.seconds
    r = operator.residual(now.u) - force
    while np.linalg.norm(r) > tolerance * size:
        relative = np.linalg.norm(r) / size
        rtol = max(min(1e-2, 0.1 * relative), min(0.5 * tolerance / relative, 1e-2))
        matrix = MediumSystem(Linearised(operator, now.u), grid).matrix
        if by == "pyAMG":
            found = by_pyamg(matrix, -r.ravel(), rtol)
        else:
            found = by_petsc(matrix, -r.ravel(), by.lower(), rtol)
        if found is None:
            return None
        now.seconds += found.seconds
        now.iterations += found.iterations or 0
        before, length = np.linalg.norm(r), 1.0
        while True:
            tried = now.u.copy()
            tried[1:-1, 1:-1] += length * found.solution.reshape(r.shape)
            r = operator.residual(tried) - force
            if np.linalg.norm(r) < before:
                break
            length /= 2
        now.u, now.steps = tried, now.steps + 1
    now.residual = float(np.linalg.norm(r) / size)
    return now


def _publish() -> None:
    """Write a table for each size."""
    rows, parts = _rows(), []
    for cells in sorted({key[0] for key in rows}, key=int):
        lines = []
        for name in _PROBLEMS:
            here = {by: rows[cells, name, by] for by in _BY if (cells, name, by) in rows}
            others = [float(row["solver"]) for by, row in here.items() if by != _OURS]
            for by, row in here.items():
                ratio = ""
                if by == _OURS and others:
                    ratio = f"{float(row['seconds']) / min(others):.2f}"
                lines.append([name, by, *(row[column] for column in _COLUMNS), ratio])
        header = ["equation", "by", *_COLUMNS, "ratio"]
        parts.append(f"## {cells} x {cells}\n\n{table(header, lines)}")
    fields = "; ".join(
        f"`{name}` with " + (", ".join(f"`{k}` {v}" for k, v in given.items()) or "no source")
        for name, given in _PROBLEMS.items()
    )
    note = (
        "By `python scripts/bench_nonlinear.py`; its head says what is measured. On the unit square, "
        f"with `{_WAVES}` on its sides: {fields}. CHOLMOD takes symmetric matrices only. "
        f"{petsc_described()}"
    )
    publish("nonlinear", "Newton's method for nonlinear equations", "\n\n".join([note, *parts]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", type=int)
    parser.add_argument("--problems", default=",".join(_PROBLEMS))
    parser.add_argument("--by", default=",".join(_BY))
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    main(parser.parse_args())
