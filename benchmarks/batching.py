"""Batched against unbatched subdomains, after Fig. 8 of the paper: seconds per iteration.

One iteration of the four phases on one rank, with one subdomain per call of the local solver and
with as many as by default; on a GPU where there is one, else on one core. Least of several
iterations. *Peak*: the share of the rate of a large matrix product, by the counted
operations of products and convolutions alone.

``seconds``: at least for each size and solver.
"""

import functools
from collections.abc import Callable

import torch
from common import publish, seconds_per_call, table, write_csv
from serial import BATCH, local_solver, schwarz_solver
from torch.utils.flop_counter import FlopCounterMode

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.interface import Interface
from mosaicdd.solvers.settings import SolveSettings

_SIZES = ((64, 128), (128, 256), (256, 256), (256, 512), (512, 512), (512, 1024), (1024, 1024))
_SOLVERS = ("laplace", "laplace-sdnet")
Clock = Callable[[Callable[[], object]], float]

SMALL = {"seconds": 0.01}


def main(seconds: float = 1.0) -> None:
    """Measure everything, print the tables and write them to ``benchmarks/``."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch = BATCH[device.type]
    header = ["cells", "subdomains"]
    for name in _SOLVERS:
        header += [f"{name}: unbatched, ms", "batched, ms", "gain", "peak"]
    clock = functools.partial(seconds_per_call, seconds=seconds)
    peak = _peak(device, clock)
    rows = [_row(cells, device, batch, peak, clock) for cells in _SIZES]
    short = [
        f"{name} {kind}" for name in _SOLVERS for kind in ("unbatched", "batched", "gain", "peak")
    ]
    write_csv("batching", ["cells", "subdomains", *short], rows)
    text = (
        f"One iteration of four phases, float64 on {device}; batched: up to {batch} subdomains of "
        f"a phase per call; a large product runs at {peak / 1e9:.0f} GFLOP/s.\n\n{table(header, rows)}"
        "\n\nThe paper (one A30): up to 100 times, at about 50 % of the peak."
    )
    publish("batching", "Batched against unbatched subdomains", text)


def _row(
    cells: tuple[int, int], device: torch.device, batch: int, peak: float, clock: Clock
) -> list[str]:
    row = [f"{cells[1]}x{cells[0]}", str((cells[0] // 16 - 1) * (cells[1] // 16 - 1))]
    for name in _SOLVERS:
        (unbatched, _), (batched, count) = (
            _cost(name, cells, device, b, clock) for b in (1, batch)
        )
        row += [f"{1e3 * unbatched:.2f}", f"{1e3 * batched:.2f}", f"{unbatched / batched:.1f}"]
        row.append(f"{100 * count / batched / peak:.0f} %")
    return row


def _peak(device: torch.device, clock: Clock) -> float:
    """Return the operations per second of a large product."""
    matrix = torch.ones(1024, 1024, dtype=torch.float64, device=device)
    out = torch.empty_like(matrix)
    return 2 * 1024**3 / clock(lambda: torch.mm(matrix, matrix, out=out))


def _cost(
    name: str, cells: tuple[int, int], device: torch.device, batch: int, clock: Clock
) -> tuple[float, int]:
    """Return the seconds and the counted operations of an iteration."""
    solver = local_solver(name)
    settings = SolveSettings(levels=1, sweep="phases", batch_subdomains=batch, device=str(device))
    schwarz = schwarz_solver(solver, cells, settings)
    old, new = (Interface(schwarz.block, problems=1, **settings.tensors) for _ in range(2))
    boundary = Boundary.of_gaussian_process(Grid(cells, solver.subdomain.spacing), seed=0)
    for v in (old, new):
        v.impose([boundary])

    def iterate() -> None:
        nonlocal old, new
        schwarz.iterate(old, new)
        old, new = new, old

    with FlopCounterMode(display=False) as counter:
        iterate()
    return clock(iterate), counter.get_total_flops()
