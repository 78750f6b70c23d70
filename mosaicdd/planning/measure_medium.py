"""Measures what a solve in a medium takes on this machine, on all ranks at the same time."""

import time

import torch

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.parallel.machine import peak_bytes
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.planning.medium import coarse_bytes
from mosaicdd.planning.rates import Curve, MediumRates
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.condensed.condensed_engine import CondensedEngine
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch

SIZES = (2, 4, 8, 16, 32)
"""Sides of the measured squares, in subdomains that do not overlap."""

_MEDIUM = {"a": "lognormal:seed=0,length=0.1,contrast=1e4", "f": 1.0}
_RUNS = 2  # of which the faster counts
_STEPS = ("setup", "factorise", "sweep", "coarse", "fill")


def measure_medium(ranks: Ranks, machine: str) -> MediumRates:
    """Measure solves of several sizes on a processor; all ranks call it together, each solves alone."""
    seconds, before = [], peak_bytes()
    for size in SIZES:
        runs = []
        for _ in range(_RUNS):
            ranks.barrier()
            runs.append(_solve(size))
        if size == SIZES[0]:
            before = peak_bytes()  # all is loaded that a solve needs
        seconds.append({step: ranks.largest(min(run[step] for run in runs)) for step in _STEPS})
    amounts = [(2 * size - 1) ** 2 for size in SIZES]
    taken = ranks.largest(float(peak_bytes() - before)) - coarse_bytes(amounts[-1])
    return MediumRates(
        machine=machine,
        **{step: Curve.rising(amounts, [of_size[step] for of_size in seconds]) for step in _STEPS},
        bytes_per_subdomain=max(taken / amounts[-1], 1.0),
    )


def _solve(size: int) -> dict[str, float]:
    """Return the seconds of the steps of a solve on a square of ``size`` subdomains' sides."""
    problem = Problem(Domain((size * 32,) * 2), "diffusion", _MEDIUM)
    grid, clock, alone = problem.domain.grid(), Stopwatch(), Ranks.alone()
    bound = Exact().condensed(problem, grid)
    lattice = Lattice(grid, bound.subdomain)
    start = time.perf_counter()
    engine = CondensedEngine(alone, lattice, bound, SolveSettings(rtol=1e-8), clock=clock)
    setup, factorise = time.perf_counter() - start, clock.seconds["coarse"]
    (solved,) = engine.solve_many(problem.boundaries(grid))
    coarse = bound.planned[engine.block].coarse
    residual = torch.zeros(1, len(bound.planned[engine.block].inside), dtype=torch.float64)
    start = time.perf_counter()
    coarse.solve(residual)
    once = time.perf_counter() - start
    iterations = len(solved.history.seconds)
    return {
        "setup": setup - factorise,
        "factorise": factorise,
        "sweep": max(solved.history.seconds[-1] / iterations - once, 1e-6),
        "coarse": once,
        "fill": solved.seconds["assemble"],
    }
