"""The mosaic of SPE10's layers on a large grid, from a file, or a smooth medium in a large box: seconds and memory.

``mosaicdd solve`` as a user starts it, with a constant source and to a relative residual of 1e-8; the
field streams to a file. The memory is the peak of all ranks, whole processes; *times* compares set-up,
iteration and fill with those of the first row.

Usage: bench_fields_large.py SPE10.npz [CELLS [RANKS ..]] (by default 8192 on 2 ranks); with ``smooth`` in the place of
the file a box of so many cells along each axis, of contrast 10,000 by an expression, and zero on all faces.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from media import spe10
from ranks import mosaicdd
from tables import publish, table

_SMOOTH = "smooth"
_MEDIUM = "expr:100**(sin(13*x+2*y)*cos(9*y-3*z)*sin(11*z+x))"


def main(path: str, cells: int, counts: list[int]) -> None:
    """Solve on each number of ranks, print the table and write it to ``benchmarks/``."""
    rows: list[list[str]] = []
    first, box = 0.0, path == _SMOOTH
    size = (cells,) * (3 if box else 2)
    with tempfile.TemporaryDirectory() as folder:
        medium, output = Path(folder) / "a.npy", Path(folder) / "out.h5"
        if not box:
            np.save(medium, spe10((cells + 1, cells + 1), Path(path)))
        for ranks in counts:
            start = time.perf_counter()
            options = ["--pde", "diffusion", "--field", f"a={_MEDIUM if box else medium}"]
            options += ["--field", "f=1", "--boundary", "0" if box else "gp:seed=0"]
            options += ["--spacing", str(1 / cells)] if box else []
            shape = ["--cells", "x".join(map(str, size)), "--rtol", "1e-8"]
            report = mosaicdd(ranks, "solve", "-o", str(output), *shape, *options)
            seconds = time.perf_counter() - start
            output.unlink()
            spent, peak = report["seconds"], report["peak_memory_bytes"]
            work = sum(spent[part] for part in ("setup", "iterate", "assemble"))
            first = first or work
            rows.append(
                [
                    str(ranks),
                    str(report["iterations"]),
                    f"{report['discrete_residual']:.1e}",
                    *(f"{spent[part]:.1f}" for part in ("setup", "iterate", "assemble", "write")),
                    f"{first / work:.2f}",
                    f"{seconds:.1f}",
                    f"{peak / 1e9:.2f}",
                    f"{peak / (cells + 1) ** len(size):.0f}",
                ]
            )
    header = ["ranks", "iterations", "residual", "set-up", "iterate", "fill", "write", "times"]
    text = table([*header, "whole command, s", "GB", "B per node"], rows)
    note = "By `python scripts/bench_fields_large.py`; its head says what is measured."
    title = " x ".join(map(str, size))
    title = f"A smooth medium, {title}" if box else f"SPE10 mosaic, {title}"
    publish(f"fields_{'box_' * box}{cells}", title, f"{note}\n\n{text}")


if __name__ == "__main__":
    arguments = sys.argv[2:]
    main(sys.argv[1], int((arguments or ["8192"])[0]), [int(n) for n in arguments[1:] or ["2"]])
