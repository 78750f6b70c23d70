"""Tensors by multigrid and, where they are constant, by subdomains that share one operator.

Usage: bench_tensors.py [CELLS ...]; by default 512 1024. One thread, float64, values on all sides and a smooth source, to a
relative residual of 1e-8, through the library. *First* is a solver made and called once, *again* a second call; the lesser
of two turns, in which all ways alternate, in seconds of the processor, as others may use the machine. *Off* is
how far a field is from that of the first way, in its largest difference. Writes ``benchmarks/tensors.md``.
"""

import sys
import time
from collections.abc import Mapping

import numpy as np
import torch
from tables import publish, table

import mosaicdd as m
from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.problems.discretisation.system import Method
from mosaicdd.problems.equations.linear import tensor

_SETTINGS = m.SolveSettings(rtol=1e-8)
_TURNS = 2


class Multigrid(Exact):
    """Multigrid, also where the coefficients are constant."""

    def bind(self, problem: m.Problem, grid: Grid) -> Method:
        """Return the solver in a medium."""
        return self.medium(problem, grid)


def cases(cells: int) -> dict[str, Mapping[str, object]]:
    """Return the fields of tensors by what they are."""
    rng, shape = np.random.default_rng(0), (cells, cells)
    y, x = (np.mgrid[:cells, :cells] + 0.5) / cells
    turning = [tensor(10.0, angle) for angle in (2 * np.pi * (x + np.sin(5 * y) / 2)).flat]
    draws = zip(
        (20 ** rng.uniform(size=shape)).flat, rng.uniform(0, np.pi, shape).flat, strict=True
    )
    noise = [tensor(*draw) for draw in draws]
    constant = {f"axy {axy}": {"axy": axy} for axy in (0.3, 0.6, 0.9)}
    return constant | {
        name: {n: np.array([t[n] for t in every]).reshape(shape) for n in ("axx", "axy", "ayy")}
        for name, every in (("turning, ratio 10", turning), ("noise, ratio to 20", noise))
    }


def main(sizes: list[int]) -> None:
    """Solve, print and write the table."""
    torch.set_num_threads(1)
    rows = []
    for cells in sizes:
        for name, fields in cases(cells).items():
            for row in _rows(cells, fields):
                rows.append([str(cells), name, *row])
                print(rows[-1], flush=True)
    header = ["cells", "tensor", "by", "iterations", "first", "again", "residual", "off"]
    note = "By `python scripts/bench_tensors.py`; its head says what is measured."
    publish(
        "tensors",
        "Tensors by multigrid and by shared operators",
        f"{note}\n\n{table(header, rows)}",
    )


def _rows(cells: int, fields: Mapping[str, object]) -> list[list[str]]:
    """Return what each way takes."""
    f = {"f": "sin(3*x)*cos(2*y)"}
    sides = m.Dirichlet("sin(3*x) + y")
    problem = m.Problem((cells, cells), "anisotropic-diffusion", {**fields, **f}, sides)
    ways: dict[str, Exact] = {"multigrid": Multigrid()}
    if len(fields) == 1:
        ways["shared operator"] = Exact()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    known, reference = {}, None
    for _ in range(_TURNS):
        for name, way in ways.items():
            begun = time.process_time()
            with m.Solver(problem, way, settings=_SETTINGS) as solver:
                solution, first = solver(), time.process_time()
                solver()
                seconds[name].append((first - begun, time.process_time() - first))
            reference = solution.field if reference is None else reference
            off = abs(solution.field - reference).max()
            residual = solution.report["discrete_residual"]
            known[name] = [f"{residual:.1e}", f"{off:.1e}"], str(solution.iterations)
    rows = []
    for name, ((*ends,), iterations) in known.items():
        least = [f"{min(turns):.2f}" for turns in zip(*seconds[name], strict=True)]
        rows.append([name, iterations, *least, *ends])
    return rows


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [512, 1024])
