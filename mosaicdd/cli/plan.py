"""``mosaicdd plan``: messages and memory of a solve on any number of ranks."""

import math
from dataclasses import asdict
from typing import Any

import click

from mosaicdd.axes import times
from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.options import (
    CELLS,
    EACH,
    ORIGIN,
    SIDE,
    SIZES,
    SPACING,
    SPEC,
    declared,
    json_option,
    row,
    with_options,
)
from mosaicdd.storage.metrics_file import json_line

_MOST_RANKS = 10**6
_WORD = {"float64": 8, "float32": 4}
_PLAN = declared(
    cells=row("Grid cells along x, y and z, as 2048x1024, or 2kx1k.", type=CELLS, required=True),
    ranks=row("Number of ranks.", type=click.IntRange(1, _MOST_RANKS), required=True),
    dims=row(
        "Ranks along x, y and z, as 2x3.  [default: as solve, the shortest borders]", type=SIZES
    ),
    medium=row("Coefficients are fields, so it is solved by multigrid.", is_flag=True),
    cubes=row(
        "A box is solved in half-overlapping cubes, as by --local-solver exact or laplace-cubes.",
        is_flag=True,
    ),
    domain=row("Part of these cells that is the domain, as for solve.  [default: all]", type=SPEC),
    side=row(
        "What holds on one side, or a part of it, as for solve; values are given elsewhere. Repeat for "
        "others.",
        type=SIDE,
        **EACH,
    ),
    spacing=row("Side of a grid cell, in domain units.  [default: 1/64]", type=SPACING),
    origin=row(
        "Where the lower-left corner of the cells lies, as for solve.  [default: 0,0]", type=ORIGIN
    ),
    problems=row(
        "Problems that transforms solve at once.",
        type=click.IntRange(1),
        default=1,
        show_default=True,
    ),
    dtype=row(
        "Precision of the iteration.",
        type=click.Choice(tuple(_WORD)),
        default="float64",
        show_default=True,
    ),
)


@click.command()
@with_options(_PLAN)
@json_option()
@on_first_rank
def plan(
    ranks: int,
    dims: tuple[int, ...] | None,
    medium: bool,
    cubes: bool,
    problems: int,
    dtype: str,
    as_json: bool,
    **described: Any,
) -> None:
    """Count the messages of an iteration and the memory of a rank, before a solve begins.

    Counts are exact. What is solved by multigrid (media, boxes, natural and periodic sides, other
    domains than rectangles) is counted as a medium. Needs no MPI library.

    Example: mosaicdd plan --cells 16384x16384 --ranks 1024
    """
    from mosaicdd.cli.problem import read_problem
    from mosaicdd.discretisation.system import nodes_of_media, separable_ends, values_given
    from mosaicdd.networks.subdomain import Subdomain
    from mosaicdd.parallel.partition import fitting_dims
    from mosaicdd.planning.counts import (
        Decomposition,
        bytes_by_transforms,
        count_levels,
        count_subdomains,
        levels_on,
        levels_over_share,
        memory_of_levels,
        memory_of_subdomains,
    )
    from mosaicdd.problems.shapes.shape import require_inside
    from mosaicdd.schwarz.block import Lattice

    with bad_input():
        cells = described["cells"]
        problem = read_problem({"pde": "diffusion", "boundary": "0"} | described)
        grid = problem.domain.grid()
        problem.conditions.require_parts(grid)
        if problem.domain.shape is not None:
            require_inside(problem.domain.shape, grid)
    by_multigrid = not cubes and (medium or not problem.plain or len(cells) != 2)
    with bad_input(f"--cells {times(cells)}"):
        if cubes and (medium or not problem.plain or len(cells) != 3):
            raise ValueError(
                "--cubes is of boxes with values on all sides and without --medium; multigrid solves all others"
            )
        if by_multigrid and dtype != "float64":
            raise ValueError("multigrid works in float64: leave --dtype out")
        if not by_multigrid:
            size = Subdomain().cells // (2 if cubes else 1)
            lattice = Lattice(grid, Subdomain(size, size * grid.spacing, len(cells)))
    with bad_input("--dims"):
        if dims is not None and math.prod(dims) != ranks:
            raise ValueError(f"{times(dims)} are {math.prod(dims)} ranks, --ranks says {ranks}")
    report = {
        "cells": list(grid.shape[::-1]),
        "ranks": ranks,
        "problems": problems,
        "local_solver": "multigrid" if by_multigrid else "cubes" if cubes else "squares",
    }
    with bad_input():
        if by_multigrid:
            boxes, inside = nodes_of_media(problem, grid), values_given(problem)
            dims = dims or fitting_dims(ranks, boxes.counts)[0]
            levels = levels_on(boxes, dims, values_given=inside)
            of_levels = [{"nodes": v.count, "most": int(v.held().max())} for v in levels]
            report |= {
                "levels": of_levels,
                "per_iteration": asdict(count_levels(levels, dims)),
                "memory_bytes_per_rank": memory_of_levels(levels),
                "memory_over_share": levels_over_share(levels, ranks),
            }
            if not medium and separable_ends(problem) is not None:
                nodes, equations = math.prod(grid.nodes), not inside and len(cells) == 3
                by_transforms = bytes_by_transforms(nodes, ranks, problems, equations=equations)
                report["bytes_by_transforms"] = by_transforms
        else:
            dims = dims or fitting_dims(ranks, lattice.subdomains)[0]
            blocks = Decomposition(lattice, dims)
            owned = blocks.subdomains
            report |= {
                "subdomains_per_rank": {"least": int(owned.min()), "most": int(owned.max())},
                "coarse_solve": "replicated" if blocks.replicated else "shared",
                "per_iteration": asdict(count_subdomains(blocks, _WORD[dtype])),
                "memory_bytes_per_rank": memory_of_subdomains(blocks, dtype),
            }
    report["dims"] = list(dims[::-1])
    click.echo(json_line(report) if as_json else _text(report))


def _text(report: dict) -> str:
    """Lay out a report in lines."""
    cells, dims = (times(report[name][::-1]) for name in ("cells", "dims"))
    job = f"{cells} cells on {report['ranks']} rank{'s' * (report['ranks'] > 1)} ({dims})"
    counts, memory = report["per_iteration"], report["memory_bytes_per_rank"]
    sent = (
        f"per iteration: {counts['messages']} messages, {counts['bytes']} bytes; of one rank at most "
        f"{counts['most_messages']} messages, {counts['most_bytes']} bytes"
    )
    needed = "memory, MiB per rank: "
    needed += ", ".join(f"{name} {size / 2**20:.1f}" for name, size in memory.items())
    if "levels" not in report:
        owned, gathered = report["subdomains_per_rank"], counts["gathered_bytes"]
        moved = "gathered" if report["coarse_solve"] == "replicated" else "redistributed"
        sent += f"; coarse solve {report['coarse_solve']}, {gathered} bytes {moved} per rank"
        return f"{job}; {owned['least']} to {owned['most']} subdomains per rank\n{sent}\n{needed}"
    levels = report["levels"]
    parts = len(levels) - 1
    shared = f"{parts} level{'s' * (parts != 1)} shared out, one of {levels[-1]['nodes']} nodes on each rank"
    sent += f"; {shared if report['ranks'] > 1 else 'all levels on one rank'}, {counts['gathered_bytes']} bytes summed"
    lines = [
        f"{job}, by multigrid",
        sent,
        f"{needed}; levels {report['memory_over_share']:.2f} of an even share",
    ]
    if "bytes_by_transforms" in report:
        size = report["bytes_by_transforms"] / 2**20
        lines.append(f"where coefficients are numbers: by transforms, {size:.1f} MiB per rank")
    return "\n".join(lines)
