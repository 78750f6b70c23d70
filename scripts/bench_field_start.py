"""What an approximate answer saves as the start of an exact one: iterations and seconds.

Usage: bench_field_start.py [CELLS [SPE10.npz]]. One thread, float64, the media and problems of
`bench_field_networks`, to a true relative residual of 1e-8. The exact operators start from zero, from
the answer of averages (`--local-solver averaged`) and of the shipped networks (`diffusion`,
`diffusion-operator`), at the nodes of their own interface. *Saved* are the seconds of the iterations that are not made, *start* those that
the answer took. Writes ``benchmarks/field_start.md``.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from bench_field_networks import MEDIA, problem_of
from media import spe10
from mosaicdd.schwarz.condensed.condensed_engine import CondensedEngine
from tables import publish, table

import mosaicdd as m
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.parallel.ranks import Ranks

_SEED = 12345
_STARTS = ("averaged", "diffusion", "diffusion-operator")
_SETTINGS = m.SolveSettings(rtol=1e-8)


def main(cells: int, path: Path | None) -> None:
    """Solve, print and write the table."""
    torch.set_num_threads(1)
    nodes = cells + 1
    media = {name: make(nodes, np.random.default_rng(_SEED)) for name, make in MEDIA.items()}
    if path is not None:
        media["spe10"] = spe10((nodes, nodes), path)
    rows = []
    for name, a in media.items():
        for what in ("sides", "source"):
            rows.append([name, what, *_row(problem_of(a, what))])
            print(rows[-1], flush=True)
    write(rows, cells)


def write(rows: list[list[str]], cells: int) -> None:
    """Write the table of all media."""
    header = ["medium", "", "iterations", "seconds"]
    header += [f"{name} {what}" for name in _STARTS for what in ("iterations", "saved", "start")]
    note = (
        "By `python scripts/bench_field_start.py`; its head says what is measured.\n\n"
        + " ".join(_in_words(rows, i) for i in range(len(_STARTS)))
    )
    title = f"Approximate answers as the start of exact ones, {cells} x {cells}"
    publish("field_start", title, f"{note}\n\n{table(header, rows)}")


def _in_words(rows: list[list[str]], number: int) -> str:
    """Say what a start saves and takes in the media that it has an answer for."""
    parts = [[row[2], *row[4 + 3 * number : 7 + 3 * number]] for row in rows]
    answered = [[float(entry) for entry in part] for part in parts if part[1] != "refused"]
    saved = [zero - left for zero, left, _, _ in answered]
    pays = sum(seconds > taken for *_, seconds, taken in answered)
    return (
        f"`{_STARTS[number]}` saves {min(saved):.0f} to {max(saved):.0f} iterations in {len(answered)} rows; "
        f"the seconds saved are more than those it takes in {pays} of them."
    )


def _row(problem: m.Problem) -> list[str]:
    """Return iterations and seconds from zero, and from each start."""
    grid = problem.domain.grid()
    bound = Exact().bind(problem, grid)
    lattice = Lattice(grid, bound.subdomain)
    engine = CondensedEngine(Ranks.alone(), lattice, bound, _SETTINGS)
    boundaries, s = problem.boundaries(grid), lattice.spacing
    (plain,) = engine.solve_many(boundaries)
    each = plain.seconds["iterate"] / plain.iterations
    cells = [str(plain.iterations), f"{plain.seconds['iterate']:.2f}"]
    for name in _STARTS:
        begun = time.perf_counter()
        try:
            field = m.solve(problem, name).field
        except ValueError:  # outside of the network's range
            cells += ["refused", "", ""]
            continue
        spent = time.perf_counter() - begun
        lines = np.ascontiguousarray(field[::s]), np.ascontiguousarray(field[:, ::s].T)
        (solved,) = engine.solve_many(boundaries, start=engine.interface_of_lines(lines))
        saved = (plain.iterations - solved.iterations) * each
        cells += [str(solved.iterations), f"{saved:.2f}", f"{spent:.2f}"]
    return cells


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int((arguments or ["1024"])[0]), Path(arguments[1]) if len(arguments) > 1 else None)
