"""Media of high contrast at one size: condensed elements beside CHOLMOD, hypre and pyAMG.

Usage: bench_fields.py [CELLS [SPE10.npz]] (by default 1024). One thread, float64, a random source, zero
sides. Seconds are wall time from the problem to the field, set-up included, to a true relative residual
of 1e-8; *again* is a second source in the same medium, for CHOLMOD a solve with its factor, and *16 more*
are solved at once. The ratio is to the fastest of the others. Writes ``benchmarks/fields.md``.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from media import MEDIA, spe10
from peers import PeerResult, by_petsc, by_pyamg, petsc_described
from tables import publish, table

import mosaicdd as m
from mosaicdd.problems.medium import MediumSystem

_RTOL = 1e-8
_MORE = 16
_WARM = 64  # cells of a first solve, which pays for what is loaded once per process


def main(cells: int, path: Path | None) -> None:
    """Solve, print and write the table."""
    torch.set_num_threads(1)
    nodes = (cells + 1, cells + 1)
    media = {name: make(nodes, np.random.default_rng(0)) for name, make in MEDIA.items()}
    if path is not None:
        media["spe10"] = spe10(nodes, path)
    _ours(np.ones((_WARM + 1,) * 2), np.ones((3, _WARM + 1, _WARM + 1)))
    rows = [row for name, a in media.items() for row in _rows(name, a)]
    header = [
        "medium",
        "contrast",
        "by",
        "iterations",
        "seconds",
        "again",
        "16 more",
        "ratio",
        "error",
    ]
    note = (
        "By `python scripts/bench_fields.py`; its head says what is measured. " + petsc_described()
    )
    publish("fields", f"Media, {cells} x {cells}", f"{note}\n\n{table(header, rows)}")


def _rows(name: str, a: np.ndarray) -> list[list[str]]:
    """Return the rows of a medium."""
    f = np.random.default_rng(1).standard_normal((2 + _MORE, *a.shape))
    seconds, solution = _ours(a, f)
    problem = solution.problem
    system = MediumSystem(problem.operator, problem.domain.grid())
    b = system.right_hand_side(np.zeros(a.shape), f[0])
    peers: dict[str, PeerResult | None] = {
        "CHOLMOD": by_petsc(system.matrix, b, "cholmod"),
        "hypre": by_petsc(system.matrix, b, "hypre", _RTOL),
        "pyAMG": by_pyamg(system.matrix, b, _RTOL),
    }
    known = {label: peer for label, peer in peers.items() if peer is not None}
    truth = (peers["CHOLMOD"] or known["pyAMG"]).solution
    inner = solution.field[1:-1, 1:-1].ravel()
    fastest = min(
        peer.seconds for peer in known.values() if _residual(system, b, peer) <= 2 * _RTOL
    )
    error = _distance(inner, truth)
    times = [f"{s:.2f}" for s in seconds]
    ours = ["mosaicdd", str(solution.iterations), *times, f"{seconds[0] / fastest:.2f}", error]
    rows = [[name, f"{np.ptp(np.log10(a)):.1f} decades", *ours]]
    for label, peer in known.items():
        direct = peer.iterations is None
        again = f"{peer.solve:.2f}" if direct else ""
        count = "direct" if direct else str(peer.iterations)
        missed = "" if _residual(system, b, peer) <= 2 * _RTOL else " (not reached)"
        rows.append(
            [
                "",
                "",
                label,
                count + missed,
                f"{peer.seconds:.2f}",
                again,
                "",
                "",
                _distance(peer.solution, truth),
            ]
        )
    return rows


def _ours(a: np.ndarray, f: np.ndarray) -> tuple[list[float], m.Solution]:
    """Solve for the first source, for another, and for the rest at once; return seconds of each."""
    problem = m.Problem(m.Domain(tuple(n - 1 for n in a.shape)), "diffusion", {"a": a, "f": f[0]})
    settings = m.SolveSettings(rtol=_RTOL)
    start = time.perf_counter()
    with m.Solver(problem, settings=settings) as solver:
        first = solver()
        seconds = [time.perf_counter() - start]
        for more in (f[1], f[2:]):
            seconds.append(_timed(lambda more=more: solver(problem.with_fields(f=more))))
    return seconds, first


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _residual(system: MediumSystem, b: np.ndarray, peer: PeerResult) -> float:
    return float(np.linalg.norm(b - system.matrix @ peer.solution) / np.linalg.norm(b))


def _distance(one: np.ndarray, truth: np.ndarray) -> str:
    """Return the largest difference, relative to the range; nothing for the truth itself."""
    return "" if one is truth else f"{abs(one - truth).max() / np.ptp(truth):.0e}"


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 1024, Path(given[1]) if len(given) > 1 else None)
