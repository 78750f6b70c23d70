"""What ``solve`` says about its result: to scripts, to people, and in the solution file."""

import math
import resource
import sys
import time
from dataclasses import asdict

import numpy as np
import torch

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
        "subdomains": math.prod(lattice.subdomains),
        "outside_training_range": _count_outside(grid, solution),
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


def _count_outside(grid: ProcessGrid, solution: Solution) -> int | None:
    if solution.outside is None:
        return None
    return int(grid.sum(np.array([float(solution.outside.sum())]))[0])


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
    maps = {"error_estimate": solution.error_estimate.nodes}
    if solution.outside is not None:
        maps["outside_training_range"] = solution.outside.to(torch.uint8)
    field, place = solution.field.cpu().numpy(), solution.error_estimate.place
    maps = {name: values.cpu().numpy() for name, values in maps.items()}
    if not grid.is_root:
        for array, where in ((field, solution.place), *((m, place) for m in maps.values())):
            collect(grid, array, where)
        return
    begin, seconds = time.perf_counter(), report["seconds"]
    with writing_solution(output, lattice.grid, boundary, report["dtype"]) as writer:
        collect(grid, field, solution.place, writer.into("solution"))
        for name, values in maps.items():
            writer.create(name, tuple(n + 1 for n in lattice.cells), values.dtype.str)
            collect(grid, values, place, writer.into(name))
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
    lines = [
        f"{problem}, {ranks}, {report['dtype']} on {report['device']}",
        f"{report['status']} after {report['iterations']} iterations: {reached}",
        f"{seconds['total']:.2f} s ({parts}), {report['peak_memory_bytes'] / 2**20:.0f} MiB",
        f"wrote {output}",
    ]
    if outside := report["outside_training_range"]:
        lines.insert(
            2,
            f"{outside} of {report['subdomains']} subdomains have data rougher than the network was "
            "trained on: see --out-of-range exact, or --certify",
        )
    return "\n".join(lines)
