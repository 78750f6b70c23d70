"""What ``plan`` prints for people."""

_MIB = 2**20


def plan_table(report: dict) -> str:
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
