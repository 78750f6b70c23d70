"""Nonlinear equations by their networks, by Newton's method here, and by Newton's method with other solvers.

Usage: bench_nonlinear_networks.py CELLS EQUATION [METHOD...], each METHOD one of ``network``, ``certified``, ``newton``,
``cholmod``, ``pfmg``, ``pfmg-red-black``, ``hypre``, ``hypre-tuned``, ``pyamg`` or ``snesfas``; by default all. One thread, float64. The problems: ``-lap u + 10 sinh u = f`` with smooth
boundary data of amplitude 2 and a smooth source; a minimal surface over smooth boundary data with slopes up to 1.2.
Errors are root mean squares over all nodes, relative to the solution's, against a solution certified to a residual of
1e-11, which is kept in the folder for temporary files. Peers begin at zero, so that their first step solves the linear
equation; of their seconds those in the linear solver are told apart. Their matrices are made as fast as we can: one that
does not change and a diagonal, or the derivative's conductances by this package. Their linear systems are
solved only as well as it pays (Eisenstat and Walker). ``snesfas`` is PETSc's full approximation scheme (`fas_petsc`), which
begins at the linear equation's solution, where that is another's, by PFMG; *in the solver* is then what is not spent in numpy,
by which it is asked for residuals and derivatives. ``held-out`` instead solves for random boundary data, smooth and
rough, by networks alone; ``large`` solves the minimal surface by its network on two ranks, from the command line to
the file. Rows go to ``benchmarks/nonlinear_networks.csv``, ``nonlinear_held_out.csv`` and ``nonlinear_large.csv``, and
all of them to ``benchmarks/nonlinear_networks.md``.
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from nonlinear_peers import BOLTZMANN, SURFACE, TIGHT, C, by_fas, peer, problem, relative
from peers import petsc_described
from tables import BENCHMARKS, publish, table

import mosaicdd as m
from mosaicdd.problems.sides.boundary import Boundary

HELD_OUT, LARGE = "held-out", "large"
_COLUMNS = (
    "equation",
    "cells",
    "method",
    "iterations",
    "seconds",
    "in the solver",
    "relative error",
)
_OURS = ("network", "certified", "newton")
_PEERS = ("cholmod", "pfmg", "pfmg-red-black", "hypre", "hypre-tuned", "pyamg")
_FAS = "snesfas"
_ORDER = (*_OURS, *_PEERS, _FAS)
_FILE = BENCHMARKS / "nonlinear_networks.csv"
_RANDOM_COLUMNS = (
    "equation",
    "cells",
    "boundary data",
    "seed",
    "first ring",
    "iterations",
    "relative error",
)
_RANDOM_FILE = BENCHMARKS / "nonlinear_held_out.csv"
_LARGE_COLUMNS = ("equation", "cells", "ranks", "iterations", "seconds", "GB", "error estimate")
_LARGE_FILE = BENCHMARKS / "nonlinear_large.csv"
# Length scale and amplitude of random boundary data; the network's subdomains have a side of 0.5.
_RANDOM = {
    SURFACE: {"smooth": (2.0, 1.0), "rough": (0.4, 0.2)},
    BOLTZMANN: {"smooth": (2.0, 1.0), "rough": (0.4, 0.8)},
}
_SEEDS = (911, 1, 2)


def random_problem(equation: str, cells: int, kind: str, seed: int) -> m.Problem:
    """Make a problem with random boundary data."""
    domain = m.Domain((cells, cells))
    length, amplitude = _RANDOM[equation][kind]
    boundary = Boundary.of_gaussian_process(
        domain.grid(), seed=seed, length=length, amplitude=amplitude
    )
    return m.Problem(domain, equation, {"c": C} if equation == BOLTZMANN else {}, boundary)


def reference(name: str, one: m.Problem) -> np.ndarray:
    """Return the solution, computed once."""
    path = Path(tempfile.gettempdir()) / f"{name}.npy"
    if not path.exists():
        settings = m.SolveSettings(rtol=1e-4, certify=1e-11)
        np.save(path, m.solve(one, one.equation.name, settings=settings).field)
    return np.load(path)


def ours(equation: str, cells: int, method: str, truth: np.ndarray) -> Iterator[list[object]]:
    """Measure one of our methods, from the problem to the field."""
    settings = {
        "network": m.SolveSettings(rtol=1e-5),
        "certified": m.SolveSettings(rtol=1e-4, certify=TIGHT),
        "newton": m.SolveSettings(rtol=TIGHT),
    }[method]
    name = "exact" if method == "newton" else equation
    m.solve(problem(equation, 64), name, settings=settings)  # so that nothing has to be loaded
    begun = time.perf_counter()
    solution = m.solve(problem(equation, cells), name, settings=settings)
    seconds = time.perf_counter() - begun
    if not solution.converged:
        raise RuntimeError(f"{method}: {solution.status}")
    error = relative(solution.field, truth)
    yield [equation, cells, method, solution.iterations, seconds, "", error]


def held_out(equation: str, cells: int) -> Iterator[list[object]]:
    """Solve for random boundary data; rough ones with exact local solvers in the first ring, too."""
    for kind in _RANDOM[equation]:
        for seed in _SEEDS:
            one = random_problem(equation, cells, kind, seed)
            truth = reference(f"{equation}-{cells}-{kind}-{seed}", one)
            for ring in ("network", "exact")[: 1 + (kind == "rough")]:
                how = "edge" if ring == "exact" else "network"
                settings = m.SolveSettings(rtol=1e-5, out_of_range=how)
                solution = m.solve(one, equation, settings=settings)
                error = relative(solution.field, truth)
                yield [equation, cells, kind, seed, ring, solution.iterations, error]


def large(equation: str, cells: int) -> list[object]:
    """Solve on two ranks, as users do; seconds of the whole solve, files included, memory of both."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mpiexec", "-n", "2", "mosaicdd", "solve", "--json"]
        command += ["-o", f"{folder}/film.h5", "--cells", f"{cells}x{cells}", "--pde", equation]
        command += ["--boundary", "expr:0.8*sin(1.3*x+0.5*y)*cos(0.7*y-0.3*x)"]
        command += ["--local-solver", equation, "--rtol", "1e-5"]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    seconds, memory = found["seconds"]["total"], found["peak_memory_bytes"] / 1e9
    estimate = found["error_estimate"]
    return [equation, cells, found["ranks"], found["iterations"], seconds, memory, estimate]


def keep(
    path: Path, columns: tuple[str, ...], key: int, rows: list[list[object]]
) -> list[list[str]]:
    """Put rows into a file, in the place of those with the same first columns; return all."""
    known: list[list[str]] = []
    if path.exists():
        with path.open(newline="") as file:
            known = list(csv.reader(file))[1:]
    new = [[str(v) if isinstance(v, (int, str)) else f"{v:.4g}" for v in row] for row in rows]

    def place(row: list[str]) -> tuple[object, ...]:
        method = row[2].partition(",")[0]
        order = _ORDER.index(method) if method in _ORDER else method
        return row[0], int(row[1]), order, *row[3:key]

    measured = {place(row) for row in new}
    every = sorted([row for row in known if place(row) not in measured] + new, key=place)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *every])
    return every


def main(cells: int, equation: str, methods: list[str]) -> None:
    """Measure, and write the tables."""
    torch.set_num_threads(1)
    rows: list[list[object]] = []
    random: list[list[object]] = []
    big: list[list[object]] = []
    if methods == [HELD_OUT]:
        random = list(held_out(equation, cells))
    elif methods == [LARGE]:
        big = [large(equation, cells)]
    else:
        truth = reference(f"{equation}-{cells}", problem(equation, cells))
        for method in methods or _ORDER:
            measure = by_fas if method == _FAS else peer if method in _PEERS else ours
            for row in measure(equation, cells, method, truth):
                print(*row, flush=True)
                rows.append(row)
    text = (
        f"{table(list(_COLUMNS), keep(_FILE, _COLUMNS, 3, rows))}\n\n"
        "By `python scripts/bench_nonlinear_networks.py`; its head says what was measured. "
        f"{petsc_described()} Each row of a peer is the state after another of its steps, so the one to "
        "compare with is the first that is as good.\n\n## Random boundary data\n\n"
        "Gaussian processes that no training has seen; rough ones with exact local solvers in the first "
        "ring, too.\n\n"
        f"{table(list(_RANDOM_COLUMNS), keep(_RANDOM_FILE, _RANDOM_COLUMNS, 5, random))}\n\n"
        "## On two ranks\n\nThe network alone, by the command line; *GB* is the memory of both.\n\n"
        f"{table(list(_LARGE_COLUMNS), keep(_LARGE_FILE, _LARGE_COLUMNS, 3, big))}"
    )
    publish("nonlinear_networks", "Networks for nonlinear equations beside Newton's method", text)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
