"""What ``solve`` says about its result: to scripts, to people, and in the solution file."""

import resource
import sys
import time
from dataclasses import asdict

import numpy as np

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.base import LocalSolver
from mosaicdd.parallel.collect import collect
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solution
from mosaicdd.storage.solution_file import writing_solution


def report_of(
    grid: ProcessGrid,
    lattice: Lattice,
    local_solver: LocalSolver,
    settings: SolveSettings,
    solution: Solution,
    device: str,
) -> dict:
    """Collect what ``--json`` prints and the file keeps, but the seconds."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "status": solution.status,
        "iterations": solution.iterations,
        "sweeps": solution.sweeps,
        "update": solution.update,
        "residual": solution.residual,
        "discrete_residual": solution.discrete_residual,
        "error_estimate": solution.error_estimate.rms,
        "certificate": solution.certificate and asdict(solution.certificate),
        "ranks": grid.size,
        "dims": list(grid.dims[::-1]),
        "unknowns": lattice.unknowns,
        "grid": list(lattice.grid.shape[::-1]),
        "peak_memory_bytes": int(grid.sum(np.array([float(peak)]))[0]),
        "local_solver": local_solver.name,
        "pde": local_solver.equation.name,
        "levels": settings.levels,
        "sweep": settings.sweep,
        "accelerate": settings.accelerate,
        "rtol": settings.stopping.rtol,
        "device": device,
        "dtype": str(settings.dtype).removeprefix("torch."),
    }


def write_result(
    output: str,
    grid: ProcessGrid,
    lattice: Lattice,
    boundary: Boundary,
    solution: Solution,
    report: dict,
    start: float,
) -> None:
    """Write the solution file, its field block by block, and complete the report's seconds."""
    field, errors = (x.cpu().numpy() for x in (solution.field, solution.error_estimate.nodes))
    nodes = solution.error_estimate.place
    if not grid.is_root:
        collect(grid, field, solution.place)
        collect(grid, errors, nodes)
        return
    begin, seconds = time.perf_counter(), report["seconds"]
    with writing_solution(output, lattice.grid, boundary, report["dtype"]) as writer:
        writer.create("error_estimate", tuple(n + 1 for n in lattice.cells), report["dtype"])
        collect(grid, field, solution.place, writer.into("solution"))
        collect(grid, errors, nodes, writer.into("error_estimate"))
        seconds["write"] = time.perf_counter() - begin
        seconds["total"] = time.perf_counter() - start
        command = {"command_line": " ".join(sys.argv)}
        writer.describe(report | command, asdict(solution.history))


def for_people(report: dict, output: str) -> str:
    """Say in a few lines what was solved, how it ended, and where it is."""
    (nx, ny), (px, py), seconds = report["grid"], report["dims"], report["seconds"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if name != "total")
    ranks = f"{report['ranks']} rank{'s' * (report['ranks'] > 1)} ({px}x{py})"
    problem = f"{report['pde']} on {nx}x{ny} cells by {report['local_solver']}"
    numbers = ("update", "discrete_residual", "error_estimate")
    reached = ", ".join(f"{name.replace('_', ' ')} {report[name]:.1e}" for name in numbers)
    lines = (
        f"{problem}, {ranks}, {report['dtype']} on {report['device']}",
        f"{report['status']} after {report['iterations']} iterations: {reached}",
        f"{seconds['total']:.2f} s ({parts}), {report['peak_memory_bytes'] / 2**20:.0f} MiB",
        f"wrote {output}",
    )
    return "\n".join(lines)
