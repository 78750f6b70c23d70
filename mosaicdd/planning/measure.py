"""Measures the rates of this machine, on all ranks at the same time.

What a rank computes is measured by solves on a process grid of one rank, so that it is what a solve
does. All ranks do it together: they share the memory's bandwidth as in a solve. Of several runs
the fastest counts, and of the ranks the slowest: what other programs take is no rate.
"""

import functools
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from mosaicdd.grid.partition import Partition
from mosaicdd.grid.strips import Strip
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.bound import SharedSolver
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.local_solvers.network_solver import NetworkSolver, self_test_error
from mosaicdd.parallel.machine import peak_bytes
from mosaicdd.parallel.messages import measure_gather, measure_links
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.planning.plan import ITERATIONS
from mosaicdd.planning.rates import Curve, Link, MediumRates, Rates
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.coarse.coarse_solve import by_sine_transforms
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.multigrid.multigrid_engine import MultigridEngine
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.storage.solution_writer import writing_solutions

SIZES = {2: (2, 4, 8, 16, 32, 64), 3: (2, 3, 4, 6, 8)}
"""Sides of the measured squares and cubes, in subdomains that do not overlap, by axes."""

_RUNS = 3  # of which the fastest counts
_VECTOR = 2**21  # values: larger than the caches of a core
_STRIP = 224  # rows of nodes that are written at a time: what a batch of subdomains fills
_WRITTEN = 2048  # cells per side of the field that is written
_STEPS = ("setup", "sweep", "transform", "estimate", "fill")


class Measurement:
    """Measures, step by step; all ranks call it together.

    Parameters
    ----------
    load
        Returns the local solver, bound; a part of the set-up, whose first call of all is measured here.
    settings
        Of which device and precision count.
    """

    def __init__(self, load: Callable[[], SharedSolver], settings: SolveSettings):
        self._load = load
        self._settings = settings
        self._device, self._dtype = settings.tensors["device"], settings.tensors["dtype"]
        with _timed(self._device) as first:
            self._local_solver = load()
            if isinstance(self._local_solver, NetworkSolver):
                self_test_error(self._local_solver)
            self._axes = self._local_solver.subdomain.axes
            self._engine(min(SIZES[self._axes]), self._local_solver)
        self._first_setup = first[0]

    def __call__(self, ranks: Ranks, folder: Path, progress: Callable[[float], None]) -> Rates:
        """Measure everything, all ranks at the same time; a file is written to the folder, and removed."""
        self._ranks = ranks
        sizes, axes = SIZES[self._axes], self._axes
        # All is loaded that a solve needs, and nothing kept that grows with it
        self._solve(min(sizes))
        base_bytes = resident_bytes()
        media: list[MediumRates] = []
        if self._device.type == "cpu" and self._dtype == torch.float64:
            media = [measure_medium(ranks, processor(self._device), n) for n in MEDIUM_SIDES]
        solves, total = [], sum(size**axes for size in sizes)
        for number, size in enumerate(sizes):
            solves.append(self._solve(size))
            progress(sum(size**axes for size in sizes[: number + 1]) / total)
        # A solve is the first of its process: its set-up loads libraries, and tests the network.
        once = max(0.0, ranks.largest(self._first_setup) - solves[0]["setup"])
        for seconds in solves:
            seconds["setup"] += once
        nodes = [(2 * size - 1) ** axes for size in sizes]
        within, between = measure_links(ranks)
        return Rates(
            machine=processor(self._device),
            device=self._device.type,
            dtype=str(self._dtype).removeprefix("torch."),
            local_solver=self._local_solver.name,
            axes=axes,
            ranks=ranks.size,
            **{step: Curve.rising(nodes, [seconds[step] for seconds in solves]) for step in _STEPS},
            write=self._write_rate(folder),
            copy=self._copy_rate(),
            pack=self._pack_seconds(),
            within_node=Link(*within) if within else None,
            between_nodes=Link(*between) if between else None,
            gather=Link(*measure_gather(ranks)) if ranks.size > 1 else None,
            staging=self._staging(),
            base_bytes=base_bytes,
            media=tuple(media),
        )

    def _lattice(self, size: int) -> Lattice:
        """Return the lattice of a square, or cube, of ``size`` subdomains' sides."""
        subdomain = self._local_solver.subdomain
        return Lattice(Grid((size * subdomain.cells,) * self._axes, subdomain.spacing), subdomain)

    def _engine(self, size: int, local_solver: SharedSolver) -> Engine:
        """Plan a solve on a square, on this rank alone."""
        settings = self._settings.with_changes(rtol=0.0, max_iterations=ITERATIONS)
        lattice = self._lattice(size)
        alone = Ranks.alone().fitted(lattice.subdomains)
        boxes = local_solver.boxes(lattice.grid, (False,) * len(lattice.cells))
        return Engine(Partition(boxes, alone), local_solver, settings)

    def _solve(self, size: int) -> dict[str, float]:
        """Return the seconds of the steps of a solve on a square of ``size`` subdomains' sides."""
        lattice = self._lattice(size)
        transform = self._transform_seconds(lattice.subdomains)
        runs = []
        for _ in range(_RUNS):
            self._ranks.barrier()
            with _timed(self._device) as setup:
                boundary = Boundary.of_expression("sin(3 * x) * exp(y) + x * y", lattice.grid)
                solver = self._engine(size, self._load())
            self._ranks.barrier()
            runs.append(_steps(solver.solve(boundary, sink=_take), setup[0], transform))
        return {step: self._ranks.largest(min(run[step] for run in runs)) for step in _STEPS}

    def _transform_seconds(self, counts: tuple[int, ...]) -> float:
        """Return the seconds of a coarse solve, by the transforms that the engine plans for it."""
        solve = by_sine_transforms(np.ones(counts), self._device)
        nodes = torch.ones(1, math.prod(counts), dtype=torch.float64, device=self._device)
        return self._repeat(lambda: solve(nodes))

    def _copy_rate(self) -> float:
        """Return the bytes per second that vector operations read and write."""
        left = torch.ones(_VECTOR, dtype=self._dtype, device=self._device)
        right, result = left.clone(), torch.empty_like(left)
        seconds = self._repeat(lambda: torch.sub(left, right, out=result))
        return 3 * _VECTOR * left.element_size() / self._ranks.largest(seconds)

    def _pack_seconds(self) -> float:
        """Return the seconds for packing and adding one short message, of two parts."""
        lines = torch.ones(4, 64, dtype=self._dtype, device=self._device)
        buffer = torch.ones(32, dtype=self._dtype, device=self._device)

        def pack_and_add() -> None:
            for _ in range(2):
                buffer.copy_(lines[1, 1:33])
                lines[2, 1:33] += buffer

        return self._ranks.largest(self._repeat(pack_and_add))

    def _staging(self) -> Link | None:
        """Return the way from a GPU to pinned memory of the host."""
        if self._device.type == "cpu":
            return None
        seconds = []
        for values in (1, _VECTOR):
            there = torch.ones(values, dtype=self._dtype, device=self._device)
            here = torch.empty(values, dtype=self._dtype, pin_memory=True)
            copied = self._repeat(functools.partial(here.copy_, there))
            seconds.append(self._ranks.largest(copied))
        return Link(seconds[0], _VECTOR * self._dtype.itemsize / (seconds[1] - seconds[0]))

    def _write_rate(self, folder: Path) -> float:
        """Return the bytes per second into an open solution file, as one rank writes its strips."""
        spacing = self._local_solver.subdomain.spacing
        grid = Grid((_WRITTEN, _WRITTEN), spacing)
        dtype = str(self._dtype).removeprefix("torch.")
        strip = np.ones((_STRIP, grid.nodes[1]), dtype)  # filled again and again, as in a solve
        columns = slice(0, grid.nodes[1])
        spent = []
        if self._ranks.is_root:
            boundary = Boundary.of_perimeter(np.ones(4 * _WRITTEN), grid)
            with TemporaryDirectory(dir=folder) as temporary:
                for run in range(_RUNS):  # all are kept: the space of one would be quick to reuse
                    path = Path(temporary) / f"field-{run}.h5"
                    with writing_solutions(path, grid, [boundary], dtype) as writer:
                        start = time.perf_counter()
                        for row in range(0, grid.nodes[0], _STRIP):
                            rows = slice(row, min(row + _STRIP, grid.nodes[0]))
                            part = strip[: rows.stop - rows.start]
                            writer.write("solution", part, (rows, columns))
                        spent.append(time.perf_counter() - start)
        self._ranks.barrier()
        seconds = self._ranks.bcast(float(np.median(spent)) if spent else None)
        return math.prod(grid.nodes) * strip.itemsize / seconds

    def _repeat(self, call: Callable[[], object]) -> float:
        """Return the seconds of a call, the fastest of several rounds."""
        call()
        with _timed(self._device) as once:
            call()
        calls = max(1, int(0.005 / max(once[0], 1e-7)))
        rounds = []
        self._ranks.barrier()
        for _ in range(7):
            with _timed(self._device) as spent:
                for _ in range(calls):
                    call()
            rounds.append(spent[0] / calls)
        return min(rounds)


def processor(device: torch.device) -> str:
    """Return the name of the processor that computes."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def resident_bytes() -> int:
    """Return the memory that this process takes now."""
    statm = Path("/proc/self/statm")
    if not statm.exists():  # another system than Linux
        return peak_bytes()
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _take(strips: Iterator[Strip]) -> None:
    """Take a field strip by strip, as a file does, and keep nothing of it."""
    for strip in strips:
        strip.owned.cpu()


def _steps(solution: Outcome, setup: float, transform: float) -> dict[str, float]:
    """Split a solve of one rank into steps, the transforms taken out of sweep and estimate."""
    iteration = solution.history.seconds[-1] / solution.iterations
    estimate = solution.seconds["estimate"]
    return {
        "setup": setup,
        "sweep": iteration - transform,
        "transform": transform,
        "estimate": estimate - transform,
        "fill": solution.seconds["assemble"],
    }


@contextmanager
def _timed(device: torch.device) -> Iterator[list[float]]:
    """Yield a list that holds the seconds afterwards, a GPU's work included."""
    result: list[float] = []
    start = time.perf_counter()
    yield result
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    result.append(time.perf_counter() - start)


MEDIUM_SIDES = {2: (32, 64, 128, 256, 512, 1024), 3: (16, 32, 64, 96)}
"""Cells per side of the measured squares and boxes, by axes."""

_MEDIUM = {"a": "lognormal:seed=0,length=0.1,contrast=1e4", "f": 1.0}
_MEDIUM_RUNS = 2  # of which the faster counts
_MEDIUM_STEPS = ("setup", "iteration", "fill")


def measure_medium(ranks: Ranks, machine: str, axes: int) -> MediumRates:
    """Measure solves of several sizes on a processor; all ranks call it together, each solves alone."""
    seconds = []
    for side in MEDIUM_SIDES[axes]:
        runs = []
        for _ in range(_MEDIUM_RUNS):
            ranks.barrier()
            runs.append(_solve_medium((side,) * axes))
        seconds.append([ranks.largest(min(of_step)) for of_step in zip(*runs, strict=True)])
    nodes = [(side - 1) ** axes for side in MEDIUM_SIDES[axes]]
    curves = [Curve.rising(nodes, of_step) for of_step in zip(*seconds, strict=True)]
    return MediumRates(machine, axes, **dict(zip(_MEDIUM_STEPS, curves, strict=True)))


def _solve_medium(cells: tuple[int, ...]) -> tuple[float, float, float]:
    """Return the seconds of the steps of a solve on so many cells."""
    problem = Problem(Domain(cells), "diffusion", _MEDIUM)
    grid = problem.domain.grid()
    bound = Exact().medium(problem, grid)
    alone = Partition.alone(grid, problem.conditions.periodic)
    start = time.perf_counter()
    engine = MultigridEngine(alone, bound, SolveSettings(rtol=1e-8))
    setup = time.perf_counter() - start
    (solved,) = engine.solve_many(problem.boundaries(grid))
    each = solved.history.seconds[-1] / len(solved.history.seconds)
    return setup, each, solved.seconds["assemble"]
