"""``mosaicdd plan``: what a solve will cost on any number of ranks, on paper."""

from dataclasses import asdict

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.json_line import json_line
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.cli.types import SIZE_PAIR

_MOST_RANKS = 10**6
_MIB = 2**20


@click.command()
@click.option(
    "--cells", type=SIZE_PAIR, required=True, help="Grid cells along x and y, as 2048x2048."
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
    "--dims", type=SIZE_PAIR, help="Ranks along x and y, as 2x3. [default: those of least time]"
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    default=9,
    show_default=True,
    help="Iterations of a solve; with two levels they do not grow with the domain.",
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
    help="Measured by 'mosaicdd bench', or 'default' (a CPU core), or assumed from published "
    "figures: 'a30', 'h100'.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Precision of the iteration.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@on_first_rank
def plan(
    cells: tuple[int, int],
    ranks: int,
    ranks_per_node: int,
    dims: tuple[int, int] | None,
    iterations: int,
    problems: int,
    rates: str,
    dtype: str,
    as_json: bool,
):
    """Say what a solve will cost: messages, bytes, memory and time.

    Counts are exact; times follow from rates. Needs no MPI library.

    Example: mosaicdd plan --cells 16384x16384 --ranks 1024 --ranks-per-node 64
    """
    from mosaicdd.lattice.grid import Grid
    from mosaicdd.lattice.lattice import Lattice
    from mosaicdd.lattice.subdomain import Subdomain
    from mosaicdd.planning.assumed import completed, rates_of_name
    from mosaicdd.planning.plan import Job, make_plan

    with bad_input("--rates"):
        known, assumed_links = completed(rates_of_name(rates, dtype))
    subdomain = Subdomain()
    with bad_input(f"--cells {cells[1]}x{cells[0]}"):
        lattice = Lattice(Grid(cells, subdomain.spacing), subdomain)
    with bad_input("--dims"):
        if dims is not None and dims[0] * dims[1] != ranks:
            raise ValueError(
                f"{dims[1]}x{dims[0]} are {dims[0] * dims[1]} ranks, --ranks says {ranks}"
            )
    with bad_input():
        made = make_plan(Job(lattice, ranks, ranks_per_node, iterations, problems), known, dims)
    report = _report(cells, ranks, ranks_per_node, iterations, problems, made)
    report["rates"] = {
        "name": rates,
        "machine": known.machine,
        "assumed": known.assumed,
        "assumed_links": assumed_links,
        "device": known.device,
        "dtype": known.dtype,
        "local_solver": known.local_solver,
        "measured_ranks": known.ranks,
    }
    click.echo(json_line(report) if as_json else _table(report))


def _report(cells, ranks, ranks_per_node, iterations, problems, made) -> dict:
    """Collect what ``--json`` prints; pairs are x before y, as on the command line."""
    suggestion = asdict(made.suggestion)
    return {
        "cells": list(cells[::-1]),
        "ranks": ranks,
        "ranks_per_node": ranks_per_node,
        "iterations": iterations,
        "problems": problems,
        "dims": list(made.dims[::-1]),
        "subdomains_per_rank": {"least": made.subdomains[0], "most": made.subdomains[1]},
        "coarse_solve": "replicated" if made.replicated else "shared",
        "memory_bytes_per_rank": asdict(made.memory) | {"total": made.memory.total},
        "per_iteration": asdict(made.counts),
        "orders": [
            {
                "name": plan.order.name,
                "messages_leaving": plan.messages_leaving,
                "bytes_leaving": plan.bytes_leaving,
                "most_bytes_leaving_a_node": plan.most_bytes_leaving_a_node,
                "iteration": asdict(plan.iteration) | {"total": plan.iteration.total},
            }
            for plan in made.orders
        ],
        "best_order": made.best.order.name,
        "efficiency": made.efficiency,
        "seconds": asdict(made.cost) | {"total": made.cost.total},
        "suggestion": suggestion | {"dims": list(made.suggestion.dims[::-1])},
    }


def _table(report: dict) -> str:
    """Lay out a plan in lines and a table of the orders of the ranks."""
    lines = [
        _job(report),
        f"rates: {_origin(report['rates'])}",
        _memory(report["memory_bytes_per_rank"]),
        _counts(report["per_iteration"], report["coarse_solve"]),
        "",
        *_orders(report["orders"]),
        "",
        _seconds(report["seconds"], report["iterations"], report["efficiency"]),
        _suggestion(report["suggestion"], report["problems"]),
    ]
    return "\n".join(lines)


def _job(report: dict) -> str:
    (nx, ny), (px, py), owned = report["cells"], report["dims"], report["subdomains_per_rank"]
    ranks, nodes = report["ranks"], report["ranks_per_node"]
    return (
        f"{nx}x{ny} cells on {ranks} rank{'s' * (ranks > 1)} ({px}x{py}), {nodes} per node; "
        f"{owned['least']} to {owned['most']} subdomains per rank"
    )


def _memory(memory: dict) -> str:
    parts = ", ".join(f"{name} {size / _MIB:.1f}" for name, size in memory.items())
    return f"memory, MiB per rank: {parts}"


def _counts(counts: dict, coarse_solve: str) -> str:
    moved = "gathered" if coarse_solve == "replicated" else "redistributed"
    return (
        f"per iteration: {counts['messages']} messages, {counts['bytes']} bytes; of one rank at "
        f"most {counts['most_messages']} messages, {counts['most_bytes']} bytes; coarse solve "
        f"{coarse_solve}, {counts['gathered_bytes']} bytes {moved} per rank"
    )


def _seconds(seconds: dict, iterations: int, efficiency: float) -> str:
    steps = ", ".join(f"{name} {value:.3g}" for name, value in seconds.items() if name != "total")
    return (
        f"solve: {seconds['total']:.3g} s ({steps}; {iterations} iterations), parallel efficiency "
        f"of an iteration {efficiency:.0%}"
    )


def _origin(rates: dict) -> str:
    if rates["assumed"]:
        how = "ASSUMED from published figures"
    else:
        ranks = rates["measured_ranks"]
        how = f"measured on {ranks} rank{'s' * (ranks > 1)}"
    text = f"{rates['machine']}, {rates['dtype']}, {rates['local_solver']}, {how}"
    if rates["assumed_links"]:
        names = ", ".join(name.replace("_", " ") for name in rates["assumed_links"])
        text += f"; ASSUMED, not measured: {names}"
    return text


def _orders(orders: list[dict]) -> list[str]:
    """Return one row per order of the ranks; microseconds of an iteration."""
    header = ["rank order", "messages", "bytes", "of a node", "us/iteration"]
    steps = ("sweep", "coarse", "gather", "halo", "hidden")
    rows = [header + list(steps)]
    for order in orders:
        iteration = order["iteration"]
        rows.append(
            [
                order["name"],
                *(
                    str(order[key])
                    for key in ("messages_leaving", "bytes_leaving", "most_bytes_leaving_a_node")
                ),
                *(f"{1e6 * iteration[key]:.0f}" for key in ("total", *steps)),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return ["leaving a node per iteration, and time:", *lines]


def _suggestion(suggestion: dict, problems: int) -> str:
    px, py = suggestion["dims"]
    depths = ", ".join(
        f"{depth}: {1e6 * seconds:.0f}" for depth, seconds in suggestion["halo_seconds"].items()
    )
    text = (
        f"suggested: --dims {px}x{py}, rank order {suggestion['order']}, halo depth "
        f"{suggestion['halo']} (us/iteration by depth: {depths})"
    )
    if problems > 1:
        groups = suggestion["replicas"]
        text += (
            f", {groups} replica{'s' * (groups > 1)}: {problems} problems in "
            f"{suggestion['seconds']:.3g} s"
        )
    return text
