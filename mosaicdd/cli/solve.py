"""``mosaicdd solve``: a boundary value problem on a large domain, on any number of ranks."""

import math
import time

import click
import numpy as np
import torch

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.json_line import json_line
from mosaicdd.cli.launch import threads_per_rank, world
from mosaicdd.cli.show import stage
from mosaicdd.cli.solve_options import solve_options
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.points import on_grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.loading import find_local_solver, require_self_test
from mosaicdd.local_solvers.training_range import GuardedSolver
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.boundary_spec import boundaries_of_spec, is_file
from mosaicdd.problems.equations import Equation, equation
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references import REFERENCES
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.inputs import read_boundaries, read_points
from mosaicdd.storage.shards import require_shard_folder


@click.command()
@solve_options
def solve(
    output: str,
    cells: tuple[int, int],
    boundary: str,
    local_solver: str,
    pde: str,
    levels: str,
    sweep: str | None,
    sync: str,
    accelerate: str | None,
    certify: float | None,
    out_of_range: str,
    rtol: float | None,
    max_iterations: int | None,
    until_mae: float | None,
    reference: str,
    batch_subdomains: int | None,
    batch: int | None,
    replicas: int,
    checkpoint_minutes: float,
    resume: bool,
    dims: tuple[int, int] | None,
    halo_depth: int,
    halo_dtype: str | None,
    mpi_buffers: str,
    trace: str | None,
    device: str,
    dtype: str,
    fields: str,
    extent: tuple[tuple[float, float], ...] | None,
    points: str | None,
    shards: bool,
    as_json: bool,
):
    """Solve a boundary value problem on a large domain.

    The domain is nx by ny grid cells, with the spacing that the local solver was made for, and its
    lower-left corner at the origin. Exit code 0: converged; 1: not converged (the file is written
    all the same, its status says why); 2: bad input.

    Example: mpiexec -n 2 mosaicdd solve -o out.h5 --cells 2048x2048 --boundary gp:seed=0
    """
    everyone = world()
    from mosaicdd.cli.checkpoints import Checkpoints
    from mosaicdd.cli.many import (
        ManyProblems,
        default_batch,
        require_one_problem,
        require_replicas_fit,
    )
    from mosaicdd.cli.many_result import many_for_people
    from mosaicdd.cli.progress import IterationProgress
    from mosaicdd.cli.result import Output, for_people, parts_of_ranks, report_of
    from mosaicdd.cli.signals import listening
    from mosaicdd.cli.trace import write_trace
    from mosaicdd.parallel.machine import device_of_rank, require_memory
    from mosaicdd.parallel.replicas import Replicas
    from mosaicdd.parallel.watch import Watch
    from mosaicdd.schwarz.engine import Engine
    from mosaicdd.schwarz.settings import SolveSettings
    from mosaicdd.schwarz.stopping import CONVERGED
    from mosaicdd.schwarz.stopwatch import Stopwatch

    start = time.perf_counter()
    torch.set_num_threads(threads_per_rank())
    with bad_input("-o"):
        everyone.on_root(lambda: require_writable(output))
    if trace is not None:
        with bad_input("--trace"):
            everyone.on_root(lambda: require_writable(trace))
    with bad_input("--fields interface"):
        _require_field(fields, window=extent is not None, shards=shards)
    with bad_input("--shards"):
        if shards:
            everyone.on_root(lambda: require_shard_folder(output))
    with bad_input("--pde"):
        needed = equation(pde)
    with bad_input("--local-solver"):
        tested = certify is None  # a certificate needs no trust in the network
        guarded = out_of_range == "exact"
        solver = everyone.on_root(
            lambda: _local_solver(local_solver, needed, tested=tested, guarded=guarded)
        )
    with bad_input(f"--cells {cells[1]}x{cells[0]}"):
        lattice = Lattice(Grid(cells, solver.subdomain.spacing), solver.subdomain)
    with bad_input("--window"):
        window = None if extent is None else Window.of_extent(lattice.grid, extent)
    with bad_input("--points"):
        places = everyone.on_root(lambda: _points(points, lattice.grid))
    with bad_input():
        settings = SolveSettings(
            levels=int(levels),
            sweep=sweep,
            sync=sync,
            accelerate=accelerate,
            certify=certify,
            rtol=rtol,
            max_iterations=max_iterations,
            until_mae=until_mae,
            batch_subdomains=batch_subdomains,
            halo_depth=halo_depth,
            halo_dtype=halo_dtype,
            mpi_buffers=mpi_buffers,
            device=str(device_of_rank(everyone, device)),
            dtype=dtype,
        )
        groups = Replicas(everyone, replicas, dims)
        ranks = groups.ranks.fitted(lattice.subdomains)
    with bad_input(f"--cells {cells[1]}x{cells[0]}"):
        filled = window or Window.whole(lattice.grid)
        needed_bytes = _bytes_of_rank(lattice, dtype, ranks.size)
        require_memory(everyone, needed_bytes)
    with bad_input("--boundary"):
        boundaries = everyone.on_root(lambda: _boundaries(boundary, lattice.grid))
    clock = Stopwatch(traced=trace is not None)
    if len(boundaries) > 1:
        with bad_input():
            given = {"resume": resume, "until_mae": until_mae is not None, "shards": shards}
            given |= {"window": window is not None, "points": bool(points)}
            given |= {"fields": fields != "solution"}
            require_one_problem(len(boundaries), **given)
            size = min(batch or default_batch(lattice, settings), len(boundaries))
        with bad_input(f"--batch {size}"):
            needed_bytes *= size
            require_memory(everyone, needed_bytes, "a smaller batch")
        with bad_input():
            many = ManyProblems(groups, lattice, solver, settings, boundaries, size, clock)
        everyone.barrier()
        setup = time.perf_counter() - start
        with stage("solving", quiet=as_json or not everyone.is_root) as show:
            report = many.run(
                output, device, show, lambda solved: _seconds(setup, solved, clock, start)
            )
        if trace is not None:
            write_trace(trace, everyone, clock)
        if everyone.is_root:
            click.echo(json_line(report) if as_json else many_for_people(report, output))
        return 0 if report["status"] in CONVERGED else 1
    (data,) = boundaries
    with bad_input():
        require_replicas_fit(groups, len(boundaries))
        wanted = {"fill": fields == "solution", "window": window}
        schwarz = Engine(ranks, lattice, solver, settings, **wanted, clock=clock)
    with bad_input("--points"):
        values_at = schwarz.plan_points(on_grid(places, lattice.grid)) if points else None
    truth = None
    if until_mae is not None:
        field = (
            REFERENCES[reference](Problem(data.shape, pde, sides=data)) if ranks.is_root else None
        )
        truth = schwarz.reference(field)
    checkpoints = Checkpoints(output, ranks, lattice, settings, solver, data)
    begin, history = None, None
    if resume:
        with bad_input("--resume"):
            begin, history = checkpoints.read(schwarz)
    watch = Watch(checkpoints.save, 60 * checkpoint_minutes)
    everyone.barrier()
    setup = time.perf_counter() - start
    form = {"window": filled, "place": schwarz.place}
    with (
        Output(output, ranks, lattice, data, dtype, clock, **form, shards=shards) as file,
        stage("solving", quiet=as_json or not ranks.is_root) as show,
        listening(watch),
    ):
        solution = schwarz.solve(
            data,
            start=begin,
            history=history,
            reference=truth,
            progress=IterationProgress(settings.stopping, show),
            watch=watch,
            sink=file.field,
        )
        if fields == "interface":
            file.interface(schwarz.movement, solution.interface)
        if points:
            with clock.part("points"):
                (values,) = values_at(solution.interface, [data])
            file.points(places, values)
        file.maps(solution)
        report = report_of(ranks, lattice, solver, settings, solution, device)
        report |= {"fields": fields, "window": _extent_for_people(window, lattice.grid)}
        report["seconds"] = _seconds(setup, solution.seconds, clock, start)
        report["parts"] = parts_of_ranks(ranks, clock)
        file.describe(report, solution.history)
    if trace is not None:
        write_trace(trace, everyone, clock)
    if solution.status != "interrupted":
        checkpoints.remove()
    if ranks.is_root:
        click.echo(json_line(report) if as_json else for_people(report, output))
    return 0 if solution.converged else 1


def _seconds(setup: float, solved: dict[str, float], clock, start: float) -> dict:
    """Return where the time of this rank has gone until now."""
    write = clock.seconds.get("write", 0.0)
    parts = {"setup": setup} | solved | {"write": write}
    parts["assemble"] -= write
    if "points" in clock.seconds:
        parts["points"] = clock.seconds["points"]
    return parts | {"total": time.perf_counter() - start}


def _require_field(fields: str, *, window: bool, shards: bool) -> None:
    """Check that nothing is said of a field that is not to be written."""
    for name, given in (("--window", window), ("--shards", shards)):
        if given and fields == "interface":
            raise ValueError(f"{name} is about the field, which is left out; leave out one of them")


def _points(path: str | None, grid: Grid) -> np.ndarray | None:
    """Read points, (x, y) in domain coordinates, and check that they lie in the domain."""
    if path is None:
        return None
    points = read_points(path)
    on_grid(points, grid)
    return points


def _extent_for_people(window: Window | None, grid: Grid) -> list[list[float]] | None:
    """Return the ends of a window along x and along y."""
    return window and [list(ends) for ends in window.extent(grid)[::-1]]


def _bytes_of_rank(lattice: Lattice, dtype: str, ranks: int) -> int:
    """Return what a rank needs at least: four interfaces; of the field it holds a strip only."""
    interface = 2 * math.prod(lattice.grid.nodes) // lattice.spacing
    return 4 * interface * np.dtype(dtype).itemsize // ranks


def _local_solver(name: str, needed: Equation, *, tested: bool, guarded: bool) -> LocalSolver:
    if name == "exact":
        return ExactSolver(needed.at(), Subdomain())
    solver = find_local_solver(name).as_trained()
    if tested:
        require_self_test(solver)
    return GuardedSolver(solver) if guarded else solver


def _boundaries(spec: str, grid: Grid) -> list[Boundary]:
    return read_boundaries(spec, grid) if is_file(spec) else boundaries_of_spec(spec, grid)
