"""Poisson's equation with a source from a file of node values, which no rank reads whole.

Usage: bench_source.py [CELLS [RANKS]] (by default 4096 and 2). Writes the file, runs ``mosaicdd solve``
under mpiexec, marks the values that each rank reads of it, and writes ``benchmarks/source.md``.
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
import json, sys
import numpy as np
from mosaicdd.cli.main import main
from mosaicdd.storage.field_file import FieldFile

read, bytes_read, whole = None, 0, FieldFile.__getitem__

def counted(file, place):
    global read, bytes_read
    values = whole(file, place)
    read = np.zeros(file.shape[-2:], bool) if read is None else read
    read[place[-2:]] = True
    bytes_read += values.nbytes
    return values

FieldFile.__getitem__ = counted
try:
    main()
finally:
    sys.stderr.write("READ " + json.dumps([float(read.mean()), bytes_read]) + "\\n")
"""


def main(cells: int, ranks: int) -> None:
    """Run, print and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.h5"
        size = _write(path, cells)
        report, read = _solve(folder, cells, ranks, ["--field", f"f={path}:/f"])
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
        ["part of the file that a rank reads", ", ".join(f"{part:.3f}" for part, _ in read)],
        ["times that it reads it", ", ".join(f"{n / size / part:.1f}" for part, n in read)],
    ]
    text = table([f"Poisson, {cells} x {cells}, {ranks} ranks", ""], rows)
    print(text)
    (BENCHMARKS / "source.md").write_text(
        f"# A source from a file\n\n{hardware()}\n\nBy `python scripts/bench_source.py {cells} {ranks}`. "
        "The source is checked first, and read again for the lines, for the fill and for the residual, "
        f"each time a rank's part of it.\n\n{text}\n"
    )


def _write(path: Path, cells: int) -> int:
    """Write the source, strip by strip; return its bytes."""
    x = np.arange(cells + 1) / 64
    with h5py.File(path, "w") as file:
        f = file.create_dataset("f", (cells + 1, cells + 1), "f4")
        for start in range(0, cells + 1, 256):
            y = np.arange(start, min(start + 256, cells + 1))[:, None] / 64
            f[start : start + len(y)] = np.sin(3 * x) * np.cos(2 * y) + np.sign(np.sin(x * y))
        return f.size * f.dtype.itemsize


def _solve(folder: str, cells: int, ranks: int, more: list[str]) -> tuple[dict, list]:
    """Return the report of a solve; and of each rank, the part of the file it read and the bytes."""
    beside = Path(sys.executable).with_name("mpiexec")
    command = [str(beside) if beside.exists() else "mpiexec", "-n", str(ranks)]
    command += [sys.executable, "-c", _COUNTING, "solve", "-o", f"{folder}/out.h5", "--json"]
    command += ["--pde", "poisson", "--boundary", "gp:seed=0", "--cells", f"{cells}x{cells}", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    read = [json.loads(line[5:]) for line in ended.stderr.splitlines() if line.startswith("READ ")]
    return json.loads(ended.stdout), read


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[1:]]
    main(*(numbers + [4096, 2][len(numbers) :]))
