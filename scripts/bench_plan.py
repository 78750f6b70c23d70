"""The plan against the clock: an iteration and a whole solve on 1 and 2 ranks.

For each number of ranks, ``mosaicdd bench`` measures the rates, ``mosaicdd solve`` solves, and what
``mosaicdd plan`` says of the same job from these rates stands beside it.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tables import publish, table

_CELLS = (2048, 4096)
_RANKS = (1, 2)
_RUNS = 5
_STEPS = {"estimate": "estimate", "fill": "assemble", "write": "write"}


def main() -> None:
    """Measure and plan, print the table and write it to ``benchmarks/``."""
    rows = []
    with TemporaryDirectory() as folder:
        for ranks in _RANKS:
            rates = Path(folder) / f"rates{ranks}.json"
            _mosaicdd(ranks, "bench", "-o", str(rates), "--json")
            for cells in _CELLS:
                rows += _rows(ranks, cells, rates)
    header = ["cells", "ranks", "", "planned", "measured", "ratio"]
    note = (
        f"Milliseconds, the fastest of {_RUNS} solves (12 iterations, float64, from the set-up to "
        "the written file); the rates are of as many ranks working at the same time. Memory in MiB, "
        "the mean of the ranks."
    )
    publish(
        "plan_check", "What was planned and what was measured", f"{table(header, rows)}\n\n{note}"
    )


def _rows(ranks: int, cells: int, rates: Path) -> list[list[str]]:
    """Return the rows of one job."""
    size = f"{cells}x{cells}"
    with TemporaryDirectory() as folder:
        solve = ("solve", "-o", f"{folder}/out.h5", "--cells", size, "--json")
        runs = [_mosaicdd(ranks, *solve) for _ in range(_RUNS)]
    iterations, dims = runs[0]["iterations"], "x".join(map(str, runs[0]["dims"]))
    job = ("--cells", size, "--ranks", str(ranks), "--dims", dims, "--iterations", str(iterations))
    plan = _mosaicdd(1, "plan", *job, "--rates", str(rates), "--json")
    planned, measured = plan["seconds"], [run["seconds"] for run in runs]
    pairs = {
        "iteration": (
            planned["iterate"] / iterations,
            min(s["iterate"] for s in measured) / iterations,
        )
    }
    for name, step in _STEPS.items():
        pairs[name] = planned[name], min(s[step] for s in measured)
    pairs["whole solve"] = planned["total"], min(s["total"] for s in measured)
    rows = [
        [size, str(ranks), name, f"{1e3 * p:.2f}", f"{1e3 * m:.2f}", f"{p / m:.2f}"]
        for name, (p, m) in pairs.items()
    ]
    needed = plan["memory_bytes_per_rank"]["total"] / 2**20
    peak = runs[0]["peak_memory_bytes"] / ranks / 2**20
    rows.append(
        [size, str(ranks), "memory", f"{needed:.0f}", f"{peak:.0f}", f"{needed / peak:.2f}"]
    )
    return rows


def _mosaicdd(ranks: int, *arguments: str) -> dict:
    """Run a command on so many ranks; return the JSON that it prints."""
    command = [sys.executable, "-m", "mosaicdd.cli.main", *arguments]
    launched = ["mpiexec", "-n", str(ranks), *command] if ranks > 1 else command
    ended = subprocess.run(launched, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout)


if __name__ == "__main__":
    main()
