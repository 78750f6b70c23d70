"""The plan against the clock: an iteration and a whole solve on 1 and 2 ranks.

In every round ``mosaicdd bench`` measures the rates and ``mosaicdd solve`` solves; the fastest of
all rounds count, of the rates and of the solves alike, so that what else runs on the machine for a
while does not. Of writing the medians count, and every solve writes a file of its own: into pages
that the system has just got back one writes faster. What ``mosaicdd plan`` says of the same job from
these rates stands beside.

Usage: bench_plan.py [ROUNDS]
"""

import sys
from dataclasses import replace
from statistics import median
from tempfile import TemporaryDirectory

from ranks import mosaicdd
from tables import publish, table

from mosaicdd.planning.rates import Curve, Link, Rates, read_rates, write_rates

_CELLS = (2048, 4096)
_RANKS = (1, 2)
_STEPS = {"estimate": "estimate", "fill": "assemble", "write": "write", "whole solve": "total"}


def main(rounds: int) -> None:
    """Measure and plan, print the table and write it to ``benchmarks/``."""
    rows = []
    for ranks in _RANKS:
        rates, solves = [], {cells: [] for cells in _CELLS}
        with TemporaryDirectory() as folder:
            file = f"{folder}/rates.json"
            for number in range(rounds):
                mosaicdd(ranks, "bench", "-o", file)
                rates.append(read_rates(file))
                for cells, runs in solves.items():
                    job = ("--cells", f"{cells}x{cells}")
                    out = f"{folder}/{cells}-{number}.h5"
                    runs.append(mosaicdd(ranks, "solve", "-o", out, *job))
            write_rates(file, fastest(rates))
            for cells, runs in solves.items():
                rows += _rows(ranks, cells, runs, file)
    header = ["cells", "ranks", "", "planned", "measured", "ratio"]
    note = (
        f"Milliseconds, the fastest of {rounds} rounds, of writing the median (float64, from the set-up "
        "to the written file); the rates are of as many ranks working at the same time. Memory in MiB, the mean of "
        "the ranks."
    )
    text = f"{table(header, rows)}\n\n{note}"
    publish("plan_check", "What was planned and what was measured", text)


def fastest(measured: list[Rates]) -> Rates:
    """Return of every rate the fastest of several measurements."""
    best = {}
    for name, value in vars(measured[0]).items():
        values = [getattr(rates, name) for rates in measured]
        if isinstance(value, Curve):
            best[name] = Curve(value.amounts, tuple(map(min, *(v.seconds for v in values))))
        elif isinstance(value, Link):
            best[name] = Link(min(v.latency for v in values), max(v.bandwidth for v in values))
    best["copy"] = max(rates.copy for rates in measured)
    best["write"] = median(rates.write for rates in measured)
    return replace(measured[0], pack=min(rates.pack for rates in measured), **best)


def _rows(ranks: int, cells: int, runs: list[dict], rates: str) -> list[list[str]]:
    """Return the rows of one job."""
    size, iterations = f"{cells}x{cells}", runs[0]["iterations"]
    job = ("--cells", size, "--ranks", str(ranks), "--iterations", str(iterations))
    dims = ("--dims", "x".join(map(str, runs[0]["dims"])))
    plan = mosaicdd(1, "plan", *job, *dims, "--rates", rates)
    planned, memory = plan["seconds"], plan["memory_bytes_per_rank"]["total"]
    planned |= {"whole solve": planned["total"]}
    seconds = [run["seconds"] for run in runs]
    each = [s["iterate"] / iterations for s in seconds]
    pairs = {"iteration": (1e3 * planned["iterate"] / iterations, 1e3 * min(each))}
    for name, step in _STEPS.items():
        best = median if name == "write" else min
        pairs[name] = 1e3 * planned[name], 1e3 * best(s[step] for s in seconds)
    pairs["memory"] = memory / 2**20, runs[0]["peak_memory_bytes"] / ranks / 2**20
    return [
        [size, str(ranks), name, f"{p:.2f}", f"{m:.2f}", f"{p / m:.2f}"]
        for name, (p, m) in pairs.items()
    ]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
