"""Batched against unbatched subdomains, after Fig. 8 of the paper: seconds per iteration.

One iteration of the four phases on one rank, with one subdomain per call of the local solver and
with as many as by default; on a GPU where there is one, else on one core. Least of several
iterations (`step_cost`).
"""

import torch
from serial import BATCH, local_solver, schwarz_solver
from step_cost import seconds_per_call
from tables import publish, table

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.settings import SolveSettings

_SIZES = ((64, 128), (128, 256), (256, 256), (256, 512), (512, 512), (512, 1024), (1024, 1024))
_SOLVERS = ("laplace", "laplace-sdnet")
_SECONDS = 1.0  # per size and solver, at least


def main() -> None:
    """Measure everything, print the tables and write them to ``benchmarks/``."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch = BATCH[device.type]
    header = ["cells", "subdomains"]
    for name in _SOLVERS:
        header += [f"{name}: unbatched, ms", "batched, ms", "gain"]
    text = (
        f"One iteration of four phases, float64 on {device}; batched: up to {batch} subdomains of "
        f"a phase per call.\n\n{table(header, [_row(cells, device, batch) for cells in _SIZES])}"
        "\n\nThe paper (one A30): up to 100 times."
    )
    publish("batching", "Batched against unbatched subdomains", text)


def _row(cells: tuple[int, int], device: torch.device, batch: int) -> list[str]:
    row = [f"{cells[1]}x{cells[0]}", str((cells[0] // 16 - 1) * (cells[1] // 16 - 1))]
    for name in _SOLVERS:
        unbatched, batched = (_seconds(name, cells, device, size) for size in (1, batch))
        row += [f"{1e3 * unbatched:.2f}", f"{1e3 * batched:.2f}", f"{unbatched / batched:.1f}"]
    return row


def _seconds(name: str, cells: tuple[int, int], device: torch.device, batch: int) -> float:
    """Return the seconds of an iteration."""
    solver = local_solver(name)
    settings = SolveSettings(levels=1, sweep="phases", batch_subdomains=batch, device=str(device))
    schwarz = schwarz_solver(solver, cells, settings)
    old, new = (Interface(schwarz.block, problems=1, **settings.tensors) for _ in range(2))
    boundary = Boundary.of_gaussian_process(Grid(cells, solver.subdomain.spacing), seed=0)
    for v in (old, new):
        v.impose([boundary])

    def iterate() -> None:
        nonlocal old, new
        schwarz.method.iterate(old, new)
        old, new = new, old

    return seconds_per_call(iterate, _SECONDS)


if __name__ == "__main__":
    main()
