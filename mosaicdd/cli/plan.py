"""``mosaicdd plan``: what a solve will cost on any number of ranks, on paper."""

import math
from typing import Any

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.given_problem import Description, given_problem
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.options import (
    CELLS,
    ORIGIN,
    SIDE,
    SIZES,
    SPACING,
    completed,
    dtype_option,
    once_each,
)
from mosaicdd.lattice.axes import times
from mosaicdd.storage.json_line import json_line

_MOST_RANKS = 10**6
_OTHERWISE = 12  # iterations by multigrid and in cubes, usually: benchmarks/fields.md, cubes.md


@click.command()
@click.option(
    "--cells",
    type=CELLS,
    required=True,
    help="Grid cells along x, y and z, as 2048x1024, or 2kx1k.",
)
@click.option(
    "--ranks", type=click.IntRange(1, _MOST_RANKS), required=True, help="Number of ranks."
)
@click.option(
    "--ranks-per-node",
    type=click.IntRange(1, _MOST_RANKS),
    default=32,
    show_default=True,
    help="Ranks that share a node.",
)
@click.option(
    "--dims", type=SIZES, help="Ranks along x, y and z, as 2x3. [default: those of least time]"
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    help="Iterations of a solve, which do not grow with the domain.  [default: 9; by multigrid and in cubes 12]",
)
@click.option(
    "--medium",
    is_flag=True,
    help="Coefficients are fields, so it is solved by multigrid.",
)
@click.option(
    "--cubes",
    is_flag=True,
    help="A box is solved in half-overlapping cubes, as by --local-solver exact or laplace-cubes.",
)
@click.option(
    "--domain",
    metavar="SPEC",
    shell_complete=completed(),
    help="Part of these cells that is the domain, as for solve.  [default: all]",
)
@click.option(
    "--side",
    "given_sides",
    type=SIDE,
    callback=once_each,
    multiple=True,
    help="What holds on one side, or a part of it, as for solve; values are given elsewhere. Repeat for "
    "others.",
)
@click.option(
    "--spacing",
    type=SPACING,
    help="Side of a grid cell, in domain units.  [default: 1/64]",
)
@click.option(
    "--origin",
    type=ORIGIN,
    help="Where the lower-left corner of the cells lies, as for solve.  [default: 0,0]",
)
@click.option(
    "--problems",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Problems on this lattice, for which replicas are suggested.",
)
@click.option(
    "--rates",
    default="default",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=completed(),
    help="Measured by 'mosaicdd bench', or 'default' (a CPU core).",
)
@dtype_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@on_first_rank
def plan(
    ranks: int,
    ranks_per_node: int,
    dims: tuple[int, ...] | None,
    iterations: int | None,
    medium: bool,
    cubes: bool,
    problems: int,
    rates: str,
    dtype: str,
    as_json: bool,
    **described: Any,
) -> None:
    """Say what a solve will cost: messages, bytes, memory and time.

    Counts are exact; times follow from rates. What is solved by multigrid (media, boxes, natural and
    periodic sides, other domains than rectangles) is planned as a medium. Needs no MPI library.

    Example: mosaicdd plan --cells 16384x16384 --ranks 1024 --ranks-per-node 64
    """
    from mosaicdd.lattice.lattice import Lattice
    from mosaicdd.lattice.subdomain import Subdomain
    from mosaicdd.local_solvers.exact import nodes_of_media, values_given
    from mosaicdd.planning.medium import bytes_by_transforms, plan_medium
    from mosaicdd.planning.plan import ITERATIONS, Job, make_plan
    from mosaicdd.planning.presented import medium_report, medium_text, plan_report, plan_text
    from mosaicdd.planning.rates import completed, rates_of_name
    from mosaicdd.problems.discretisation.separable import separable_ends
    from mosaicdd.problems.shapes.shape import require_inside

    with bad_input("--rates"):
        known, assumed_links = completed(rates_of_name(rates, dtype, 3 if cubes else 2))
    with bad_input():
        description = Description(boundary="expr:0", **described)
        problem, cells = given_problem(description), description.cells
        grid = problem.domain.grid()
        problem.conditions.require_parts(grid)
        if problem.domain.shape is not None:
            require_inside(problem.domain.shape, grid)
    with bad_input(f"--cells {times(cells)}"):
        if cubes and (medium or not problem.plain or len(cells) != 3):
            raise ValueError(
                "--cubes is of boxes with values on all sides and without --medium; multigrid solves all others"
            )
        by_multigrid = not cubes and (medium or not problem.plain or len(cells) != 2)
        if by_multigrid:
            where = nodes_of_media(problem, grid)
        else:
            size = Subdomain().cells // (2 if cubes else 1)
            where = Lattice(grid, Subdomain(size, size * grid.spacing, len(cells)))
    with bad_input("--dims"):
        if dims is not None and math.prod(dims) != ranks:
            raise ValueError(f"{times(dims)} are {math.prod(dims)} ranks, --ranks says {ranks}")
    usual = _OTHERWISE if by_multigrid or cubes else ITERATIONS
    inside = values_given(problem)
    job = Job(where, ranks, ranks_per_node, iterations or usual, problems, values_given=inside)
    with bad_input():
        if by_multigrid:
            report = medium_report(job, plan_medium(job, known, dims))
            if not medium and separable_ends(problem) is not None:
                report["bytes_by_transforms"] = bytes_by_transforms(job, known)
        else:
            report = plan_report(job, make_plan(job, known, dims))
    report["rates"] = {
        "name": rates,
        "machine": known.media[0].machine if by_multigrid else known.machine,
        "assumed_links": assumed_links,
        "device": known.device,
        "dtype": known.dtype,
        "local_solver": "multigrid" if by_multigrid else known.local_solver,
        "measured_ranks": known.ranks,
    }
    text = medium_text if by_multigrid else plan_text
    click.echo(json_line(report) if as_json else text(report))
