"""Networks for media and plain averages beside the exact operators, and beside other solvers.

Usage: bench_field_networks.py [SPE10.npz [CELLS]] (by default 1024), bench_field_networks.py peers [CELLS
[ROUNDS]] (by default 2048, and 3), and bench_field_networks.py large [CELLS ..] (by default 16384). One
thread, float64. Errors are root mean squares over all nodes, relative to the solution's, against the exact
operators' answer to a residual of 1e-9, in media drawn with seeds that no training has seen: with boundary
data sin(3x) + y^2 on the unit square (*sides*), and with a source of 1 between zero sides (*source*). SPE10's
layers lie side by side: those of its Tarbert formation are lognormal, those of the Ness channels in shale.
Seconds are wall time from the problem to the field. *Large* is ``mosaicdd solve`` on two ranks as a user
starts it: the medium is read from a file, the field streams to one, and the memory is the peak of all ranks,
whole processes.

Writes ``benchmarks/field_networks.md``, ``benchmarks/field_networks_peers.md`` and
``benchmarks/field_networks_large.md``.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.ndimage
import torch
from media import NESS, TARBERT, channels, spe10
from peers import PeerResult, by_petsc, by_pyamg
from ranks import mosaicdd
from tables import publish, table

import mosaicdd as m
from mosaicdd.lattice.axes import even
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.discretisation.discrete import MediumSystem
from mosaicdd.problems.fields.random_media import Lognormal

_SEED = 12345
_TIGHT = m.SolveSettings(rtol=1e-9)
_PEERS = 1e-6  # relative residual asked of the iterative peers: they need not be better than we are
_ALL_PEERS = 1024  # cells a side, beyond which the fastest alone is asked
_LARGE = 2  # ranks
_PARTS = ("setup", "iterate", "assemble", "estimate", "write")
_ROWS = 256  # of a medium that are made at once
_SOLVERS = ("averaged", "diffusion")
Make = Callable[[int, np.random.Generator], np.ndarray]


def lognormal(length: float, contrast: float) -> Make:
    """Make smooth lognormal media, correlated over so many nodes."""

    def make(n: int, rng: np.random.Generator) -> np.ndarray:
        values = scipy.ndimage.gaussian_filter(rng.standard_normal((n, n)), length / 2, mode="wrap")
        return np.exp(np.log(contrast) / 6 * values / values.std())

    return make


def inclusions(contrast: float) -> Make:
    """Make squares of 3 to 11 nodes, half of them better and half worse conductors."""

    def make(n: int, rng: np.random.Generator) -> np.ndarray:
        a = np.ones((n, n))
        for _ in range(a.size // 500):
            (y, x), r = rng.integers(0, n, 2), rng.integers(1, 6)
            value = contrast ** rng.choice((-0.5, 0.5))
            a[max(y - r, 0) : y + r + 1, max(x - r, 0) : x + r + 1] = value
        return a

    return make


def checkerboard(n: int, rng: np.random.Generator) -> np.ndarray:
    """Make squares of 11 nodes of 1 and 10."""
    (oy, ox), (y, x) = rng.integers(0, 22, 2), np.ogrid[:n, :n]
    return np.where(((y + oy) // 11 + (x + ox) // 11) % 2, 10.0, 1.0)


MEDIA: dict[str, Make] = {
    "lognormal, 8 nodes, 30": lognormal(8, 30),
    "lognormal, 8 nodes, 1e4": lognormal(8, 1e4),
    "lognormal, 24 nodes, 1e4": lognormal(24, 1e4),
    "inclusions, 10": inclusions(10),
    "channels, 10": lambda n, rng: channels((n, n), rng, 10.0),
    "checkerboard, 10": checkerboard,
    "inclusions, 100": inclusions(100),
}


def main(path: Path | None, cells: int) -> None:
    """Solve, print and write the tables."""
    torch.set_num_threads(1)
    rng = np.random.default_rng
    media = {name: make(cells + 1, rng(_SEED)) for name, make in MEDIA.items()}
    if path is not None:
        for name, formation in (("Tarbert", TARBERT), ("Ness", NESS)):
            media[f"SPE10, {name}"] = spe10((cells + 1, cells + 1), path, formation)
    _warm_up()
    write([row for name, a in media.items() for row in _errors(name, a)], cells)


def write(rows: list[list[str]], cells: int) -> None:
    """Write the table of all media."""
    header = ["medium", "", *(f"{name} {what}" for name in _SOLVERS for what in ("error", "says"))]
    header += ["gains", "seconds exact", *_SOLVERS]
    note = (
        "By `python scripts/bench_field_networks.py`; its head says what is measured. *Says* is the "
        "estimate that comes with the answer, *gains* what averaging is worse by. `diffusion` is the "
        "network of conductances; each answer is corrected once, by its own coarse equation.\n\n"
        f"{_in_words(rows)}"
    )
    title = f"Networks for media, {cells} x {cells}"
    publish("field_networks", title, f"{note}\n\n{table(header, rows)}")


def _warm_up() -> None:
    """Pay for what is loaded once per process."""
    a = np.exp(0.3 * np.random.default_rng(0).standard_normal((129, 129)))
    for name in ("exact", *_SOLVERS):
        m.solve(problem_of(a, "source"), name)


def problem_of(a: np.ndarray, what: str) -> m.Problem:
    """Return the problem in a medium with boundary data, ``"sides"``, or with a ``"source"``."""
    size = (len(a) - 1) / 64
    domain = m.Domain(tuple(n - 1 for n in a.shape))
    if what == "sides":
        sides = m.Dirichlet(f"sin(3*x/{size}) + (y/{size})**2")
        return m.Problem(domain, "diffusion", {"a": a}, sides)
    return m.Problem(domain, "diffusion", {"a": a, "f": 1.0})


def _errors(name: str, a: np.ndarray) -> list[list[str]]:
    """Return the rows of a medium."""
    rows = []
    for what in ("sides", "source"):
        problem = problem_of(a, what)
        exact, seconds = _timed(lambda problem=problem: m.solve(problem, settings=_TIGHT))
        truth, cells, errors, times = exact.field, [], {}, {"exact": seconds}
        size = _rms(truth)
        for solver in _SOLVERS:
            try:
                solution, spent = _timed(lambda p=problem, s=solver: m.solve(p, s))
            except ValueError:  # outside of the network's range
                cells += ["refused", ""]
                continue
            errors[solver] = _rms(solution.field - truth) / size
            cells += [f"{errors[solver]:.1e}", f"{solution.error_estimate / size:.1e}"]
            times[solver] = spent
        gains = f"{errors['averaged'] / errors['diffusion']:.1f}" if "diffusion" in errors else ""
        seconds_of = [
            f"{times[solver]:.2f}" if solver in times else "" for solver in ("exact", *_SOLVERS)
        ]
        rows.append([name, what, *cells, gains, *seconds_of])
        print(rows[-1], flush=True)
    return rows


def _in_words(rows: list[list[str]]) -> str:
    """Say how often each is the most accurate, and what they cost where all of them answer."""
    answered = [row for row in rows if "refused" not in row]
    best = [min(_SOLVERS, key=lambda name, row=row: _error(row, name)) for row in answered]
    counts = ", ".join(f"`{name}` in {best.count(name)}" for name in _SOLVERS)
    names = ("exact", *_SOLVERS)
    totals = {
        name: sum(float(row[i - len(names)]) for row in answered) for i, name in enumerate(names)
    }
    seconds = ", ".join(
        f"`{name}` {totals[name]:.1f}" for name in sorted(names, key=totals.__getitem__)
    )
    largest = {name: max(_error(row, name) for row in answered) for name in _SOLVERS}
    errors = ", ".join(f"`{name}` {largest[name]:.1e}" for name in _SOLVERS)
    return (
        f"In the {len(answered)} rows that both answer, the smallest error is of {counts}; the largest "
        f"errors are {errors}. Seconds of all these rows: {seconds}."
    )


def _error(row: list[str], name: str) -> float:
    return float(row[2 + 2 * _SOLVERS.index(name)])


def beside_peers(cells: int, rounds: int = 3) -> None:
    """Write what others need on a larger grid, and how far off they are."""
    torch.set_num_threads(1)
    _warm_up()
    a = lognormal(8, 1e4)(cells + 1, np.random.default_rng(_SEED))
    problem = problem_of(a, "source")
    system = MediumSystem(problem.operator, problem.domain.grid())
    b = system.right_hand_side(np.zeros(a.shape), np.ones(a.shape))
    ask: dict[str, Callable[[], PeerResult | None]] = {
        f"hypre to {_PEERS:g}": lambda: by_petsc(system.matrix, b, "hypre", _PEERS),
    }
    if cells <= _ALL_PEERS:
        ask["CHOLMOD"] = lambda: by_petsc(system.matrix, b, "cholmod")
        ask[f"pyAMG to {_PEERS:g}"] = lambda: by_pyamg(system.matrix, b, _PEERS)
    truth, times, rows = np.empty(0), {}, {}
    for _ in range(rounds):
        for name in ("exact", *_SOLVERS):
            settings = m.SolveSettings(rtol=1e-8) if name == "exact" else None
            solution, seconds = _timed(lambda n=name, s=settings: m.solve(problem, n, settings=s))
            u = solution.field[1:-1, 1:-1].ravel()
            truth = u if name == "exact" else truth
            error = "" if name == "exact" else f"{_rms(u - truth) / _rms(truth):.1e}"
            times.setdefault(name, []).append(seconds)
            rows[name] = [name + (" operators to 1e-8" if name == "exact" else ""), "", error]
        for name, peer in ((name, work()) for name, work in ask.items()):
            if peer is not None:
                error = f"{_rms(peer.solution - truth) / _rms(truth):.1e}"
                times.setdefault(name, []).append(peer.seconds)
                rows[name] = [name, f"{peer.setup:.2f}", error]
    ours = statistics.median(times["diffusion"])
    medians = {name: statistics.median(runs) for name, runs in times.items()}
    written = [
        [by, f"{medians[name]:.2f}", setup, error, f"{medians[name] / ours:.1f}"]
        for name, (by, setup, error) in rows.items()
    ]
    header = ["by", "seconds", "of these set-up", "error", "times `diffusion`"]
    title = f"Networks for media beside other solvers, {cells} x {cells}"
    taken = f"Medians of {rounds} rounds, in which all take turns." if rounds > 1 else "One round."
    note = (
        "By `python scripts/bench_field_networks.py peers`; its head says what is measured. "
        f"{taken} Lognormal over 8 nodes, contrast 1e4, a source of 1. Beyond 1024 x "
        "1024 hypre alone is asked, the fastest of the three there (`fields.md`). Before the seconds of its "
        "set-up a solver has no answer at all."
    )
    publish("field_networks_peers", title, f"{note}\n\n{table(header, written)}")


def large(sizes: list[int]) -> None:
    """Write what the network takes on grids whose fields stream from and to files."""
    rows = []
    for cells in sizes:
        with tempfile.TemporaryDirectory() as folder:
            medium, output = Path(folder) / "a.npy", Path(folder) / "out.h5"
            _write_lognormal(medium, cells)
            start = time.perf_counter()
            options = ["--local-solver", "diffusion", "--cells", f"{cells}x{cells}"]
            options += ["--pde", "diffusion", "--field", f"a={medium}", "--field", "f=1"]
            options += ["--boundary", "gp:seed=0"]
            report = mosaicdd(_LARGE, "solve", "-o", str(output), *options)
            seconds = time.perf_counter() - start
            written = output.stat().st_size
        spent, peak = report["seconds"], report["peak_memory_bytes"]
        size = report["update"] / report["relative_update"]
        rows.append(
            [
                f"{cells} x {cells}",
                report["status"],
                str(report["iterations"]),
                f"{report['error_estimate'] / size:.1e}",
                *(f"{spent[part]:.1f}" for part in _PARTS),
                f"{seconds:.1f}",
                f"{peak / 1e9:.2f}",
                f"{peak / (cells + 1) ** 2:.0f}",
                f"{written / 1e9:.2f}",
            ]
        )
        print(rows[-1], flush=True)
    header = ["cells", "status", "iterations", "says", *_PARTS, "whole command, s"]
    header += ["GB in all", "B per node", "GB written"]
    note = (
        "By `python scripts/bench_field_networks.py large`; its head says what is measured. The network of "
        f"conductances on {_LARGE} ranks, lognormal over 8 nodes, contrast 1e4, a source of 1. *Says* is the "
        "error estimate, relative to the solution; there is no truth at this size."
    )
    title = "Networks for media on large grids"
    publish("field_networks_large", title, f"{note}\n\n{table(header, rows)}")


def _write_lognormal(path: Path, cells: int) -> None:
    """Write a lognormal medium to a file, some rows after others."""
    grid = Grid((cells, cells), 1 / 64)
    medium = Lognormal(_SEED, 8 * grid.spacing, 1e4)
    values = np.lib.format.open_memmap(path, "w+", shape=grid.nodes)
    for rows in even(cells + 1, _ROWS):
        values[rows] = medium.sample(grid, (rows, slice(0, cells + 1)))
    values.flush()


def _timed(work: Callable[[], m.Solution]) -> tuple[m.Solution, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["large"]:
        large([int(cells) for cells in arguments[1:]] or [16384])
        sys.exit()
    if arguments[:1] == ["peers"]:
        beside_peers(*(int(number) for number in arguments[1:] or ["2048"]))
        sys.exit()
    main(
        Path(arguments[0]) if arguments else None, int(arguments[1]) if len(arguments) > 1 else 1024
    )
