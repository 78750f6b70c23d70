"""What a plan and measured rates say: to programs as plain values, to people in lines."""

from dataclasses import asdict

from mosaicdd.planning.medium import MediumPlan
from mosaicdd.planning.plan import Job, Plan

_MIB = 2**20


def plan_report(job: Job, made: Plan) -> dict:
    """Return all that a plan says, as plain values; pairs are x before y."""
    suggestion = asdict(made.suggestion)
    return _report_of(job, made) | {
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
        "cells": list(job.lattice.grid.shape[::-1]),
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "iterations": job.iterations,
        "problems": job.problems,
        "dims": list(made.dims[::-1]),
        "subdomains_per_rank": {"least": made.subdomains[0], "most": made.subdomains[1]},
        "memory_bytes_per_rank": made.memory.figures,
        "seconds": made.cost.figures,
    }


def plan_text(report: dict) -> str:
    """Lay out the report of a plan, with its rates, in lines and a table of the orders of the ranks."""
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


def medium_report(job: Job, made: MediumPlan) -> dict:
    """Return all that a plan in a medium says, as plain values; pairs are x before y."""
    more = job.problems - 1
    return _report_of(job, made) | {
        "coarse_unknowns": made.coarse_unknowns,
        "per_iteration": {
            "messages": made.messages,
            "bytes": made.bytes,
            "gathered_bytes": made.gathered_bytes,
        },
        "iteration": made.iteration | {"total": sum(made.iteration.values())},
        "seconds_again": made.again,
        "seconds_of_all_problems": made.cost.total + more * (made.again + made.cost.write),
    }


def medium_text(report: dict) -> str:
    """Lay out the report of a plan in a medium, with its rates, in lines."""
    counts, seconds = report["per_iteration"], report["seconds"]
    steps = ", ".join(f"{name} {value:.3g}" for name, value in seconds.items() if name != "total")
    parts = ", ".join(f"{name} {1e3 * value:.3g}" for name, value in report["iteration"].items())
    lines = [
        f"{_job(report)}, a medium",
        f"rates: {_origin(report['rates'])}",
        _memory(report["memory_bytes_per_rank"]),
        (
            f"per iteration: {counts['messages']} messages, {counts['bytes']} bytes; coarse problem of "
            f"{report['coarse_unknowns']} unknowns on one rank of every machine, {counts['gathered_bytes']} bytes gathered"
        ),
        f"iteration, ms: {parts}",
        (
            f"solve: {seconds['total']:.3g} s ({steps}; {report['iterations']} iterations); another "
            f"source or other sides in the same medium: {report['seconds_again']:.3g} s, and writing"
        ),
    ]
    if report["problems"] > 1:
        lines.append(
            f"{report['problems']} problems one by one: {report['seconds_of_all_problems']:.3g} s"
        )
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
    medium = rates["medium"]
    if medium is not None:
        largest = medium["sweep"]["amounts"][-1]
        planned, swept = (largest / medium[name]["seconds"][-1] for name in ("setup", "sweep"))
        lines.append(
            f"in a medium, {largest:.0f} subdomains per rank: {planned:.3g} planned and {swept:.3g} "
            f"swept per second, {medium['bytes_per_subdomain'] / 1024:.0f} KiB each"
        )
    return "\n".join(lines)
