"""The error estimate against the true error, on random problems.

Sizes, boundary data, local solvers, methods, tolerances and ranks are drawn at random; the true
error is the root mean square over the nodes inside of the field against the fast sine transform.
Ranks: the ranks of the job in groups of one to four. Usually by ``mpiexec -n 4``.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from common import BENCHMARKS, publish, table
from serial import local_solver

from mosaicdd.cli.launch import world
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem as BoundaryValueProblem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.engine import Engine
from mosaicdd.solvers.references import solve_by_sine_transform
from mosaicdd.solvers.settings import SolveSettings

SOLVERS = ("exact", "laplace", "laplace-sdnet")
DATA = ("smooth", "white noise", "discontinuous", "corner-peaked")
_SPACING = 0.5 / 32
_MOST_RANKS = 4
_ROUNDING = 1e-13  # of the solution's size: errors below it are rounding, whatever is estimated
_METHODS = (
    {"levels": 1, "sweep": "phases"},
    {"levels": 1, "sweep": "phases", "accelerate": "anderson"},
    {"levels": 1, "sweep": "additive"},
    {"levels": 1, "sweep": "additive", "accelerate": "gmres"},
    {"levels": 1, "sweep": "additive", "accelerate": "anderson"},
    {},
    {"accelerate": "gmres"},
    {"accelerate": "anderson"},
)


@dataclass(frozen=True)
class Problem:
    """One random solve.

    Parameters
    ----------
    cells
        (y, x).
    seed
        Of the boundary data.
    """

    cells: tuple[int, int]
    data: str
    seed: int
    solver: str
    method: dict
    rtol: float
    ranks: int

    @classmethod
    def draw(cls, number: int, ranks: int) -> "Problem":
        """Draw a problem; local solvers and kinds of data take turns."""
        rng = np.random.default_rng(number)
        solver = SOLVERS[number % len(SOLVERS)]
        linear = solver != "laplace-sdnet"
        methods = [m for m in _METHODS if linear or m.get("accelerate") != "gmres"]
        method = methods[rng.integers(len(methods))]
        # A sweep of the network that is not linear takes a hundred times as long.
        largest = 128 if not linear and method.get("levels") == 1 else 400
        cells = tuple(int(16 * round(_log_uniform(rng, 32, largest) / 16)) for _ in range(2))
        subdomains = [n // 16 - 1 for n in cells]
        return cls(
            cells=cells,
            data=DATA[number // len(SOLVERS) % len(DATA)],
            seed=number,
            solver=solver,
            method=method,
            rtol=_log_uniform(rng, 1e-8, 1e-1),
            ranks=min(ranks, max(subdomains)),
        )

    def boundary(self) -> Boundary:
        """Return the boundary data."""
        grid, rng = Grid(self.cells, _SPACING), np.random.default_rng(self.seed)
        nodes = 2 * sum(self.cells)
        if self.data == "smooth":
            length = _log_uniform(rng, 2 * _SPACING, nodes * _SPACING / 8)
            return Boundary.of_gaussian_process(grid, seed=self.seed, length=length)
        if self.data == "white noise":
            return Boundary.of_gaussian_process(grid, seed=self.seed, amplitude=0.0, noise=1.0)
        if self.data == "discontinuous":
            jumps = np.sort(rng.choice(nodes, rng.integers(2, 10), replace=False))
            levels = rng.standard_normal(len(jumps) + 1)
            return Boundary.of_perimeter(levels[np.searchsorted(jumps, np.arange(nodes))], grid)
        distance = np.minimum(np.arange(nodes), nodes - np.arange(nodes)) * _SPACING
        width = _log_uniform(rng, _SPACING, 0.5)
        return Boundary.of_perimeter(np.exp(-distance / width), grid)


@dataclass(frozen=True)
class Outcome:
    """How a problem was solved.

    Parameters
    ----------
    estimate, error, size
        Root mean squares: estimated error, true error, true solution.
    """

    problem: Problem
    status: str
    estimate: float
    error: float
    size: float

    @property
    def ratio(self) -> float:
        """Estimated over true error."""
        return self.estimate / self.error


def solve(problem: Problem, ranks: Ranks) -> Outcome:
    """Solve a problem on all ranks."""
    solver = local_solver(problem.solver)
    lattice = Lattice(Grid(problem.cells, _SPACING), solver.subdomain)
    ranks = ranks.fitted(lattice.subdomains)
    settings = SolveSettings(rtol=problem.rtol, max_iterations=1000, **problem.method)
    boundary = problem.boundary()
    solution = Engine(
        Partition(solver.boxes(lattice.grid, (False,) * len(lattice.cells)), ranks),
        solver,
        settings,
    ).solve(boundary)
    truth = solve_by_sine_transform(BoundaryValueProblem(boundary.shape, LAPLACE, sides=boundary))
    difference = solution.field.numpy() - truth[solution.place]
    squares = ranks.sum(np.array([np.square(difference).sum()]))[0]
    inside = truth[1:-1, 1:-1]
    return Outcome(
        problem,
        solution.status,
        solution.error_estimate.rms,
        float(np.sqrt(squares / inside.size)),
        float(np.sqrt(np.mean(inside**2))),
    )


def study(numbers: range, everyone: Ranks) -> list[Outcome]:
    """Solve problems on groups of 1 to 4 ranks; all ranks get the outcomes."""
    outcomes = []
    sizes = range(1, min(_MOST_RANKS, everyone.size) + 1)
    problems = [Problem.draw(n, sizes[k % len(sizes)]) for k, n in enumerate(numbers)]
    for size in sizes:
        group, groups = everyone.rank // size, everyone.size // size
        ranks = everyone.split(group)
        mine = [problem for problem in problems if problem.ranks == size][group::groups]
        for problem in mine if group < groups else []:
            outcome = solve(problem, ranks)
            if ranks.is_root:
                outcomes.append(outcome)
        _wait(everyone)
    return [outcome for part in everyone.allgather(outcomes) for outcome in part]


def trustworthy(outcomes: list[Outcome]) -> tuple[float, float, list[Outcome]]:
    """Return the median ratio, the share below 1, and the converged runs 10 times above."""
    ratios = ratios_of(outcomes)
    wrong = [o for o in outcomes if o.status.startswith("converged") and _above(o)]
    return float(np.median(ratios)), float(np.mean(ratios < 1)), wrong


def ratios_of(outcomes: list[Outcome]) -> np.ndarray:
    """Return the ratios of estimated to true error, without errors that are rounding."""
    return np.array([o.ratio for o in outcomes if o.error > _ROUNDING * o.size])


def _above(outcome: Outcome) -> bool:
    return outcome.error > 10 * outcome.estimate and outcome.error > _ROUNDING * outcome.size


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _wait(ranks: Ranks) -> None:
    """Wait for all ranks without taking their processors."""
    if ranks.size == 1:
        return
    arrived = ranks.comm.Ibarrier()
    while not arrived.Test():
        time.sleep(0.01)


SMALL = {"count": 12}


def main(count: int = 200) -> None:
    """Run the study; publish the table and the histogram."""
    start = time.perf_counter()
    everyone = world()
    outcomes = study(range(count), everyone)
    if not everyone.is_root:
        return
    seconds = time.perf_counter() - start
    rows = [
        _row(solver, data, outcomes, lambda p, s=solver, d=data: (p.solver, p.data) == (s, d))
        for solver in SOLVERS
        for data in DATA
    ]
    rows += [
        _row("all", label, outcomes, lambda p, n=levels: p.method.get("levels", 2) == n)
        for levels, label in ((1, "one level"), (2, "two levels"))
    ]
    rows.append(_row("all", "all", outcomes, lambda p: True))
    header = ["local solver", "data", "runs", "min", "2 %", "median", "98 %", "max", "below 1"]
    median, below, wrong = trustworthy(outcomes)
    converged = sum(o.status.startswith("converged") for o in outcomes)
    note = (
        f"Median {median:.2f} (bound: 1 to 10), {below:.1%} below 1 (bound: 2 %), "
        f"{len(wrong)} of {converged} converged runs with a true error above 10 times its estimate "
        f"(bound: 0). {len(outcomes) - len(ratios_of(outcomes))} runs with an error below "
        f"{_ROUNDING:g} of the solution are left out. {seconds:.0f} s on {everyone.size} ranks."
        "\n\n![distribution](trust.png)"
    )
    title = f"error_estimate / true error on {count} random problems"
    publish("trust", title, table(header, rows), note)
    for outcome in sorted(outcomes, key=lambda o: o.ratio):
        if outcome.ratio < 1 or outcome.ratio > 10 or outcome in wrong:
            print(f"{outcome.ratio:.3g}", outcome)
    _draw(outcomes)


def _row(solver: str, data: str, outcomes: list, belongs: Callable[[Problem], bool]) -> list[str]:
    ratios = ratios_of([o for o in outcomes if belongs(o.problem)])
    numbers = [f"{q:.2f}" for q in np.quantile(ratios, (0, 0.02, 0.5, 0.98, 1))]
    return [solver, data, str(len(ratios)), *numbers, str(int((ratios < 1).sum()))]


def _draw(outcomes: list[Outcome]) -> None:
    """Draw the distribution of the ratios."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.add_subplot()
    ratios = [ratios_of([o for o in outcomes if o.problem.solver == s]) for s in SOLVERS]
    everything = np.concatenate(ratios)
    low, high = min(0.5, everything.min()), max(10.0, everything.max())
    axes.hist(ratios, np.geomspace(low, high, 40), stacked=True, label=SOLVERS)
    axes.axvspan(1, 10, color="0.9", zorder=0, label="1 to 10")
    axes.set(xscale="log", xlabel="error_estimate / true error", ylabel="runs")
    axes.legend()
    figure.savefig(BENCHMARKS / "trust.png", dpi=150)
