"""Effective conductivities of volumes of which others know them: time, memory and how far they are apart.

Usage: bench_effective.py [--taufactor FILE.npz] [--spe10 FILE.npz] [--ggg40 FILE.npz] [--ranks N]. The volume of 500 x 500 x 500 voxels on
which TauFactor, PuMA and PoreSpy were timed (bits ``conducts``), and the permeability of SPE10's second model (``kx``,
which is ``ky`` too, and ``kz``, in millidarcy; cells of 20 x 10 x 2 feet). A tomography of cast iron as a periodic cell
(``grey``: graphite 87, iron 182), whose conductivity by trilinear elements is known, another discretisation. Seconds are wall time from the array in memory
to the conductivity; *processor* is what all ranks took of it, less where others use the machine. Memory is the sum
over ranks of what a process held at its peak, Python and torch included. Every axis is a run of its own, and the
rows are written to ``benchmarks/effective.md``.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from ranks import on_ranks
from tables import publish, table

import mosaicdd as m
from mosaicdd.parallel.launcher import communicator
from mosaicdd.parallel.machine import peak_memory

# Published: tortuosity factors over-converged, permeabilities in millidarcy by two-point fluxes to a residual of 8e-11.
_KNOWN = {
    "taufactor": {"z": 4.2431, "y": 1.1513, "x": 1.3905},
    "spe10": {"z": 0.044344, "y": 58.798, "x": 68.253},
    "ggg40": {"x": 85.24927},
}


def main(arguments: argparse.Namespace) -> None:
    """Measure, a job for each row, and write the table."""
    if arguments.row:
        _measured(*arguments.row)
        return
    rows = []
    for case, known in _KNOWN.items():
        path = getattr(arguments, case)
        for axis in known if path else ():
            row = ["--row", case, axis, str(path)]
            result = json.loads(on_ranks(arguments.ranks, __file__, *row))
            value = result["tortuosity"] or result["conductivity"]
            rows.append(
                [
                    f"{case}, {axis}",
                    f"{known[axis]:.5g}",
                    f"{value:.6g}",
                    f"{abs(value / known[axis] - 1):.0e}",
                    f"{result['balance']:.0e}",
                    str(result["iterations"]),
                    f"{result['seconds']:.1f}",
                    f"{result['processor']:.1f}",
                    f"{result['gigabytes']:.1f}",
                ]
            )
            print(*rows[-1], flush=True)
    header = ["case", "known", "mosaicdd", "apart", "in and out apart", "iterations", "seconds"]
    said = (
        f"By `python scripts/bench_effective.py`, on {arguments.ranks} rank{'s' * (arguments.ranks > 1)}; its head says what is measured. "
        "Where *processor* is well below *seconds*, others had the cores. Known are tortuosity factors, millidarcy, and W/mK. "
        "Published seconds for the first volume, the mean of three axes on 32 cores: PuMA 1201, PoreSpy 540, TauFactor 447."
    )
    title = "Effective conductivities of volumes"
    publish("effective", title, said + "\n\n" + table([*header, "processor", "GB"], rows))


def _measured(case: str, axis: str, path: str) -> None:
    """Measure an axis of a volume, and print it."""
    ranks = m.Ranks.of(communicator())
    periodic = case == "ggg40"
    with np.load(path) as file:
        if periodic:
            medium, spacing = np.where(file["grey"] == 87, 129.0, 80.4), 1.0
        elif case == "taufactor":
            shape = tuple(file["shape"])
            bits = np.unpackbits(file["conducts"])[: np.prod(shape)]
            medium, spacing = bits.reshape(shape).view(bool), 1.0
        else:
            medium = {"x": file["kx"], "z": file["kz"]}
            medium["y"], spacing = medium["x"], (2.0, 10.0, 20.0)
    ranks.barrier()
    begun, before = time.perf_counter(), time.process_time()
    along = m.effective(medium, spacing, axis=axis, periodic=periodic, ranks=ranks)[axis]
    seconds = time.perf_counter() - begun
    (processor,) = ranks.sum(np.array([time.process_time() - before]))
    memory = peak_memory(ranks)
    if not along.converged:
        raise SystemExit(str(along))
    row = {name: getattr(along, name) for name in ("conductivity", "tortuosity", "balance")}
    row |= {"iterations": along.iterations, "seconds": seconds, "processor": processor}
    if ranks.is_root:
        print(json.dumps(row | {"gigabytes": memory / 1e9}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--taufactor", type=Path)
    parser.add_argument("--spe10", type=Path)
    parser.add_argument("--ggg40", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    main(parser.parse_args())
