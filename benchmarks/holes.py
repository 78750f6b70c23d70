"""Laplace's equation around round holes: seconds beside the plain rectangle's and other solvers'.

One thread; with ``--holes``, as 1000 on 8192 cells, the seconds of one solve on several ranks, to a file. The plain rectangle has values on all sides and the shipped
model ``laplace``; with holes, which have values, the lower and the upper side are insulated, and all is
solved by ``exact``, by multigrid. All to the default tolerance; medians of rounds that take them in turn, after one to warm up. Holes are *in rows* (all alike) or *anywhere* (of random places and sizes). The iterative peers go to a
relative residual of 1e-8, and the true one stands beside; their seconds are without those for the matrix, a
peer that does not come within ten times of it fails. Written to ``benchmarks/holes.md`` and
``benchmarks/holes_large.md``.
"""

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import in_process, medians, publish, table, timed
from peers import PeerResult, by_petsc, by_pyamg, multigrids, petsc_described, residual

import mosaicdd as m
from mosaicdd.discretisation.discrete import GlobalSystem
from mosaicdd.parallel.launcher import communicator

_RTOL = 1e-8  # of the iterative peers
_ROWS = "0.3-sqrt((fmod(x,1)-0.5)**2+(fmod(y,1)-0.5)**2)"  # a hole in each square of size 1
_INSULATED = {"bottom": m.Neumann(), "top": m.Neumann()}


def value(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what holds on all outlines that are not insulated."""
    return np.sin(3 * x) * np.cosh(y)


def anywhere(count: int, rows: int) -> m.Domain | object:
    """Return the level of round holes, one in each square of size 1, of random places and sizes."""
    rng = np.random.default_rng(0)
    columns = -(-count // rows)
    y, x = rng.uniform(0.4, 0.6, (2, rows * columns))
    radius = np.where(np.arange(rows * columns) < count, rng.uniform(0.2, 0.35, rows * columns), 0)

    def level(at_x: np.ndarray, at_y: np.ndarray) -> np.ndarray:
        i, j = np.clip(at_y, 0, rows - 0.5).astype(int), np.clip(at_x, 0, columns - 0.5).astype(int)
        k = i * columns + j
        return radius[k] - np.sqrt((at_x - j - x[k]) ** 2 + (at_y - i - y[k]) ** 2)

    return level


SMALL = {"cells": 64, "rounds": 1}


def main(cells: int = 2048, *, holes: int = 0, ranks: int = 2, rounds: int = 5) -> None:
    """Measure the table with the peers, or a solve around many holes, and write it."""
    if holes:
        title = f"Laplace around {holes} holes, {cells} x {cells}, {ranks} ranks"
        results = in_process(_around, cells, holes, ranks=ranks)
        publish("holes_large", title, table(["", ""], results.items()))
        return
    h, size = 4 / cells, (cells, cells)
    sides = {side: m.Dirichlet(value) for side in ("left", "right", "outline")} | _INSULATED
    problems = {
        "plain rectangle": (
            m.Problem(m.Domain(size, h), "laplace", sides=m.Dirichlet(value)),
            None,
        ),
        "two insulated sides": (
            m.Problem(
                m.Domain(size, h),
                "laplace",
                sides={k: v for k, v in sides.items() if k != "outline"},
            ),
            "exact",
        ),
        "16 holes in rows": (
            m.Problem(m.Domain.from_distance(_ROWS, size, h), "laplace", sides=sides),
            "exact",
        ),
        "16 holes anywhere": (
            m.Problem(m.Domain.from_distance(anywhere(16, 4), size, h), "laplace", sides=sides),
            "exact",
        ),
    }
    iterations = {name: str(m.solve(*one).iterations) for name, one in problems.items()}
    calls = {name: functools.partial(m.solve, *one) for name, one in problems.items()}
    spent = medians(calls, rounds)
    plain = spent["plain rectangle"]
    rows = [
        [
            name,
            model or "laplace",
            iterations[name],
            f"{spent[name]:.2f}",
            f"{spent[name] / plain:.1f}",
        ]
        for name, (_, model) in problems.items()
    ]
    rows = [[*row, "", ""] for row in rows]
    for domain in ("16 holes in rows", "16 holes anywhere"):
        rows += _peers(domain, problems[domain][0], plain)
    _publish(cells, rows)


def _peers(domain: str, problem: m.Problem, plain: float) -> Iterator[list[str]]:
    """Solve by the peers, with unit rows where there is no unknown: so all nodes of the grid are there."""
    system = GlobalSystem(problem, problem.domain.grid())
    matrix, b = system.matrix, system.right_hand_side
    field = np.nan_to_num(m.solve(problem, "exact").field)

    def row(name: str, peer: PeerResult | None) -> list[str]:
        if peer is None:
            return [domain, name, "fails", "", "", "", ""]
        count = "" if peer.iterations is None else str(peer.iterations)
        other = np.nan_to_num(system.field(peer.solution))
        distance = np.abs(other - field).max() / np.abs(field).max()
        left = residual(matrix, b, peer.solution)
        told = [f"{peer.seconds:.2f}", f"{peer.seconds / plain:.1f}"]
        return [domain, name, count, *told, f"{left:.0e}", f"{distance:.0e}"]

    for name, peer in multigrids(matrix, b, _RTOL, problem.domain.grid().nodes):
        yield row(name, peer)
    yield row("pyAMG", by_pyamg(matrix, b, _RTOL))
    cholmod = by_petsc(matrix, b, "cholmod")
    if cholmod is not None:
        yield row("CHOLMOD", cholmod)


def _publish(cells: int, rows: list[list[str]]) -> None:
    header = ["domain", "solver", "iterations", "seconds", "times the plain rectangle"]
    header += ["residual", "distance"]
    said = "*distance* is the largest of the fields, relative to the largest value."
    title = f"Round holes beside the plain rectangle, {cells} x {cells}"
    publish("holes", title, f"{said} {petsc_described()}", table(header, rows))


def _around(cells: int, holes: int) -> dict[str, str]:
    """Solve around many holes on all ranks, to a file; return what it took."""
    rows = int(np.sqrt(holes))
    columns = -(-holes // rows)
    sides = {side: m.Dirichlet(value) for side in ("left", "right", "outline")} | _INSULATED
    domain = m.Domain.from_distance(anywhere(holes, rows), (cells, cells), columns / cells)
    problem = m.Problem(domain, "laplace", sides=sides)
    ranks = m.Ranks.of(communicator())
    with tempfile.TemporaryDirectory() as folder:
        path = ranks.bcast(str(Path(folder) / "holes.h5"))
        ranks.barrier()
        solution, seconds = timed(lambda: m.solve(problem, "exact", ranks=ranks, output=path))
        ranks.barrier()
    report = solution.report
    parts = ("setup", "iterate", "estimate", "assemble", "write")
    return {
        "iterations": str(report["iterations"]),
        "status": str(report["status"]),
        **{f"seconds: {name}": f"{report['seconds'][name]:.1f}" for name in parts},
        "seconds: whole solve": f"{seconds:.1f}",
        "peak memory of all ranks, GB": f"{report['peak_memory_bytes'] / 1e9:.2f}",
    }
