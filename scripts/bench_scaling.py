"""Strong and weak scaling with the time split into parts, after Fig. 9 of the paper.

    python scripts/bench_scaling.py --ranks 1,2
    python scripts/bench_scaling.py --ranks 1,2 --strong 2048x2048 --levels 1 --until-mae 0.05 \
        --name scaling_paper

start mpiexec for each number of ranks. Without ``--ranks`` it measures on the ranks that it was
started on itself, as by ``slurm/scaling.sbatch``. Each run adds two rows to ``benchmarks/NAME.csv``
and makes the table and the figure anew, from all rows of the same problem and machine.
"""

import argparse
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch
from ranks import on_ranks
from scaling_report import PARTS, add_rows, publish_scaling
from serial import BATCH, local_solver
from tables import machine

from mosaicdd.cli.launch import world
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.window import Window
from mosaicdd.parallel.launcher import abort_all_ranks, threads_per_rank
from mosaicdd.parallel.machine import device_of_rank
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.results.output import SolutionOutput
from mosaicdd.schwarz.results.report import parts_of_ranks, result_of
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch


def main() -> None:
    """Measure on these ranks, or start what measures on several numbers of them."""
    launching = argparse.ArgumentParser(add_help=False)
    launching.add_argument("--ranks", metavar="1,2", help="start mpiexec for each of these")
    _, rest = launching.parse_known_args()
    arguments = _parser(launching).parse_args()
    if arguments.ranks is None:
        _measure_here(arguments)
        return
    for ranks in arguments.ranks.split(","):
        print(on_ranks(int(ranks), __file__, *rest))


def _parser(launching: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[launching])
    size = {"type": _cells, "metavar": "NXxNY"}
    parser.add_argument("--strong", **size, default="4096x4096", help="cells in all")
    parser.add_argument("--weak", **size, default="1024x512", help="cells per rank")
    parser.add_argument("--local-solver", default="laplace")
    parser.add_argument("--levels", type=int, choices=(1, 2), default=2, help="1: the four phases")
    parser.add_argument("--until-mae", type=float, help="instead of an update of 1e-7, relative")
    parser.add_argument("--iterations", type=int, help="so many, whatever comes of them")
    parser.add_argument(
        "--write",
        choices=("file", "shards"),
        nargs="?",
        const="file",
        help="write the solution, too: to one file, or a file per rank",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--name", default="scaling", help="of the files in benchmarks/")
    return parser


def _cells(text: str) -> tuple[int, int]:
    nx, ny = map(int, text.split("x"))
    return ny, nx


def _measure_here(arguments: argparse.Namespace) -> None:
    everyone = world()
    torch.set_num_threads(threads_per_rank())
    rows = [_measure(everyone, study, arguments) for study in ("strong", "weak")]
    if everyone.is_root:
        add_rows(arguments.name, rows)
        publish_scaling(arguments.name)


def _measure(everyone: Ranks, study: str, arguments: argparse.Namespace) -> dict:
    """Return a row of the table."""
    solver = everyone.on_root(lambda: local_solver(arguments.local_solver))
    size = cells = getattr(arguments, study)
    dims = None
    if study == "weak":
        dims = everyone.dims
        cells = tuple(n * across for n, across in zip(size, dims, strict=True))
    lattice = Lattice(Grid(cells, solver.subdomain.spacing), solver.subdomain)
    ranks = Ranks.of(everyone, dims).fitted(lattice.subdomains)
    settings = SolveSettings(
        levels=arguments.levels,
        sweep="additive" if arguments.levels == 2 else "phases",
        rtol=0.0 if arguments.iterations else 1e-7,
        until_mae=arguments.until_mae,
        max_iterations=arguments.iterations or 100_000,
        batch_subdomains=BATCH[arguments.device],
        device=str(device_of_rank(everyone, arguments.device)),
    )
    problem = _Problem(ranks, lattice, solver, settings, write=arguments.write)
    problem.run()
    runs = sorted(
        (problem.run() for _ in range(arguments.repetitions)), key=lambda run: run["seconds"]
    )
    aim = "1e-7" if arguments.until_mae is None else f"an MAE of {arguments.until_mae:g}"
    if arguments.iterations:
        aim = f"iteration {arguments.iterations}"
    levels = "two levels" if arguments.levels == 2 else "one level"
    written = {None: "", "file": ", one file written", "shards": ", a file per rank written"}
    return runs[len(runs) // 2] | {
        "study": study,
        "size": _text(size),
        "method": f"{solver.name} on {arguments.device}, {levels}, to {aim}{written[arguments.write]}",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "cells": _text(cells),
        "ranks": ranks.size,
        "dims": _text(ranks.dims),
    }


def _text(pair: tuple[int, int]) -> str:
    return f"{pair[1]}x{pair[0]}"


class _Problem:
    """A problem that is solved again and again; only the root has the truth, if it is needed."""

    def __init__(self, ranks, lattice, local_solver, settings, *, write: str | None):
        self._parts = ranks, lattice, local_solver, settings
        self._write = write
        self._boundary = ranks.on_root(lambda: Boundary.of_gaussian_process(lattice.grid, seed=0))
        self._problem = Problem(self._boundary.shape, LAPLACE, sides=self._boundary)
        self._truth = None
        if settings.until_mae is not None and ranks.is_root:
            self._truth = solve_by_sine_transform(self._problem)

    def run(self) -> dict:
        """Return status, iterations, seconds in all, of the iterations, and of the parts."""
        ranks, lattice, _, settings = self._parts
        clock, reference = Stopwatch(), None
        ranks.barrier()
        with clock.part("setup"):
            schwarz = Engine(*self._parts, clock=clock)
        if settings.until_mae is not None:
            reference = schwarz.reference(self._truth)
        with tempfile.TemporaryDirectory() if ranks.is_root else nullcontext("") as folder:
            path = ranks.bcast(str(Path(folder) / "solution.h5"))
            output = SolutionOutput(
                path,
                ranks,
                lattice.grid,
                schwarz.samples,
                self._problem,
                [self._boundary],
                "float64",
                Window.whole(lattice.grid),
                clock,
                shards=self._write == "shards",
            )
            ranks.barrier()
            start = time.perf_counter()
            with output if self._write else nullcontext():
                solution = schwarz.solve(
                    self._boundary,
                    reference=reference,
                    sink=_discard
                    if self._write is None
                    else lambda strips: output.strips(strips, range(1), schwarz.place),
                )
                if self._write:
                    output.maps([solution], range(1))
                    output.describe({"status": solution.status}, [result_of(ranks, solution)])
            seconds = clock.seconds["setup"] + time.perf_counter() - start
        parts = parts_of_ranks(ranks, clock)
        return {
            "status": solution.status,
            "iterations": solution.iterations,
            "seconds": ranks.largest(seconds),
            "iterate": ranks.largest(solution.seconds["iterate"]),
        } | {
            f"{part}_{kind}": parts.get(part, {}).get(kind, 0.0)
            for part in PARTS
            for kind in ("mean", "max")
        }


def _discard(strips: Iterator[Strip]) -> None:
    """Have the field filled strip by strip, as for a file, and keep nothing."""
    for _ in strips:
        pass


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        abort_all_ranks()  # an exception on one rank alone would leave the others waiting
        raise
