"""Flows of all kinds and speeds: multigrid beside a sparse factorisation and BoomerAMG under GMRES.

Velocities are those of `media.FLOWS`; cell
Peclet numbers are of a medium of 1. Of a medium of another contrast the logarithm is independent and normal
at all nodes, and 1 is in the middle of its range. A random source, values on all sides and a reaction of 1;
one thread, float64, to a true relative residual of 1e-8. Seconds are the processor's, from the problem to
the field; of BoomerAMG, and of SuperLU's factorisation of the first matrix of each size and medium (all have
the same pattern) from the matrix to the answer, for a random right-hand side of theirs. A status other than ``converged_rtol`` stands beside the
iterations. Ratios are of our seconds to each of the others'. Rows are kept in ``benchmarks/flows.csv``, where
those that are measured anew replace the old ones, and all are written to ``benchmarks/flows.md``.
"""

import itertools
from functools import partial

import numpy as np
import scipy.sparse
from common import KeptRows, processor_timed, publish, table
from media import FLOWS, flow
from peers import by_petsc, by_superlu, petsc_described

import mosaicdd as m
from mosaicdd.discretisation.discrete import MediumSystem

_RTOL = 1e-8
_PECLET = (1, 10, 100, 1000)
_KEYS = ("cells", "flow", "contrast", "Peclet number")
_COLUMNS = ("iterations", "residual", "seconds", "SuperLU", "ratio", "BoomerAMG", "its iterations", "its ratio")  # fmt: skip
_rows = partial(KeptRows, "flows", _KEYS, _COLUMNS)

SMALL = {"cells": [32], "media": [1.0]}


def main(*, cells: list[int] = (128, 256, 512), media: list[float] = (1.0, 10000.0)) -> None:
    """Measure, and write the tables."""
    m.solve(_problem("rotating", 96, 1.0, 1.0))  # what is loaded once per process
    for size, contrast in itertools.product(cells, media):
        factorised: float | None = None
        for kind, peclet in itertools.product(FLOWS, _PECLET):
            problem = _problem(kind, size, peclet, contrast)
            matrix = MediumSystem(problem.operator, problem.domain.grid()).matrix.tocsr()
            b = np.random.default_rng(1).standard_normal(matrix.shape[0])
            factorised = factorised or by_superlu(matrix, b).seconds
            row = _row(problem, matrix, b, factorised)
            _keep((str(size), kind, f"{contrast:g}", str(peclet)), row)
            print(size, contrast, kind, peclet, *row, sep=" | ", flush=True)
    _publish()


def _problem(kind: str, cells: int, peclet: float, contrast: float) -> m.Problem:
    nodes, spacing = (cells + 1, cells + 1), 1 / cells
    white = np.random.default_rng(0).standard_normal(nodes)
    a = contrast ** ((white - white.min()) / np.ptp(white) - 0.5)
    f = cells * np.random.default_rng(1).standard_normal(nodes)
    fields = {"a": a, "f": f, "c": 1.0, **flow(kind, nodes, peclet, spacing)}
    domain = m.Domain((cells, cells), spacing)
    return m.Problem(domain, "advection-diffusion", fields, m.Dirichlet("sin(5*x) + y"))


def _row(
    problem: m.Problem, matrix: scipy.sparse.csr_array, b: np.ndarray, factorised: float
) -> list[str]:
    """Return what each takes."""
    solution, seconds = processor_timed(lambda: m.solve(problem, rtol=_RTOL))
    status = "" if solution.status == "converged_rtol" else f" {solution.status}"
    row = [f"{solution.iterations}{status}", f"{solution.report['discrete_residual']:.0e}"]
    row += [f"{seconds:.2f}", f"{factorised:.2f}", f"{seconds / factorised:.2f}"]
    try:
        peer = by_petsc(matrix, b, "hypre", _RTOL)
    except RuntimeError:
        return [*row, "fails", "", ""]
    if peer is None:
        return [*row, "", "", ""]
    return [*row, f"{peer.seconds:.2f}", str(peer.iterations), f"{seconds / peer.seconds:.2f}"]


def _keep(key: tuple[str, ...], row: list[str]) -> None:
    """Put a row beside the others."""
    rows = _rows()
    rows[key] = dict(zip(_COLUMNS, row, strict=True))
    rows.write()


def _publish() -> None:
    """Write a table for each size."""
    rows = _rows()
    parts = [petsc_described()]
    for cells in sorted({key[0] for key in rows}, key=int):
        here = [[*key[1:], *row.values()] for key, row in rows.items() if key[0] == cells]
        parts.append(f"## {cells} x {cells}\n\n{table([*_KEYS[1:], *_COLUMNS], here)}")
    publish("flows", "Flows", *parts)
