"""``mosaicdd solve``: boundary value problems on a large domain, on any number of ranks."""

from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.config import Grouped, config_option, config_text, print_config_option
from mosaicdd.cli.given_problem import Description, given_initial, given_problem
from mosaicdd.cli.in_time import solve_in_time, time_settings
from mosaicdd.cli.launch import world
from mosaicdd.cli.options import (
    CELLS,
    EXTENT,
    FIELD,
    FOIL,
    HOLD,
    ORIGIN,
    SIDE,
    SIZES,
    SPACING,
    WELL,
    choice_option,
    collected,
    completed,
    once_each,
    option_given,
    settings_options,
)
from mosaicdd.cli.show import interrupted, quiet_option, say, stage, summary
from mosaicdd.lattice.axes import coordinates
from mosaicdd.parallel.launcher import launcher_rank, listening, threads_per_rank
from mosaicdd.schwarz.settings import Output, SolveSettings
from mosaicdd.storage.json_line import json_line
from mosaicdd.time.settings import TimeSettings

_RANDOM = "gp:seed=0"  # the boundary where nothing is said of the problem but its size


_GROUPS = {
    "Problem": (
        *("cells", "spacing", "origin", "domain", "leave_out_floating", "pde", "given_fields"),
        *("given_wells", "given_foils", "boundary"),
        *("given_sides", "given_holds"),
    ),
    "Time": ("steps", "dt", "initial", "method", "every", "tolerance", "solver_share"),
    "Solution": (
        *("output", "overwrite", "keep", "window", "points", "shards", "checkpoint_minutes"),
        *("resume", "trace", "as_json", "quiet", "config", "print_config"),
    ),
    "Method": (
        *("local_solver", "rtol", "certify", "max_iterations", "out_of_range", "levels", "sweep"),
        *("sync", "accelerate", "coarse_points", "until_mae", "reference"),
    ),
    "Machine": (
        *("device", "dtype", "network_dtype", "dims", "replicas", "batch", "batch_subdomains"),
        *("halo_depth", "halo_dtype", "mpi_buffers"),
    ),
}


@click.command(cls=Grouped, groups=_GROUPS)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.h5",
    type=click.Path(),
    help="Solution file to write.",
)
@click.option(
    "--cells",
    type=CELLS,
    required=True,
    help="Grid cells along x and y, as 2048x1024, or 2kx1k; 2k is a square of these; of a box in space, 128x128x64.",
)
@click.option(
    "--domain",
    metavar="SPEC",
    shell_complete=completed(),
    help="Part of these cells that is the domain: 'expr:...', a signed distance, negative inside, or "
    "polygons with holes, FILE.json; a mask, FILE.npy or FILE.png, true or light inside: of cells, or of "
    "nodes (then first order at the outline, else second). Of a box, a distance, or a mask of voxels, FILE.npy or FILE.tif. "
    "A raster, FILE.asc, .csv, .nc or a GeoTIFF: where it has data. [default: all]",
)
@click.option(
    "--leave-out-floating",
    is_flag=True,
    help="Leave out parts of a mask of voxels that no value, exchange or reaction acts on, and say their share.",
)
@click.option(
    "--pde",
    default="laplace",
    show_default=True,
    metavar="NAME|FILE.py:NAME",
    shell_complete=completed("problems.equations:shipped_equations"),
    help="Equation to solve, or one of your own.",
)
@click.option(
    "--field",
    "given_fields",
    type=FIELD,
    callback=once_each,
    multiple=True,
    help="A parameter of the equation, or its source f: a number, 'expr:...' in x and y (and z), node values in "
    "FILE.npy or FILE.h5:/dataset, a raster, FILE.asc, .csv, .nc or .tif, or a random medium, 'lognormal:seed=0,length=L,contrast=C' (L in "
    "domain units, 0 for independent nodes). Repeat for others.",
)
@click.option(
    "--well",
    "given_wells",
    type=WELL,
    metavar="X,Y[,Z]=STRENGTH",
    callback=once_each,
    multiple=True,
    help="A point of the source f with a given total, on or between nodes: 300,450=0.02 brings in 0.02 there, "
    "beside what --field f=... gives. In time 'expr:...' in t. Repeat for others.",
)
@click.option(
    "--foil",
    "given_foils",
    type=FOIL,
    metavar="POINTS=KIND:SPEC",
    multiple=True,
    help="A thin layer in the medium, along lines through points, as '0,0.5 1,0.5', in space a rectangle by two corners: "
    "with resistance:R across (of a unit of area), conductance:C along (thickness times conductivity), or both by "
    "layer:THICKNESS,CONDUCTIVITY. Repeat for others.",
)
@click.option(
    "--boundary",
    metavar="SPEC",
    shell_complete=completed(),
    help="Values on all sides that --side does not name: a number, 'expr:sin(2*pi*x)', an HDF5 file, or "
    "a random curve, 'gp:seed=0,length=L,amplitude=A,noise=S' (lengths in domain units; L by default 1/16 "
    "of the perimeter). Many problems: 'gp:seed=0..63', or a file whose edges have a row for each. "
    "[default: gp:seed=0 where neither --pde, --field nor --side is given]",
)
@click.option(
    "--side",
    "given_sides",
    type=SIDE,
    callback=once_each,
    multiple=True,
    help="What holds on one side, or a part of it, instead: 'left=dirichlet:SPEC', 'left=neumann:SPEC' "
    "(the flux a du/dn, outward), 'right[0:0.5]=robin:ALPHA,SPEC' (a du/dn + ALPHA u), in space "
    "'right[0:0.5, :0.3]=..' along y and z, with a number, "
    "'expr:...', or values at the side's nodes in FILE.npy or FILE.h5:/dataset. With --domain also "
    "'outline', or 'outer', 'hole1', .., and parts of them, 'outline[(x > 1) & (y < 2)]=..'; files of these have "
    "rows 'x y value'. Repeat for others.",
)
@click.option(
    "--hold",
    "given_holds",
    type=HOLD,
    metavar="[NAME:]PLACE=SPEC",
    callback=once_each,
    multiple=True,
    help="Values inside of the domain, at the nodes nearest to a line, 'river: 0,1 2,1.5 4,1=3', or to a point, where a formula "
    "holds, 'hypot(x-1,y-1)<0.1=expr:y', or of a FILE of points or a mask of nodes; quantities says what flows out "
    "through NAME. Repeat for others.",
)
@click.option(
    "--spacing",
    type=SPACING,
    help="Side of a grid cell, in domain units, or its sides, 25x10 along x and y. [default: 1/64; of a network "
    "whose equation is not the same at all scales, as with a reaction, that of its training]",
)
@click.option(
    "--origin",
    type=ORIGIN,
    help="Where the lower-left corner of the cells lies; all places, of formulas, wells, points and in files, are told in these "
    "coordinates. [default: 0,0, or where rasters begin]",
)
@click.option(
    "--local-solver",
    metavar="NAME|FILE",
    shell_complete=completed("local_solvers.loading:local_solvers"),
    help="A shipped model, a model file or 'exact'. [default: what is shipped for the equation, laplace for laplace and poisson; else, and in "
    "space, exact]",
)
@settings_options(TimeSettings)
@click.option(
    "--initial",
    metavar="SPEC",
    help="Values at time 0: a number, 'expr:...' in x and y, node values in FILE.npy or FILE.h5:/dataset, of many problems "
    "(n, ny + 1, nx + 1), or the field of a solution, OLD.h5, of a series the last one, or OLD.h5:K, that at its time "
    "number K. With --steps. [default: 0]",
)
@settings_options(SolveSettings)
@click.option(
    "--dims",
    type=SIZES,
    help="Ranks along x and y (and z), as 2x3; of each group, with --replicas. [default: the shortest "
    "block edges]",
)
@settings_options(Output)
@choice_option(
    "--keep",
    ("field", "interface"),
    "interface: write the values on the lattice lines only, and skip the fill.",
)
@click.option(
    "--window",
    type=EXTENT,
    help="Fill and write this part of the domain only, snapped outwards to grid nodes.",
)
@click.option(
    "--points",
    metavar="FILE",
    type=click.Path(),
    help="Write the solution at these points, too, between the nodes by the network, or interpolated: rows 'x y', text "
    "or .npy.",
)
@click.option(
    "--trace",
    metavar="FILE.json",
    type=click.Path(),
    help="Write what every rank did when, for Perfetto (ui.perfetto.dev) or chrome://tracing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@config_option(
    "Options from a TOML file (rtol = 1e-8, and [field] and [side] as tables), or those by which a "
    "solution file was made, OTHER.h5; what stands on the command line holds."
)
@print_config_option()
@quiet_option()
@click.pass_context
def solve(
    ctx: click.Context,
    output: str,
    leave_out_floating: bool,
    local_solver: str | None,
    initial: str | None,
    dims: tuple[int, ...] | None,
    keep: str,
    window: tuple[tuple[float, float], ...] | None,
    points: str | None,
    trace: str | None,
    as_json: bool,
    print_config: bool,
    **described: Any,
) -> int:
    """Solve a boundary value problem on a large domain.

    The domain is nx by ny grid cells, in space nx by ny by nz. Exit code 0: converged; 1: not converged (the
    file is written all the same, its status says why); 2: bad input.

    Example: mpiexec -n 2 mosaicdd solve -o out.h5 --cells 2048x2048 --boundary gp:seed=0
    """
    if print_config:
        if launcher_rank() == 0:
            say(config_text(ctx), asked=True)
        return 0
    ranks = world()
    import torch

    from mosaicdd.problems.discretisation.floating import without_floating
    from mosaicdd.schwarz.embedded import IncompatibleError
    from mosaicdd.schwarz.solver import Solver
    from mosaicdd.schwarz.stopwatch import Stopwatch, write_trace
    from mosaicdd.storage.atomic import require_replaceable
    from mosaicdd.storage.inputs import read_points

    description = Description(**described)
    if description.bare and ctx.get_parameter_source("pde") is ParameterSource.DEFAULT:
        description = replace(description, boundary=_RANDOM)
    axes = len(description.cells)
    clock = Stopwatch(traced=trace is not None)
    torch.set_num_threads(threads_per_rank())
    with bad_input("--trace"):
        if trace is not None:
            mine = {
                "overwrite": option_given(ctx, "overwrite"),
                "inputs": [description.domain or ""],
            }
            ranks.on_root(lambda: require_replaceable(trace, suffix=".json", **mine))
    with bad_input():
        settings = collected(ctx, SolveSettings, dims=dims)
        if window is not None and len(window) != axes:
            raise ValueError(
                f"window: {len(window)} pairs of ends are given, the domain has {axes} axes, {coordinates(axes)}"
            )
        file = collected(ctx, Output, path=output)
        problem = ranks.agree(lambda: given_problem(description))
        if leave_out_floating:
            whole = problem
            problem = ranks.agree(lambda: without_floating(whole))
        time = time_settings(ctx, problem)
    if time is not None:
        with bad_input("--initial"):
            begin = ranks.agree(lambda: given_initial(initial or "0"))
        return solve_in_time(ctx, ranks, problem, time, begin, settings, file, as_json=as_json)
    with bad_input("--points"):
        places = None if points is None else ranks.on_root(lambda: read_points(points, axes))
    with bad_input():
        solver = Solver(
            problem,
            local_solver,
            ranks=ranks,
            settings=settings,
            window=window,
            keep=keep,
            points=places,
            output=file,
            clock=clock,
        )
    quiet = as_json or not ranks.is_root
    notice = "" if quiet else interrupted(output, solver.checkpoint)
    with (
        stage("solving", quiet=quiet) as show,
        listening(solver, notice),
        bad_input("--side", only=IncompatibleError),
    ):
        solution = solver(progress=show)
    if trace is not None:
        write_trace(trace, ranks, clock)
    solver.close()
    if ranks.is_root:
        text = (
            json_line(solution.report)
            if as_json
            else summary(solution, output, description.boundary)
        )
        say(text, asked=as_json or not solution.converged)
    return 0 if solution.converged else 1
