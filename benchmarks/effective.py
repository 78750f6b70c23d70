"""Effective conductivities of volumes of which others know them: time, memory and how far they are apart.

Each volume is in a file of arrays. That of 500 x 500 x 500 voxels on
which TauFactor, PuMA and PoreSpy were timed (bits ``conducts``), and the permeability of SPE10's second model (``kx``,
which is ``ky`` too, and ``kz``, in millidarcy; cells of 20 x 10 x 2 feet). A tomography of cast iron as a periodic cell
(``grey``: graphite 87, iron 182), whose conductivity by trilinear elements is known, another discretisation. Seconds are wall time from the array in memory
to the conductivity; *processor* is what all ranks took of it, less where others use the machine. Memory is the sum
over ranks of what a process held at its peak, Python and torch included. Every axis is a run of its own, and the
rows are written to ``benchmarks/effective.md``. SPE10's model is solved by BoomerAMG, too, in one thread, by both tunings of
`petsc_solve` and to a relative residual of 1e-8; its seconds are those of the processor, without those that make the matrix,
and its memory is what it took beyond that.
"""

import time
from pathlib import Path

import numpy as np
import scipy.sparse
from common import in_process, publish, table
from peers import by_petsc

import mosaicdd as m
from mosaicdd.parallel.launcher import communicator
from mosaicdd.parallel.machine import peak_memory

# Published: tortuosity factors over-converged, permeabilities in millidarcy by two-point fluxes to a residual of 8e-11.
_KNOWN = {
    "taufactor": {"z": 4.2431, "y": 1.1513, "x": 1.3905},
    "spe10": {"z": 0.044344, "y": 58.798, "x": 68.253},
    "ggg40": {"x": 85.24927},
}
_SPACING = (2.0, 10.0, 20.0)  # of SPE10's cells, feet
_PEERS = {"BoomerAMG tuned": "hypre-tuned", "BoomerAMG tuned, 0.5": "hypre-in-space"}
_RTOL = 1e-8

SMALL = {}


def main(
    *,
    taufactor: Path | None = None,
    spe10: Path | None = None,
    ggg40: Path | None = None,
    ranks: int = 1,
) -> None:
    """Measure, a job for each row, and write the table."""
    rows, paths = [], {"taufactor": taufactor, "spe10": spe10, "ggg40": ggg40}
    for case, known in _KNOWN.items():
        path = paths[case]
        for axis in known if path else ():
            for by in ("mosaicdd", *(_PEERS if case == "spe10" else ())):
                if by == "mosaicdd":
                    result = in_process(_measured, case, axis, str(path), ranks=ranks)
                else:
                    result = in_process(_by_peer, by, axis, str(path))
                if result is None:  # the peer is not here
                    continue
                value = result["tortuosity"] or result["conductivity"]
                rows.append(
                    [
                        f"{case}, {axis}",
                        by,
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
    header = ["case", "by", "known", "found", "apart", "in and out apart", "iterations", "seconds"]
    said = (
        f"On {ranks} rank{'s' * (ranks > 1)}. Where *processor* is well below *seconds*, others had the cores. Known are tortuosity factors, millidarcy, and W/mK. "
        "Published seconds for the first volume, the mean of three axes on 32 cores: PuMA 1201, PoreSpy 540, TauFactor 447."
    )
    title = "Effective conductivities of volumes"
    publish("effective", title, said, table([*header, "processor", "GB"], rows))


def _measured(case: str, axis: str, path: str) -> dict:
    """Measure an axis of a volume."""
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
            medium["y"], spacing = medium["x"], _SPACING
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
    return row | {"gigabytes": memory / 1e9}


def _by_peer(by: str, axis: str, path: str) -> dict | None:
    """Measure an axis of SPE10's model by a peer; None if the peer is not here."""
    with np.load(path) as file:
        medium = dict(zip("zyx", (file[k].astype(float) for k in ("kz", "kx", "kx")), strict=True))
    shape, number = medium[axis].shape, "zyx".index(axis)
    cells = np.arange(np.prod(shape)).reshape(shape)
    diagonal, entries = np.zeros(shape), []
    for other, k in enumerate(medium.values()):
        area = np.prod(_SPACING) / _SPACING[other] ** 2
        ends = [
            tuple(slice(low, high) if n == other else slice(None) for n in range(3))
            for low, high in ((None, -1), (1, None))
        ]
        first, second = (k[end] for end in ends)
        between = area * 2 * first * second / (first + second)
        for end in ends:
            diagonal[end] += between
        pair = [cells[end].ravel() for end in ends]
        entries += [(*pair, -between.ravel()), (*pair[::-1], -between.ravel())]
    half = 2 * np.prod(_SPACING) / _SPACING[number] ** 2 * np.moveaxis(medium[axis], number, 0)
    at_ends = np.moveaxis(diagonal, number, 0)
    at_ends[0] += half[0]
    at_ends[-1] += half[-1]
    entries.append((cells.ravel(), cells.ravel(), diagonal.ravel()))
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    matrix = scipy.sparse.csr_array((values, (rows, columns)))
    b = np.zeros(shape)
    np.moveaxis(b, number, 0)[0] = half[0]
    answer = by_petsc(matrix, b.ravel(), _PEERS[by], _RTOL)
    if answer is None:
        return None
    u = np.moveaxis(answer.solution.reshape(shape), number, 0)
    into, out = (half[0] * (1 - u[0])).sum(), (half[-1] * u[-1]).sum()
    size = shape[number] * _SPACING[number]
    across = np.prod(shape) * np.prod(_SPACING) / size
    row = {
        "conductivity": into * size / across,
        "tortuosity": None,
        "balance": abs(into - out) / into,
    }
    row |= {"iterations": answer.iterations, "seconds": answer.seconds, "processor": answer.seconds}
    return row | {"gigabytes": answer.bytes / 1e9}
