"""What the ranks tell each other, after Algorithm 1, section 4 and Fig. 9 of the paper.

*Reductions*: a training step with both losses on two ranks, its gradient reduced once (the paper, and
this package) or after each loss. *Overlap*: an iteration on two ranks whose halos travel while inner
subdomains are solved, or are waited for at once. *Counts*: the subdomains of a rank, and what it sends in
an exchange, on 1 to 32 ranks: exact for any number of them, where no more than two can be timed.
"""

import time
import tomllib
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch
from common import ROOT, in_process, write_csv
from serial import local_solver

from mosaicdd.cli.launch import world
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.halo import directions
from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.planning.counts import Decomposition
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.interface import Interface
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.training.losses import pass_loss, residual_of
from mosaicdd.training.objective import Objective, ParallelObjective, RankGroup, rank_group
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings

_RECIPE = ROOT / "data" / "paper.toml"
_RANKS = (1, 2, 4, 8, 16, 32)
_STRONG, _WEAK = (2048, 2048), (512, 1024)  # the paper's; cells in all, and per rank
_SAMPLES, _POINTS = 32, 64  # of a rank's share of a batch
_ROUNDS = 30
_CELLS = 1024  # of the problem whose halos travel

SMALL = {}


def main(*, only: list[str] = ("reductions", "overlap", "counts")) -> None:
    """Measure and count; write ``reductions``, ``overlap`` and ``counts``."""
    for name in only:
        rows = _counts() if name == "counts" else in_process(_JOBS[name], ranks=2)
        write_csv(name, _HEADERS[name], rows)
        print(*rows, sep="\n", flush=True)


def _reductions() -> list[list]:
    """Time steps whose gradient is reduced once, and twice, in turn."""
    with rank_group(world()) as ranks:
        parallel, passes = _step(ranks)
        weights = sum(w.numel() for w in parallel.objective.weights())
        ways = {
            1: lambda: parallel.backward(passes, [0.0] * 3),
            2: lambda: _twice(parallel, passes),
        }
        seconds = _in_turn(list(ways.values()), lambda: ranks.sum([0.0]))
    return [
        [count, 4 * weights * count, f"{1e3 * median(times):.2f}"]
        for count, times in zip(ways, seconds, strict=True)
    ]


def _step(ranks: RankGroup) -> tuple[ParallelObjective, list[Pass]]:
    """Return the paper's network on these ranks, and both passes of a step."""
    torch.manual_seed(0)
    subdomain = Subdomain()
    network = build_network("sdnet", tomllib.loads(_RECIPE.read_text())["settings"], subdomain)
    settings = TrainingSettings(pde_weight=1.0)
    residual = residual_of(network, LAPLACE.at(), subdomain, settings)
    objective = Objective(network, pass_loss(network, settings, residual))
    g = torch.randn(_SAMPLES, 4 * subdomain.cells)
    points, others = (2 * torch.rand(_POINTS, 2) - 1 for _ in range(2))
    passes = [Pass(g, 1.0, points, torch.randn(_SAMPLES, _POINTS)), Pass(g, 1.0, others)]
    return ParallelObjective(objective, ranks, ExecutionSettings()), passes


def _twice(parallel: ParallelObjective, passes: list[Pass]) -> None:
    """Reduce the gradient after each pass: the mean of what is there and what comes is the same."""
    parallel.module.zero_grad(set_to_none=True)
    for part in passes:
        parallel.module(part).backward()


def _overlap() -> list[list]:
    """Time iterations whose halos travel while the ranks work, and those that wait for them."""
    ranks, rows = world(), []
    for name in ("laplace", "laplace-sdnet"):
        advance = _Iteration(ranks, name)
        ways = {
            "while inner subdomains are solved": lambda: None,
            "waited for at once": advance.finish,
        }
        seconds = _in_turn([partial(advance, way) for way in ways.values()], ranks.barrier)
        for way, times in zip(ways, seconds, strict=True):
            rows.append([name, way, f"{1e3 * ranks.largest(median(times)):.2f}"])
    return rows


class _Iteration:
    """One iteration after another on the ranks, the halos of the last one still travelling."""

    def __init__(self, ranks: Ranks, name: str):
        solver = ranks.on_root(lambda: local_solver(name))
        lattice = Lattice(Grid((_CELLS, _CELLS), solver.subdomain.spacing), solver.subdomain)
        engine = Engine(
            Partition(
                solver.boxes(lattice.grid, (False,) * len(lattice.cells)),
                ranks.fitted(lattice.subdomains),
            ),
            solver,
            SolveSettings(),
        )
        boundary = Boundary.of_gaussian_process(lattice.grid, seed=0)
        self._values = [Interface(engine.block, **engine.settings.tensors) for _ in range(2)]
        for v in self._values:
            v.impose([boundary])
        self._iterate = engine.iterate
        self._iterate.begin(self._values[0])

    def __call__(self, then: Callable[[], None]) -> None:
        old, new = self._values
        self._iterate.advance(old, new)
        then()
        self._values.reverse()

    def finish(self) -> None:
        """Wait for the halos."""
        self._iterate.finish()


def _in_turn(
    calls: list[Callable[[], object]], together: Callable[[], object]
) -> list[list[float]]:
    """Return the seconds of calls that take turns, each begun together."""
    spent = [[] for _ in calls]
    for round_ in range(1 + _ROUNDS):
        for call, times in zip(calls, spent, strict=True):
            together()
            start = time.perf_counter()
            call()
            if round_:
                times.append(time.perf_counter() - start)
    return spent


def _counts() -> list[list]:
    """Count what the busiest rank has and sends, with the paper's sizes."""
    rows = []
    for study in ("strong", "weak"):
        for ranks in _RANKS:
            dims = fitting_dims(ranks, (2**20, 2**20))[0]
            cells = _STRONG if study == "strong" else tuple(np.multiply(_WEAK, dims).tolist())
            lattice = Lattice(Grid(cells, 0.5 / 32), Subdomain())
            blocks = Decomposition(lattice, dims)
            words = [blocks.words(direction) for direction in directions(2)]
            messages, values = (np.sum(n, axis=0).max() for n in ([w > 0 for w in words], words))
            size = "x".join(map(str, reversed(cells)))
            rows.append([study, ranks, size, blocks.subdomains.max(), messages, 8 * values])
    return rows


_JOBS = {"reductions": _reductions, "overlap": _overlap}
_HEADERS = {
    "reductions": ["reductions of a step", "bytes reduced", "milliseconds"],
    "overlap": ["local solver", "halos", "milliseconds per iteration"],
    "counts": ["study", "ranks", "cells", "subdomains of a rank", "messages", "bytes"],
}
