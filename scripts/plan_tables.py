"""Plans for machines one does not have: up to 1024 ranks.

Usage: plan_tables.py [RATES.json]; the rates of the CPU, by default those of the package.
"""

import sys
from collections.abc import Iterable

from tables import publish, table

from mosaicdd import Domain, Problem
from mosaicdd.lattice.axes import times
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.exact import nodes_of_media
from mosaicdd.planning.medium import plan_medium
from mosaicdd.planning.plan import Job, Plan, make_plan
from mosaicdd.planning.rates import CompleteRates, Rates, completed, rates_of_name

_RANKS = (1, 4, 16, 64, 256, 1024)
_CORES_PER_NODE = 64
_COLUMNS = (
    "Columns: microseconds of an iteration and their parts (`hidden`: of the halo exchange, under "
    "the sweep); messages and megabytes of an iteration over all ranks, and what leaves the nodes in "
    "row-wise order and in bricks; MiB per rank; the suggested depth of the halo; seconds of a solve."
)
_MEDIA = (
    *(((4096, 4096), ranks) for ranks in (1, 4, 16, 64)),
    ((32768, 32768), 1024),
    *(((512, 512, 512), ranks) for ranks in (1, 2, 8, 64)),
    ((2048, 2048, 2048), 1024),
)
_MEDIA_COLUMNS = (
    "Columns: milliseconds of an iteration and their parts; how much of its ranks an iteration uses; messages and "
    "megabytes of an iteration over all ranks; MiB of the rank that needs most, and what its levels take over an even "
    "share; seconds of a solve of 12 iterations without writing, and of a further one in the same medium."
)


def main(name: str) -> None:
    """Plan everything, print the tables and write them to ``benchmarks/``."""
    cpu, links = completed(rates_of_name(name, "float64"))
    weak = [(1024 * round(ranks**0.5), ranks) for ranks in _RANKS]
    sections = [
        f"## Weak scaling, 1024 x 1024 per rank, {_CORES_PER_NODE} ranks per node (CPU)",
        _table(weak, cpu, weak=True),
        f"## Strong scaling of 16384 x 16384, {_CORES_PER_NODE} ranks per node (CPU)",
        _table([(16384, ranks) for ranks in _RANKS], cpu),
        _about_the_cpu(cpu, links),
        _COLUMNS,
        f"## Media by multigrid, {_CORES_PER_NODE} ranks per node (CPU)",
        _media(cpu),
        _MEDIA_COLUMNS,
    ]
    publish("plan", "Plans for up to 1024 ranks", "\n\n".join(sections))


def _about_the_cpu(cpu: Rates, links: list[str]) -> str:
    assumed = ", ".join(link.replace("_", " ") for link in links) or "nothing"
    return (
        f"CPU: {cpu.machine}, measured with {cpu.ranks} ranks working at the same time; assumed, "
        f"not measured: {assumed}. A node full of ranks may leave each of them less of the memory's "
        "bandwidth than it had in the measurement."
    )


def _table(jobs: Iterable[tuple[int, int]], rates: Rates, *, weak: bool = False) -> str:
    """Plan jobs of so many cells per side on so many ranks."""
    header = ["cells", "ranks", "dims", "us/iteration", "sweep", "coarse", "gather", "halo"]
    header += ["hidden", "efficiency", "messages", "MB", "MB leaving, row-wise", "bricks"]
    header += ["MiB per rank", "halo depth", "solve, s"]
    rows, first = [], None
    for cells, ranks in jobs:
        made = _plan(cells, ranks, rates)
        total = made.best.iteration.total
        first = first or total
        efficiency = first / total if weak else made.efficiency
        rows.append(_row(cells, ranks, made, efficiency))
    return table(header, rows)


def _media(rates: CompleteRates) -> str:
    """Plan solves in media."""
    header = ["cells", "ranks", "dims", "ms/iteration", "levels", "halo", "sums", "efficiency"]
    header += ["messages", "MB", "MiB per rank", "of a share", "solve, s", "again, s"]
    rows = []
    for cells, ranks in _MEDIA:
        problem = Problem(Domain(cells), "diffusion", {"a": 1.0})
        lattice = nodes_of_media(problem, problem.domain.grid())
        made = plan_medium(Job(lattice, ranks, _CORES_PER_NODE, 12), rates)
        parts = made.iteration
        rows.append(
            [
                times(cells),
                f"{ranks}",
                times(made.dims),
                *(f"{1e3 * value:.3g}" for value in (sum(parts.values()), *parts.values())),
                f"{made.efficiency:.0%}",
                f"{made.messages}",
                f"{made.bytes / 1e6:.2f}",
                f"{made.memory.total / 2**20:.0f}",
                f"{made.memory_over_share:.2f}",
                f"{made.cost.total - made.cost.write:.2f}",
                f"{made.again:.2f}",
            ]
        )
    return table(header, rows)


def _plan(cells: int, ranks: int, rates: Rates) -> Plan:
    subdomain = Subdomain()
    lattice = Lattice(Grid((cells, cells), subdomain.spacing), subdomain)
    return make_plan(Job(lattice, ranks, _CORES_PER_NODE), rates)


def _row(cells: int, ranks: int, made: Plan, efficiency: float) -> list[str]:
    iteration, (rows, bricks) = made.best.iteration, made.orders
    parts = ("total", "sweep", "coarse", "gather", "halo", "hidden")
    return [
        f"{cells}",
        f"{ranks}",
        f"{made.dims[1]}x{made.dims[0]}",
        *(f"{1e6 * getattr(iteration, part):.0f}" for part in parts),
        f"{efficiency:.0%}",
        f"{made.counts.messages}",
        f"{made.counts.bytes / 1e6:.2f}",
        f"{rows.bytes_leaving / 1e6:.2f}",
        f"{bricks.bytes_leaving / 1e6:.2f}",
        f"{made.memory.total / 2**20:.0f}",
        f"{made.suggestion.halo}",
        f"{made.cost.total:.2f}",
    ]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "default")
