"""Media of high contrast: multigrid beside CHOLMOD, hypre's five multigrids and pyAMG.

Sizes are as 1024, 1500x1300 (cells along x and y, no powers of two) or 128x128x128: a box, whose media are per voxel, beside PFMG with
both smoothers and BoomerAMG by its defaults and both tunings. *Flat* is the smooth medium where cells are ten times as
long as they are high. One thread, float64, a random source, zero sides. Seconds
are those of the processor, so that other work on the machine matters little, from the problem to the field,
set-up included, to a relative residual of 1e-8 (the true one stands beside); *again* is a second source in the
same medium, for peers a solve with the same factor or set-up, and *16 more* are solved at once. Before each, as much
memory as any needs was in use; where there is a pool of huge pages, see `memory`, it is from there. Bytes
per node are those that the process had at its peak of the first solve beyond what it had with the problem
in memory; then in a run of its own, as those of a pool are not counted. The ratio is to the fastest of the
others. Every run is a process of its own, by turns of each solver; of several the median of each
number is taken. Rows are kept in
``benchmarks/fields.csv``, where those that are measured anew replace the old ones, and all are written to
``benchmarks/fields.md``.
"""

import gc
import itertools
import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
from common import (
    KeptRows,
    in_process,
    page,
    peak_bytes,
    pooled,
    processor_timed,
    publish,
    ready,
    table,
)
from media import IN_SPACE, MEDIA, spe10
from peers import MULTIGRIDS, by_petsc, by_pyamg, petsc_described, residual

import mosaicdd as m
from mosaicdd.discretisation.discrete import MediumSystem

_RTOL = 1e-8
_REACHED = 1e-7  # of a true residual, as rounding leaves more than 1e-8 at the largest contrasts
_MORE = 16
_READY = 900  # bytes per node that were in use a moment ago
_WARM = (
    64  # cells of a first solve, which pays for what is loaded once per process; of a box a quarter
)
_OURS = "mosaicdd"
_PETSC = {"CHOLMOD": "cholmod"} | MULTIGRIDS
_BY = (_OURS, *_PETSC, "pyAMG")
_BOXES = {k: MULTIGRIDS[k] for k in ("PFMG", "PFMG red-black", "BoomerAMG", "BoomerAMG tuned")}
_BOXES |= {"BoomerAMG tuned, 0.5": "hypre-in-space"}
_FLAT = "flat"
_MEDIA = (*MEDIA, _FLAT, "spe10")
_OF_BOXES = (*IN_SPACE, _FLAT)
_BYTES = "bytes per node"
_COLUMNS = ("iterations", "seconds", "again", "16 more", _BYTES, "residual", "pages")
_rows = partial(KeptRows, "fields", ("cells", "medium", "by"), ("decades", *_COLUMNS))

SMALL = {"cells": "64", "media": ["smooth"], "by": ["mosaicdd", "pyAMG"]}


def main(
    cells: str = "1024",
    *,
    spe10: Path | None = None,
    media: list[str] = (),
    by: list[str] = (),
    runs: int = 1,
) -> None:
    """Measure, a process for each row, and write the tables; by default media and solvers of the axes."""
    box = len(_nodes(cells)) == 3
    solvers = by or ((_OURS, *_BOXES) if box else _BY)
    for medium in media or (_OF_BOXES if box else _MEDIA[: None if spe10 else -1]):
        keys = [(cells, medium, name) for name in solvers]
        pool = pooled(_READY * math.prod(_nodes(cells)))
        measured: dict[tuple[str, str, str], list[dict[str, str]]] = {key: [] for key in keys}
        alone = int(pool is not None)  # runs for memory
        for run, key in itertools.product(range(alone + runs), keys):
            environment = pool if run >= alone else None
            row = in_process(_measured, *key, spe10 and str(spe10), environment=environment)
            if row is not None:  # else the peer is not here
                print(*key, row, flush=True)
                measured[key].append(row)
        for key, several in measured.items():
            if several:
                timed = several[alone:]
                median = {c: _median([run[c] for run in timed]) for c in timed[-1]}
                _keep(key, median | {_BYTES: several[0][_BYTES]})
    _publish()


def _measured(cells: str, medium: str, by: str, path: str | None) -> dict[str, str] | None:
    """Measure one row; None if the peer is not here."""
    nodes = _nodes(cells)
    kind = "smooth" if medium == _FLAT else medium
    if len(nodes) == 3:
        a = IN_SPACE[kind](tuple(n - 1 for n in nodes), np.random.default_rng(0))
    elif medium == "spe10":
        a = spe10(nodes, Path(str(path)))
    else:
        a = MEDIA[kind](nodes, np.random.default_rng(0))
    sources = 2 + _MORE if by == _OURS else 1  # they take memory
    f = np.random.default_rng(1).standard_normal((sources, *nodes))
    along = 10.0 if medium == _FLAT else 1.0
    domain = m.Domain(tuple(n - 1 for n in nodes), (1.0, *(along,) * (len(nodes) - 1)))
    figures = _ours(a, f, domain) if by == _OURS else _theirs(by, a, f[0], domain)
    if figures is None:
        return None
    return {"decades": f"{np.ptp(np.log10(a)):.1f}", **figures, "pages": page()}


def _nodes(size: str) -> tuple[int, ...]:
    """Return the nodes, (y, x) or (z, y, x), of a size."""
    cells = size.split("x")
    return tuple(int(n) + 1 for n in (cells if len(cells) > 1 else cells * 2)[::-1])


def _median(values: list[str]) -> str:
    """Return the one in the middle of numbers as they are printed; others are all the same."""
    try:
        ascending = sorted(values, key=float)
    except ValueError:
        return values[-1]
    return ascending[len(values) // 2]


def _keep(key: tuple[str, str, str], row: dict[str, str]) -> None:
    """Put a row beside the others."""
    rows = _rows()
    rows[key] = row
    rows.write()


def _ours(a: np.ndarray, f: np.ndarray, domain: m.Domain) -> dict[str, str]:
    """Solve for the first source, for another, and for the rest at once."""
    settings = m.SolveSettings(rtol=_RTOL)
    few = (_WARM if a.ndim == 2 else _WARM // 4,) * a.ndim
    m.solve(m.Problem(m.Domain(few), "diffusion", {"a": np.ones([n + 1 for n in few]), "f": 1.0}))
    gc.collect()  # of what was loaded
    problem = m.Problem(domain, "diffusion", {"a": a, "f": f[0]})
    ready(_READY * a.size)
    before = peak_bytes()
    solver, planned = processor_timed(lambda: m.Solver(problem, settings=settings))
    with solver:
        first, solved = processor_timed(solver)
        seconds = [planned + solved]
        peak = peak_bytes()
        for more in (f[1], f[2:]):
            ready(_READY * a.size)
            other = problem.with_fields(f=more)
            seconds.append(processor_timed(solver, other)[1])
    system = MediumSystem(problem.operator, problem.domain.grid())
    b = system.right_hand_side(np.zeros(f[0].shape), f[0])
    return {
        "iterations": str(first.iterations),
        **dict(zip(("seconds", "again", "16 more"), (f"{s:.2f}" for s in seconds), strict=True)),
        _BYTES: f"{(peak - before) / a.size:.0f}",
        "residual": _residual(system, b, first.field[(slice(1, -1),) * a.ndim].ravel()),
    }


def _theirs(by: str, a: np.ndarray, f: np.ndarray, domain: m.Domain) -> dict[str, str] | None:
    """Solve by a peer; None if it is not here."""
    problem = m.Problem(domain, "diffusion", {"a": a, "f": f})
    system = MediumSystem(problem.operator, problem.domain.grid())
    b, before = system.right_hand_side(np.zeros(f.shape), f), peak_bytes()
    ready(_READY * a.size)
    if by == "pyAMG":
        peer = by_pyamg(system.matrix, b, _RTOL)
        memory = (peak_bytes() - before) / a.size
    else:
        inner = tuple(n - 2 for n in f.shape)
        try:
            answer = by_petsc(system.matrix, b, (_PETSC | _BOXES)[by], _RTOL, inner)
        except RuntimeError as error:
            print(f"{by} fails: {error}", file=sys.stderr)
            return None
        if answer is None:
            return None
        peer, memory = answer, answer.bytes / a.size
    return {
        "iterations": "direct" if peer.iterations is None else str(peer.iterations),
        "seconds": f"{peer.seconds:.2f}",
        "again": f"{peer.solve:.2f}",
        _BYTES: f"{memory:.0f}",
        "residual": _residual(system, b, peer.solution),
    }


def _residual(system: MediumSystem, b: np.ndarray, solution: np.ndarray) -> str:
    return f"{residual(system.matrix, b, solution):.0e}"


def _titled(size: str) -> str:
    """Return a size as titles have it."""
    return " x ".join(str(n - 1) for n in _nodes(size)[::-1])


def _publish() -> None:
    """Write a table for each size."""
    rows, parts = _rows(), []
    for cells in sorted({key[0] for key in rows}, key=_nodes):
        lines = []
        nodes = _nodes(cells)
        media, solvers = (_OF_BOXES, (_OURS, *_BOXES)) if len(nodes) == 3 else (_MEDIA, _BY)
        for medium in media:
            here = {by: rows[cells, medium, by] for by in solvers if (cells, medium, by) in rows}
            others = [
                float(row["seconds"])
                for by, row in here.items()
                if by != _OURS and float(row["residual"]) <= _REACHED
            ]
            for by, row in here.items():
                ratio = ""
                if by == _OURS and others:
                    ratio = f"{float(row['seconds']) / min(others):.2f}"
                each = f"{float(row['seconds']) / math.prod(nodes) * 1e6:.2f}"
                figures = [row[c] or "" for c in _COLUMNS]
                lines.append([medium, row["decades"], by, *figures, each, ratio])
        header = ["medium", "decades", "by", *_COLUMNS, "us per node", "ratio"]
        parts.append(f"## {_titled(cells)}\n\n{table(header, lines)}")
    publish("fields", "Media", petsc_described(), *parts)
