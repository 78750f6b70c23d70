"""What ``solve`` says about its result: to scripts, to people, and in the solution file."""

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Self

import numpy as np
import torch

from mosaicdd.cli.parts import write_lines, write_shards
from mosaicdd.lattice.block import Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.parallel.collect import collect
from mosaicdd.parallel.machine import peak_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.schwarz.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.storage.solution_writer import writing_solutions


def report_of(
    ranks: Ranks,
    lattice: Lattice,
    local_solver: LocalSolver,
    settings: SolveSettings,
    solution: Outcome,
    device: str,
) -> dict:
    """Collect what ``--json`` prints and the file keeps, but the seconds."""
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
        "outside_training_range": _count_outside(ranks, solution),
        "ranks": ranks.size,
        "dims": list(ranks.dims[::-1]),
        "unknowns": lattice.unknowns,
        "grid": list(lattice.grid.shape[::-1]),
        "peak_memory_bytes": peak_memory(ranks),
        "local_solver": local_solver.name,
        "pde": "laplace",
        "levels": settings.levels,
        "sweep": settings.sweep,
        "accelerate": settings.accelerate or "chebyshev",
        "rtol": settings.rtol,
        "device": device,
        "dtype": settings.dtype,
        "layout": str(solution.layout),
    }


def _count_outside(ranks: Ranks, solution: Outcome) -> int | None:
    if solution.outside is None:
        return None
    return int(ranks.sum(np.array([float(solution.outside.sum())]))[0])


def parts_of_ranks(ranks: Ranks, clock: Stopwatch) -> dict[str, dict[str, float]]:
    """Return the seconds of each part of the work, mean and largest over the ranks."""
    gathered = ranks.allgather(clock.seconds)
    names = sorted({name for seconds in gathered for name in seconds})
    by_name = {name: [seconds.get(name, 0.0) for seconds in gathered] for name in names}
    return {
        name: {"mean": float(np.mean(values)), "max": max(values)}
        for name, values in by_name.items()
    }


class Output:
    """The solution file, written strip by strip while the field is filled; all ranks take part.

    The root opens it when the first strip is there, or when all shards are. It appears under its
    name when the ``with`` block that this object guards ends well.

    Parameters
    ----------
    dtype
        Of the field, or of the lines.
    window, place
        Which part of the field is written, and where this rank's part of that belongs in the whole.
    shards
        Whether each rank writes its part of the field to a file of its own.
    """

    def __init__(
        self,
        path: str,
        ranks: Ranks,
        lattice: Lattice,
        boundary: Boundary,
        dtype: str,
        clock: Stopwatch,
        *,
        window: Window,
        place: Slices,
        shards: bool,
    ):
        self._path = path
        self._ranks = ranks
        self._lattice = lattice
        self._boundary = boundary
        self._dtype = dtype
        self._window = window
        self._place = place
        self._shards = shards
        self._writing = clock.part("write")
        self._open = ExitStack()
        self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure) -> bool | None:
        with self._writing:
            return self._open.__exit__(*failure)

    def field(self, strips: Iterator[Strip]) -> None:
        """Write the field."""
        parts = ((s.owned[0].cpu().numpy(), self._window.within(s.place)) for s in strips)
        shards = None
        if self._shards:
            place = self._window.within(self._place)
            shards = write_shards(self._path, self._ranks, parts, place, self._dtype, self._writing)
        self._begin(window=self._window, shards=shards)
        if shards is None:
            self._collect("solution", parts, self._dtype)

    def interface(self, movement: InterfaceMovement, v: Interface) -> None:
        """Write the interface instead of the field."""
        self._begin(lines=True)
        write_lines(movement, v, self._writer, self._dtype)

    def points(self, points: np.ndarray, values: np.ndarray) -> None:
        """Write points ``(q, 2)``, (x, y), and the values ``(q,)`` there."""
        if self._ranks.is_root:
            self._writer.create("points", points.shape, "float64")
            self._writer.write("points", points, (slice(None),))
            self._writer.create("values", values.shape, self._dtype)
            self._writer.write("values", values, (slice(None),))

    def _begin(self, **what) -> None:
        """Open the file on the root."""
        if self._ranks.is_root:
            inputs = self._lattice.grid, [self._boundary], self._dtype
            new = writing_solutions(self._path, *inputs, **what)
            self._writer = self._open.enter_context(new)

    def maps(self, solution: Outcome) -> None:
        """Write what is known per lattice node."""
        maps = {"error_estimate": solution.error_estimate.nodes}
        if solution.outside is not None:
            maps["outside_training_range"] = solution.outside.to(torch.uint8)
        shape = tuple(n + 1 for n in self._lattice.cells)
        for name, values in maps.items():
            array = values.cpu().numpy()
            if self._ranks.is_root:
                self._writer.create(name, shape, array.dtype.str)
            self._collect(name, [(array, solution.error_estimate.place)], array.dtype)

    def _collect(self, name: str, parts: Iterable, dtype) -> None:
        def write(array: np.ndarray, place: Slices) -> None:
            with self._writing:
                self._writer.write(name, array, place)

        collect(self._ranks, parts, dtype, 2, write)

    def describe(self, report: dict, history: History) -> None:
        """Write the report and the history."""
        if self._ranks.is_root:
            command = {"command_line": " ".join(sys.argv)}
            self._writer.describe(report | command, asdict(history))


def for_people(report: dict, output: str) -> str:
    """Say in a few lines what was solved, how it ended, and where it is."""
    (nx, ny), (px, py), seconds = report["grid"], report["dims"], report["seconds"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if name != "total")
    ranks = f"{report['ranks']} rank{'s' * (report['ranks'] > 1)} ({px}x{py})"
    problem = f"{report['pde']} on {nx}x{ny} cells by {report['local_solver']}"
    numbers = ("update", "discrete_residual", "error_estimate")
    reached = ", ".join(
        f"{name.replace('_', ' ')} {report[name]:.1e}"
        for name in numbers
        if report[name] is not None
    )
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
