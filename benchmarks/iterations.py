"""Iterations of the paper's job on 1 to 32 ranks, after its Table 4.

2048 x 2048 to a mean absolute error of 0.05 on the interface, with one level (the paper's four phases,
exchanged once per iteration or after every phase) and with two. More ranks than cores are fine: only
iterations are counted. Counts that are there stay as they are, but for those of ranks that are asked for
with ``--anew``.
"""

import itertools

from common import PAPER, in_process, publish, read_csv, table, write_csv

import mosaicdd as m
from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.launcher import communicator
from mosaicdd.problems.sides.boundary import Boundary

_PAPER = {1: 3200, 2: 3250, 4: 3250, 8: 3300, 16: 3400, 32: 3500}
_METHODS = {
    "four phases, one exchange per iteration": {"levels": 1, "sweep": "phases"},
    "four phases, an exchange after each": {"levels": 1, "sweep": "phases", "sync": "phase"},
    "two levels": {"levels": 2},
}

SMALL = {"cells": 128, "ranks": [1, 2]}


def main(*, cells: int = 2048, ranks: list[int] = tuple(_PAPER), anew: bool = False) -> None:
    """Solve with each method on each number of ranks, print the table and write it."""
    every: dict[tuple[int, str], int] = {}
    if (PAPER / "table4.csv").exists():
        kept = [row for row in read_csv("table4") if row["cells"] == str(cells)]
        every = {(int(row["ranks"]), row["method"]): int(row["iterations"]) for row in kept}
    for size, method in itertools.product(ranks, _METHODS):
        if anew or (size, method) not in every:
            every[size, method] = in_process(_iterations, cells, method, ranks=size)
            rows = [[cells, *key, count] for key, count in sorted(every.items())]
            write_csv("table4", ["cells", "ranks", "method", "iterations"], rows)
    _publish(cells, every)


def _publish(cells: int, every: dict[tuple[int, str], int]) -> None:
    used = sorted({ranks for ranks, _ in every})
    paper = [_PAPER[ranks] for ranks in used]
    table4 = [["the paper", *map(str, paper), _growth(paper)]] if cells == 2048 else []
    for method in _METHODS:
        counts = [every.get((ranks, method)) for ranks in used]
        table4.append([method, *(str(count or "-") for count in counts), _growth(counts)])
        if "phases" in method:
            phases = (str(4 * count) if count else "-" for count in counts)
            table4.append(["... in phases", *phases, ""])
    text = (
        f"The shipped linear network, float64, {cells} x {cells} until the MAE of the interface "
        f"against the fast sine transform is 0.05; *growth*: from the first column to the last.\n\n"
        f"{table(['ranks', *map(str, used), 'growth'], table4)}\n\n"
        "The boundary data are not the paper's, which are not published. Its iteration may be one phase "
        "or all four."
    )
    publish("iterations", "Iterations against the number of ranks", text)


def _growth(counts: list[int | None]) -> str:
    known = [count for count in counts if count]
    return f"{100 * (known[-1] / known[0] - 1):.1f} %"


def _iterations(cells: int, method: str) -> int:
    """Solve on the ranks of this job; return the iterations."""
    boundary = Boundary.of_gaussian_process(Grid((cells, cells), 0.5 / 32), seed=0)
    problem = m.Problem((cells, cells), "laplace", sides=boundary)
    settings = m.SolveSettings(until_mae=0.05, **_METHODS[method])
    ranks = m.Ranks.of(communicator())
    with m.Solver(problem, "laplace", ranks=ranks, settings=settings, keep="interface") as solver:
        return solver().iterations
