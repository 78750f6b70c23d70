"""Certified solves, beside pyAMG to the same residual in the same process.

The shipped networks, one with its weights perturbed by 10 % and one of random weights, on smooth,
white-noise and discontinuous boundary data. The residual is computed anew with the assembled
matrix; seconds are those of the processor, all set-up included.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from common import publish, table
from serial import local_solver, schwarz_solver

from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.local_solvers.network_solver import NetworkSolver
from mosaicdd.solvers.references import MultigridSolver
from mosaicdd.solvers.settings import SolveSettings

_CERTIFY = 1e-10
_JUMPS = 8
_DATA = {
    "smooth": lambda grid: Boundary.of_gaussian_process(grid),
    "white noise": lambda grid: Boundary.of_gaussian_process(grid, amplitude=0.0, noise=1.0),
    "discontinuous": lambda grid: _discontinuous(grid),
}


def _changed(change: Callable) -> NetworkSolver:
    solver = local_solver("laplace")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in solver.network.parameters():
            noise = torch.randn(weights.shape, generator=generator)
            weights.copy_(change(weights, noise))
    return solver


_NETWORKS = {
    "laplace": lambda: local_solver("laplace"),
    "laplace-sdnet": lambda: local_solver("laplace-sdnet"),
    "... its network in float32": lambda: local_solver("laplace-sdnet").in_precision("float32"),
    "laplace perturbed by 10 %": lambda: _changed(
        lambda weights, noise: weights * (1 + 0.1 * noise)
    ),
    "random weights": lambda: _changed(lambda weights, noise: weights.std() * noise),
}

SMALL = {"sizes": [64]}


def main(sizes: list[int] = (512, 2048)) -> None:
    """Run everything, print the table and write it to ``benchmarks/``."""
    rows = []
    for cells in sizes:
        system = DirichletSystem(LAPLACE.at(), Grid((cells, cells), 1.0))
        for label, make in _DATA.items():
            boundary = make(Grid((cells, cells), 0.5 / 32))
            problem = [f"{cells} x {cells}", label]
            rows += [problem + _certified(name, boundary, system) for name in _NETWORKS]
            rows.append(problem + _multigrid(boundary))
    header = ["cells", "boundary data", "method", "status", "iterations", "certificate's"]
    header += ["saved from zero", "residual", "seconds"]
    note = (
        "Iterations in all, and those of the certificate among them; the residual is |A u - b| / "
        "|b| with the assembled matrix. One core, float64, one run each, the processor's seconds, set-up "
        "included."
    )
    publish("certify", f"--certify {_CERTIFY:g}", table(header, rows), note)


def _certified(name: str, boundary: Boundary, system: DirichletSystem) -> list[str]:
    start = time.process_time()
    solver = _NETWORKS[name]()
    settings = SolveSettings(rtol=1e-6 if solver.precision else 1e-7, certify=_CERTIFY)
    solution = schwarz_solver(solver, boundary.shape, settings).solve(boundary)
    seconds = time.process_time() - start
    certificate, residual = solution.certificate, _residual(solution.field.numpy(), system)
    return [
        name,
        solution.status,
        str(solution.iterations),
        str(certificate.iterations),
        f"{certificate.saved_from_zero:.1f}",
        f"{residual:.1e}",
        f"{seconds:.2f}",
    ]


def _multigrid(boundary: Boundary) -> list[str]:
    start = time.process_time()
    system = DirichletSystem(LAPLACE.at(), Grid(boundary.shape, 1.0))
    field = boundary.impose(np.zeros([cells + 1 for cells in boundary.shape]))
    multigrid = MultigridSolver(system, _CERTIFY)
    values = multigrid.solve(system.right_hand_side(field))
    field[1:-1, 1:-1] = values.reshape(field[1:-1, 1:-1].shape)
    seconds = time.process_time() - start
    residual = f"{_residual(field, system):.1e}"
    return ["pyAMG", "-", str(multigrid.iterations), "-", "-", residual, f"{seconds:.2f}"]


def _residual(field: np.ndarray, system: DirichletSystem) -> float:
    b = system.right_hand_side(field)
    residual = system.matrix @ field[1:-1, 1:-1].ravel() - b
    return float(np.linalg.norm(residual) / np.linalg.norm(b))


def _discontinuous(grid: Grid) -> Boundary:
    levels = np.random.default_rng(0).standard_normal(_JUMPS)
    return Boundary.of_perimeter(np.repeat(levels, 2 * sum(grid.shape) // _JUMPS), grid)
