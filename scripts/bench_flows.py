"""Flows of all kinds and speeds: multigrid beside a sparse factorisation and BoomerAMG under GMRES.

Usage: bench_flows.py [--cells 128,256,512] [--media 1,10000]. Velocities are those of `media.FLOWS`; cell
Peclet numbers are of a medium of 1; of a medium of another contrast the logarithm is independent and normal at all nodes, and 1 is in
the middle of its range. A random source, values on all sides and a reaction of 1; one thread, float64, to a
true relative residual of 1e-8. Seconds are the processor's, from the problem to the field; of the factorisation (SuperLU) and
of BoomerAMG from the matrix to the answer. A status other than ``converged_rtol`` stands beside the iterations. Ratios are
of our seconds to each of the others'. Writes ``benchmarks/flows.md``.
"""

import argparse
import itertools
import time

import numpy as np
import torch
from media import FLOWS, flow
from peers import by_petsc, by_superlu, petsc_described
from tables import publish, table

import mosaicdd as m
from mosaicdd.problems.discretisation.discrete import MediumSystem

_RTOL = 1e-8
_PECLET = (1, 10, 100, 1000)
_HEADER = ["flow", "contrast", "cell Peclet number", "iterations", "residual", "seconds"]
_HEADER += ["SuperLU", "ratio", "BoomerAMG", "iterations", "ratio"]


def main(arguments: argparse.Namespace) -> None:
    """Measure, and write the tables."""
    torch.set_num_threads(1)
    m.solve(_problem("rotating", 96, 1.0, 1.0))  # what is loaded once per process
    parts = []
    for cells in map(int, arguments.cells.split(",")):
        rows = []
        contrasts = map(float, arguments.media.split(","))
        for contrast, kind, peclet in itertools.product(contrasts, FLOWS, _PECLET):
            rows.append([kind, f"{contrast:g}", str(peclet), *_row(kind, cells, peclet, contrast)])
            print(cells, *rows[-1], sep=" | ", flush=True)
        parts.append(f"## {cells} x {cells}\n\n{table(_HEADER, rows)}")
    note = (
        f"By `python scripts/bench_flows.py`; its head says what is measured. {petsc_described()}"
    )
    publish("flows", "Flows", "\n\n".join([note, *parts]))


def _problem(kind: str, cells: int, peclet: float, contrast: float) -> m.Problem:
    nodes, spacing = (cells + 1, cells + 1), 1 / cells
    white = np.random.default_rng(0).standard_normal(nodes)
    a = contrast ** ((white - white.min()) / np.ptp(white) - 0.5)
    f = cells * np.random.default_rng(1).standard_normal(nodes)
    fields = {"a": a, "f": f, "c": 1.0, **flow(kind, nodes, peclet, spacing)}
    domain = m.Domain((cells, cells), spacing)
    return m.Problem(domain, "advection-diffusion", fields, m.Dirichlet("sin(5*x) + y"))


def _row(kind: str, cells: int, peclet: float, contrast: float) -> list[str]:
    """Return what each takes."""
    problem = _problem(kind, cells, peclet, contrast)
    start = time.process_time()
    solution = m.solve(problem, rtol=_RTOL)
    seconds = time.process_time() - start
    status = "" if solution.status == "converged_rtol" else f" {solution.status}"
    left = f"{solution.report['discrete_residual']:.0e}"
    matrix = MediumSystem(problem.operator, problem.domain.grid()).matrix.tocsr()
    b = np.random.default_rng(1).standard_normal(matrix.shape[0])
    factorised = by_superlu(matrix, b).seconds
    row = [f"{solution.iterations}{status}", left, f"{seconds:.2f}", f"{factorised:.2f}"]
    row.append(f"{seconds / factorised:.2f}")
    try:
        peer = by_petsc(matrix, b, "hypre", _RTOL)
    except RuntimeError:
        return [*row, "fails", "", ""]
    if peer is None:
        return [*row, "", "", ""]
    return [*row, f"{peer.seconds:.2f}", str(peer.iterations), f"{seconds / peer.seconds:.2f}"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", default="128,256,512")
    parser.add_argument("--media", default="1,10000")
    main(parser.parse_args())
