"""Poisson's equation with a source from a file of node values, which no rank reads whole.

Usage: bench_source.py [CELLS [RANKS]] (by default 4096 and 2). Writes the file, runs ``mosaicdd solve``
under mpiexec, counts what each rank read of it (``rchar`` of /proc, less that of a solve without a
source), and writes ``benchmarks/source.md``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from tables import BENCHMARKS, hardware, table

_COUNTING = """
import sys
from mosaicdd.cli.main import main
try:
    main()
finally:
    facts = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    sys.stderr.write("READ " + facts["rchar"] + "\\n")
"""


def main(cells: int, ranks: int) -> None:
    """Run, print and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.h5"
        size = _write(path, cells)
        report, read = _solve(folder, cells, ranks, ["--field", f"f={path}:/f"])
        _, without = _solve(folder, cells, ranks, [])
    shares = [(a - b) / size for a, b in zip(sorted(read), sorted(without), strict=True)]
    seconds = report["seconds"]
    rows = [
        ["status, iterations", f"{report['status']}, {report['iterations']}"],
        ["discrete residual", f"{report['discrete_residual']:.1e}"],
        ["error estimate", f"{report['error_estimate']:.1e}"],
        ["seconds in all", f"{seconds['total']:.1f}"],
        [
            ", ".join(name for name in seconds if name != "total"),
            ", ".join(f"{value:.2f}" for name, value in seconds.items() if name != "total"),
        ],
        ["memory of all ranks, MiB", f"{report['peak_memory_bytes'] / 2**20:.0f}"],
        ["file, MiB", f"{size / 2**20:.0f}"],
        ["read by each rank, of the file", ", ".join(f"{share:.2f}" for share in shares)],
    ]
    text = table([f"Poisson, {cells} x {cells}, {ranks} ranks", ""], rows)
    print(text)
    (BENCHMARKS / "source.md").write_text(
        f"# A source from a file\n\n{hardware()}\n\nBy `python scripts/bench_source.py {cells} {ranks}`. "
        "The source is read for the lines, for the fill and for the residual; a rank reads its part "
        f"each time.\n\n{text}\n"
    )


def _write(path: Path, cells: int) -> int:
    """Write the source, strip by strip; return its bytes."""
    x = np.arange(cells + 1) / 64
    with h5py.File(path, "w") as file:
        f = file.create_dataset("f", (cells + 1, cells + 1))
        for start in range(0, cells + 1, 256):
            y = np.arange(start, min(start + 256, cells + 1))[:, None] / 64
            f[start : start + len(y)] = np.sin(3 * x) * np.cos(2 * y) + np.sign(np.sin(x * y))
        return f.size * f.dtype.itemsize


def _solve(folder: str, cells: int, ranks: int, more: list[str]) -> tuple[dict, list[int]]:
    """Return the report of a solve, and the bytes that each rank read."""
    beside = Path(sys.executable).with_name("mpiexec")
    command = [str(beside) if beside.exists() else "mpiexec", "-n", str(ranks)]
    command += [sys.executable, "-c", _COUNTING, "solve", "-o", f"{folder}/out.h5", "--json"]
    command += ["--pde", "poisson", "--cells", f"{cells}x{cells}", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    read = [int(line[5:]) for line in ended.stderr.splitlines() if line.startswith("READ ")]
    return json.loads(ended.stdout), read


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[1:]]
    main(*(given + [4096, 2][len(given) :]))
