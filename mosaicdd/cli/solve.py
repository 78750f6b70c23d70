"""``mosaicdd solve``: boundary value problems on a large domain, on any number of ranks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mosaicdd.axes import coordinates
from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.config import Recorded, config_option, config_text, print_config_option
from mosaicdd.cli.launch import world
from mosaicdd.cli.options import (
    EXTENT,
    FILE,
    MODEL,
    PROBLEM,
    SIZES,
    SPEC,
    collected,
    completed,
    declared,
    json_option,
    row,
    settings_options,
    with_options,
)
from mosaicdd.cli.show import quiet_option, say, stage, summary
from mosaicdd.parallel.launcher import launcher_rank, listening, threads_per_rank
from mosaicdd.solvers.settings import Output, SolveSettings
from mosaicdd.storage.metrics_file import json_line
from mosaicdd.time.settings import RTOL, TimeSettings
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    from mosaicdd.problems.problem import Problem

_RANDOM = "gp:seed=0"  # the boundary where nothing is said of the problem but its size
_OF_SIDES = ("field", "well", "foil", "side", "hold")

_GROUPS = {
    "Problem": tuple(PROBLEM),
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
_SOLVE = declared(
    output=row(
        "Solution file to write.",
        "-o",
        "--output",
        required=True,
        metavar="OUT.h5",
        type=click.Path(),
    ),
    local_solver=row(
        "A shipped model, a model file or 'exact'. [default: what is shipped for the equation, laplace for laplace and poisson; else, and "
        "in space, exact]",
        type=MODEL,
        shell_complete=completed("schwarz.local_solvers.loading:local_solvers"),
    ),
    initial=row(
        "Values at time 0: a number, 'expr:...' in x and y, node values in FILE.npy or FILE.h5:/dataset, of many problems "
        "(n, ny + 1, nx + 1), or the field of a solution, OLD.h5, of a series the last one, or OLD.h5:K, that at its time "
        "number K. With --steps. [default: 0]",
        type=SPEC,
    ),
    dims=row(
        "Ranks along x and y (and z), as 2x3; of each group, with --replicas. [default: the shortest "
        "block edges]",
        type=SIZES,
    ),
    keep=row(
        "interface: write the values on the lattice lines only, and skip the fill.",
        type=click.Choice(("field", "interface")),
        default="field",
        show_default=True,
    ),
    window=row(
        "Fill and write this part of the domain only, snapped outwards to grid nodes.", type=EXTENT
    ),
    points=row(
        "Write the solution at these points, too, between the nodes by the network, or interpolated: rows 'x y', text "
        "or .npy.",
        type=FILE,
    ),
    trace=row(
        "Write what every rank did when, for Perfetto (ui.perfetto.dev) or chrome://tracing.",
        metavar="FILE.json",
        type=click.Path(),
    ),
)
_SETTINGS = [settings_options(kind) for kind in (TimeSettings, SolveSettings, Output)]


@click.command(cls=Recorded, groups=_GROUPS)
@with_options(PROBLEM, _SOLVE, *_SETTINGS)
@json_option()
@config_option(
    "Options from a TOML file (rtol = 1e-8, and [field] and [side] as tables), or those by which a "
    "solution file was made, OTHER.h5; what stands on the command line holds."
)
@print_config_option()
@quiet_option()
@click.pass_context
def solve(ctx: click.Context, as_json: bool, print_config: bool, **options: Any) -> int:
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

    from mosaicdd.cli.problem import initial_of_spec, read_problem
    from mosaicdd.discretisation.discretisation import without_floating
    from mosaicdd.solution.solver import Solver
    from mosaicdd.solvers.base_engine import Stopwatch, write_trace
    from mosaicdd.solvers.field_residual import IncompatibleError
    from mosaicdd.storage.atomic import require_replaceable
    from mosaicdd.storage.inputs import read_points
    from mosaicdd.time.march import March

    axes, unsaid = len(options["cells"]), options["boundary"] is None
    bare = axes == 2 and unsaid and not any(options[name] for name in _OF_SIDES)
    if bare and ctx.get_parameter_source("pde") is ParameterSource.DEFAULT:
        options["boundary"] = _RANDOM
    trace = options["trace"]
    clock = Stopwatch(traced=trace is not None)
    torch.set_num_threads(threads_per_rank())
    with bad_input("--trace"):
        if trace is not None:
            inputs, overwrite = [options["domain"] or ""], options["overwrite"]
            ranks.on_root(
                lambda: require_replaceable(
                    trace, overwrite=overwrite, suffix=".json", inputs=inputs
                )
            )
    with bad_input():
        settings = collected(SolveSettings, options)
        window = options["window"]
        if window is not None and len(window) != axes:
            raise ValueError(
                f"window: {len(window)} pairs of ends are given, the domain has {axes} axes, {coordinates(axes)}"
            )
        output = collected(Output, options, path=options["output"])
        problem = ranks.run_on_all(lambda: read_problem(options))
        if options["leave_out_floating"]:
            whole = problem
            problem = ranks.run_on_all(lambda: without_floating(whole))
        steps = _time_settings(options, problem)
    with bad_input("--initial"):
        spec = options["initial"] or "0"
        initial = None if steps is None else ranks.run_on_all(lambda: initial_of_spec(spec))
    with bad_input("--points"):
        path = options["points"]
        points = None if path is None else ranks.on_root(lambda: read_points(path, axes))
    how: dict[str, Any] = {"ranks": ranks, "window": window, "output": output}
    with bad_input():
        if steps is None:
            how |= {"keep": options["keep"], "points": points, "clock": clock}
            run: Solver | March = Solver(problem, options["local_solver"], settings=settings, **how)
        else:
            if options["rtol"] is None:
                settings = settings.with_changes(rtol=RTOL)
            run = March(problem, initial, steps, options["local_solver"], settings=settings, **how)
    quiet = as_json or not ranks.is_root
    title, part = ("solving", "iteration") if steps is None else ("stepping", "step")
    files = " and ".join(str(path) for path in (output.path, run.checkpoint) if path is not None)
    notice = "" if quiet else f"interrupted: finishing this {part}, writing {files}"
    with (
        stage(title, quiet=quiet) as show,
        listening(run, notice),
        bad_input("--side", only=IncompatibleError),
    ):
        solution = run(progress=show)
    if trace is not None:
        write_trace(trace, ranks, clock)
    run.close()
    if ranks.is_root:
        if as_json:
            text = json_line(solution.report)
        else:
            kept = run.checkpoint if run.checkpoint and run.checkpoint.is_file() else None
            text = summary(solution.report, options["output"], options["boundary"], kept)
        say(text, asked=as_json or not solution.converged)
    return 0 if solution.converged else 1


def _time_settings(options: Mapping[str, Any], problem: "Problem") -> TimeSettings | None:
    """Return the settings of the steps, sound and all of them; None if nothing is solved in time."""
    asked = any(options[name] is not None for name in ("steps", "dt", "tolerance", "initial"))
    if not asked and problem.equation.steady is None:
        return None
    settings = collected(TimeSettings, options)
    others = [name for name in ("points", "trace") if options[name] is not None]
    if options["keep"] == "interface":
        others.append("keep")
    for name in others:
        raise Unsupported(f"{name}: not for an equation in time; leave it out")
    return settings
