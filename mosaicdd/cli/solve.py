"""``mosaicdd solve``: a boundary value problem on a large domain, on any number of ranks."""

import math
import time

import click
import torch

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.json_line import json_line
from mosaicdd.cli.launch import threads_per_rank, world
from mosaicdd.cli.show import stage
from mosaicdd.cli.types import SIZE_PAIR
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.base import LocalSolver
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.guarded import GuardedSolver
from mosaicdd.local_solvers.loading import load_local_solver
from mosaicdd.local_solvers.self_test import require_self_test
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.boundary_spec import boundary_of_spec, is_file
from mosaicdd.problems.equations import Equation, equation
from mosaicdd.problems.references import REFERENCES
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.boundary_file import read_boundary

_RTOL = {"float64": 1e-7, "float32": 1e-5}
_MAX_ITERATIONS = {1: 100_000, 2: 100}
_BATCH = {"cpu": 1024, "cuda": 65_536}


@click.command()
@click.option("-o", "--output", required=True, metavar="OUT.h5", help="Solution file to write.")
@click.option(
    "--cells", type=SIZE_PAIR, required=True, help="Grid cells along x and y, as 2048x2048."
)
@click.option(
    "--boundary",
    default="gp:seed=0",
    show_default=True,
    metavar="SPEC",
    help="Dirichlet data: 'gp:seed=0,length=L,amplitude=A,noise=S' (lengths in domain units; L by "
    "default 1/16 of the perimeter), 'expr:sin(2*pi*x)', or an HDF5 file.",
)
@click.option(
    "--local-solver",
    default="laplace",
    show_default=True,
    metavar="NAME|FILE",
    help="A shipped model (laplace, laplace-sdnet), a model file, or 'exact'.",
)
@click.option("--pde", default="laplace", show_default=True, help="Equation to solve.")
@click.option(
    "--levels",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="2: with the coarse space; 1: subdomains only, as in the paper.",
)
@click.option(
    "--sweep",
    type=click.Choice(["additive", "phases"]),
    help="All subdomains at once, or four phases of disjoint ones (one level only). "
    "[default: additive with 2 levels, phases with 1]",
)
@click.option(
    "--sync",
    type=click.Choice(["iteration", "phase"]),
    default="iteration",
    show_default=True,
    help="With phases: halo exchange once per iteration (the paper) or after each phase.",
)
@click.option(
    "--accelerate",
    type=click.Choice(["none", "gmres", "anderson"]),
    default="none",
    show_default=True,
    help="gmres: for linear local solvers; anderson: for any. Fewer iterations, more memory.",
)
@click.option(
    "--certify",
    type=float,
    metavar="RTOL",
    help="Go on with the exact local solver until the discrete residual, relative to the right-hand "
    "side, is this small: a right answer from any network.",
)
@click.option(
    "--out-of-range",
    type=click.Choice(["network", "exact"]),
    default="network",
    show_default=True,
    help="What solves subdomains with rougher data than the network was trained on.",
)
@click.option(
    "--rtol",
    type=float,
    help="Stop when the update is this small, relative to the solution. "
    "[default: 1e-7 in float64, 1e-5 in float32]",
)
@click.option(
    "--max-iterations", type=int, help="Give up after so many. [default: 100; one level: 100000]"
)
@click.option(
    "--until-mae",
    type=float,
    help="Stop at this mean absolute error on the interface instead, against --reference (the "
    "paper's way).",
)
@click.option(
    "--reference",
    type=click.Choice(sorted(REFERENCES)),
    default="dst",
    show_default=True,
    help="Reference of --until-mae: fast sine transform or pyAMG.",
)
@click.option(
    "--batch-subdomains",
    type=int,
    help="Subdomains per call of the local solver; 1 is the paper's unbatched baseline. "
    "[default: 1024; cuda: 65536]",
)
@click.option(
    "--checkpoint-minutes",
    type=click.FloatRange(min=0.0),
    default=10.0,
    show_default=True,
    help="Minutes between checkpoints of the iteration (OUT.h5.checkpoint), which SIGTERM, SIGUSR1 "
    "and Ctrl-C write, too; a run that ends by itself removes it.",
)
@click.option(
    "--resume", is_flag=True, help="Go on from OUT.h5.checkpoint, on any number of ranks."
)
@click.option(
    "--dims",
    type=SIZE_PAIR,
    help="Ranks along x and y, as 2x3. [default: the shortest block edges]",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where."
)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Precision of the iteration and of the file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def solve(
    output: str,
    cells: tuple[int, int],
    boundary: str,
    local_solver: str,
    pde: str,
    levels: str,
    sweep: str | None,
    sync: str,
    accelerate: str,
    certify: float | None,
    out_of_range: str,
    rtol: float | None,
    max_iterations: int | None,
    until_mae: float | None,
    reference: str,
    batch_subdomains: int | None,
    checkpoint_minutes: float,
    resume: bool,
    dims: tuple[int, int] | None,
    device: str,
    dtype: str,
    as_json: bool,
):
    """Solve a boundary value problem on a large domain.

    The domain is nx by ny grid cells, with the spacing that the local solver was made for, and its
    lower-left corner at the origin. Exit code 0: converged; 1: not converged (the file is written
    all the same, its status says why); 2: bad input.

    Example: mpiexec -n 2 mosaicdd solve -o out.h5 --cells 2048x2048 --boundary gp:seed=0
    """
    comm = world()  # with its one line where there is no MPI; the imports below need it
    from mosaicdd.cli.checkpoints import Checkpoints, listening
    from mosaicdd.cli.progress import IterationProgress
    from mosaicdd.cli.result import Output, for_people, report_of
    from mosaicdd.parallel.agreement import agree, on_root
    from mosaicdd.parallel.devices import device_of_rank
    from mosaicdd.parallel.memory import require_memory
    from mosaicdd.parallel.process_grid import ProcessGrid, choose_dims
    from mosaicdd.parallel.watch import Watch
    from mosaicdd.schwarz.settings import SolveSettings
    from mosaicdd.schwarz.solver import SchwarzSolver
    from mosaicdd.schwarz.stopping import StoppingRule
    from mosaicdd.schwarz.stopwatch import Stopwatch

    start = time.perf_counter()
    torch.set_num_threads(threads_per_rank())
    with bad_input("-o"):
        on_root(comm, lambda: require_writable(output))
    with bad_input("--pde"):
        needed = equation(pde)
    with bad_input("--local-solver"):
        tested = certify is None  # a certificate needs no trust in the network
        guarded = out_of_range == "exact"
        solver = on_root(
            comm,
            lambda: _local_solver(local_solver, needed, tested=tested, guarded=guarded),
        )
    with bad_input(f"--cells {cells[1]}x{cells[0]}"):
        lattice = Lattice(Grid(cells, solver.subdomain.spacing), solver.subdomain)
    with bad_input():
        settings = SolveSettings(
            levels=int(levels),
            sweep=sweep or ("additive" if levels == "2" else "phases"),
            sync=sync,
            accelerate=accelerate,
            certify=certify,
            stopping=StoppingRule(
                rtol=_RTOL[dtype] if rtol is None else rtol,
                max_iterations=_MAX_ITERATIONS[int(levels)]
                if max_iterations is None
                else max_iterations,
                mae=until_mae,
            ),
            batch_subdomains=_BATCH[device] if batch_subdomains is None else batch_subdomains,
            device=agree(comm, lambda: device_of_rank(comm, device)),
            dtype=getattr(torch, dtype),
        )
        grid = ProcessGrid(comm, dims or choose_dims(comm.size, lattice.subdomains))
    with bad_input(f"--cells {cells[1]}x{cells[0]}"):
        agree(
            comm, lambda: require_memory(comm, _bytes_of_rank(lattice, settings.dtype, comm.size))
        )
    with bad_input("--boundary"):
        data = on_root(comm, lambda: _boundary(boundary, lattice.grid))
    with bad_input():
        clock = Stopwatch()
        schwarz = SchwarzSolver(grid, lattice, solver, settings, clock=clock)
    truth = None
    if until_mae is not None:
        field = REFERENCES[reference](solver.equation, data) if grid.is_root else None
        truth = schwarz.reference(field)
    checkpoints = Checkpoints(output, grid, lattice, settings, solver, data)
    begin, history = None, None
    if resume:
        with bad_input("--resume"):
            begin, history = checkpoints.read(schwarz)
    watch = Watch(checkpoints.save, 60 * checkpoint_minutes)
    comm.Barrier()
    setup = time.perf_counter() - start
    with (
        Output(output, grid, lattice, data, dtype, clock) as file,
        stage("solving", quiet=as_json or not grid.is_root) as show,
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
        file.maps(solution)
        report = report_of(grid, lattice, solver, settings, solution, device)
        report["seconds"] = _seconds(setup, solution.seconds, clock, start)
        file.describe(report, solution.history)
    if solution.status != "interrupted":
        checkpoints.remove()
    if grid.is_root:
        click.echo(json_line(report) if as_json else for_people(report, output))
    return 0 if solution.converged else 1


def _seconds(setup: float, solved: dict[str, float], clock, start: float) -> dict:
    """Return where the time of this rank has gone until now."""
    write = clock.seconds.get("write", 0.0)
    parts = {"setup": setup} | solved | {"write": write}
    parts["assemble"] -= write
    return parts | {"total": time.perf_counter() - start}


def _bytes_of_rank(lattice: Lattice, dtype: torch.dtype, ranks: int) -> int:
    """Return what a rank needs at least: its part of the field and four interfaces."""
    field = math.prod(lattice.grid.nodes)
    interface = 2 * field // lattice.spacing
    return (field + 4 * interface) * dtype.itemsize // ranks


def _local_solver(name: str, needed: Equation, *, tested: bool, guarded: bool) -> LocalSolver:
    if name == "exact":
        return ExactSolver(needed, Subdomain())
    solver = load_local_solver(name, needed)
    if tested:
        require_self_test(solver)
    return GuardedSolver(solver) if guarded else solver


def _boundary(spec: str, grid: Grid) -> Boundary:
    return read_boundary(spec, grid) if is_file(spec) else boundary_of_spec(spec, grid)
