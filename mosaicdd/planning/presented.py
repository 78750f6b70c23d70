"""What a plan and measured rates say: to programs as plain values, to people in lines."""

from dataclasses import asdict

from mosaicdd.lattice.axes import letters, times
from mosaicdd.planning.medium import MediumPlan
from mosaicdd.planning.plan import Job, Plan

_MIB = 2**20


def plan_report(job: Job, made: Plan) -> dict:
    """Return all that a plan says, as plain values; pairs are x before y."""
    suggestion = asdict(made.suggestion)
    return _report_of(job, made) | {
        "subdomains_per_rank": {"least": made.subdomains[0], "most": made.subdomains[1]},
        "coarse_solve": "replicated" if made.replicated else "shared",
        "per_iteration": asdict(made.counts),
        "orders": [
            {
                "name": plan.order.name,
                "messages_leaving": plan.messages_leaving,
                "bytes_leaving": plan.bytes_leaving,
                "most_bytes_leaving_a_node": plan.most_bytes_leaving_a_node,
                "iteration": plan.iteration.figures,
            }
            for plan in made.orders
        ],
        "best_order": made.best.order.name,
        "efficiency": made.efficiency,
        "suggestion": suggestion | {"dims": list(made.suggestion.dims[::-1])},
    }


def _report_of(job: Job, made: Plan | MediumPlan) -> dict:
    """Return what the reports of all plans say."""
    return {
        "cells": list(job.grid.shape[::-1]),
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "iterations": job.iterations,
        "problems": job.problems,
        "dims": list(made.dims[::-1]),
        "memory_bytes_per_rank": made.memory.figures,
        "seconds": made.cost.figures,
    }


def plan_text(report: dict) -> str:
    """Lay out the report of a plan, with its rates, in lines and a table of the orders of the ranks."""
    owned = report["subdomains_per_rank"]
    lines = [
        f"{_job(report)}; {owned['least']} to {owned['most']} subdomains per rank",
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


def medium_report(job: Job, made: MediumPlan) -> dict:
    """Return all that a plan in a medium says, as plain values; pairs are x before y."""
    more = job.problems - 1
    return _report_of(job, made) | {
        "levels": [asdict(level) for level in made.levels],
        "per_iteration": {
            "messages": made.messages,
            "bytes": made.bytes,
            "gathered_bytes": made.gathered_bytes,
        },
        "iteration": made.iteration | {"total": sum(made.iteration.values())},
        "efficiency": made.efficiency,
        "memory_over_share": made.memory_over_share,
        "seconds_again": made.again,
        "seconds_of_all_problems": made.cost.total + more * (made.again + made.cost.write),
    }


def medium_text(report: dict) -> str:
    """Lay out the report of a plan in a medium, with its rates, in lines."""
    counts, levels = report["per_iteration"], report["levels"]
    parts = ", ".join(f"{name} {1e3 * value:.3g}" for name, value in report["iteration"].items())
    shared = f"{len(levels) - 1} levels shared out, one of {levels[-1]['nodes']} nodes on each rank"
    lines = [
        f"{_job(report)}, a medium",
        f"rates: {_origin(report['rates'])}",
        f"{_memory(report['memory_bytes_per_rank'])}; levels {report['memory_over_share']:.2f} of an even share",
        (
            f"per iteration: {counts['messages']} messages, {counts['bytes']} bytes; "
            f"{shared if report['ranks'] > 1 else 'all levels on one rank'}, {counts['gathered_bytes']} bytes summed"
        ),
        f"iteration, ms: {parts}",
        _seconds(report["seconds"], report["iterations"], report["efficiency"]),
        f"another source or other sides in the same medium: {report['seconds_again']:.3g} s, and writing",
    ]
    if "bytes_by_transforms" in report:
        mebibytes = report["bytes_by_transforms"] / _MIB
        lines.append(
            f"where coefficients are numbers: one solve by transforms in less time, {mebibytes:.1f} MiB per rank"
        )
    if report["problems"] > 1:
        lines.append(
            f"{report['problems']} problems one by one: {report['seconds_of_all_problems']:.3g} s"
        )
    return "\n".join(lines)


def _job(report: dict) -> str:
    cells, dims = (times(report[name][::-1]) for name in ("cells", "dims"))
    ranks, nodes = report["ranks"], report["ranks_per_node"]
    return f"{cells} cells on {ranks} rank{'s' * (ranks > 1)} ({dims}), {nodes} per node"


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
    dims = times(suggestion["dims"][::-1])
    depths = ", ".join(
        f"{depth}: {1e6 * seconds:.0f}" for depth, seconds in suggestion["halo_seconds"].items()
    )
    text = (
        f"suggested: --dims {dims}, rank order {suggestion['order']}, halo depth "
        f"{suggestion['halo']} (us/iteration by depth: {depths})"
    )
    if problems > 1:
        groups = suggestion["replicas"]
        text += (
            f", {groups} replica{'s' * (groups > 1)}: {problems} problems in "
            f"{suggestion['seconds']:.3g} s"
        )
    return text


def rates_text(rates: dict) -> str:
    """Say in a few lines what was measured."""
    ranks, largest = rates["ranks"], rates["sweep"]["amounts"][-1]
    swept, filled = (largest / rates[name]["seconds"][-1] for name in ("sweep", "fill"))
    what = f"{rates['machine']}, {rates['local_solver']}, {rates['dtype']} on {rates['device']}"
    lines = [
        f"{what}, {ranks} rank{'s' * (ranks > 1)} at the same time",
        f"{largest:.0f} subdomains per rank: {swept:.3g} swept and {filled:.3g} filled per second",
        f"vector operations {rates['copy'] / 1e9:.1f} GB/s, file {rates['write'] / 1e6:.0f} MB/s",
    ]
    for name in ("within_node", "between_nodes", "gather"):
        link = rates[name]
        text = "not measured with these ranks"
        if link is not None:
            text = f"{1e6 * link['latency']:.1f} us, {link['bandwidth'] / 1e9:.2f} GB/s"
        lines.append(f"{name.replace('_', ' ')}: {text}")
    for medium in rates["media"]:
        nodes = medium["iteration"]["amounts"][-1]
        setup, iteration = (
            1e9 * medium[name]["seconds"][-1] / nodes for name in ("setup", "iteration")
        )
        lines.append(
            f"a medium on {nodes:.0f} nodes, {letters(medium['axes'])[::-1]}: {setup:.0f} ns per node to plan, "
            f"{iteration:.1f} per iteration"
        )
    return "\n".join(lines)
