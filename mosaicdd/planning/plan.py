"""A plan: what a solve on so many ranks counts, takes and needs, and what would be better."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mosaicdd.lattice.axes import letters
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.sharing import directions
from mosaicdd.parallel.partition import Dims, fitting_dims
from mosaicdd.planning.cost import (
    IterationCost,
    Memory,
    SolveCost,
    gathered_bytes,
    iteration_cost,
    memory_of_rank,
    solve_cost,
)
from mosaicdd.planning.decomposition import (
    Decomposition,
    RankOrder,
    best_bricks,
    row_wise,
    traffic,
)
from mosaicdd.planning.rates import CompleteRates
from mosaicdd.schwarz.sizes import coarse_is_replicated

Candidate = TypeVar("Candidate")

HALOS = (1, 2, 3, 4)  # depths that are compared: deeper ones solve ever more subdomains twice
_DIMS_TRIED = 16  # the most compact ones
ITERATIONS = 9
"""Of a solve to the default tolerance with subdomains that are squares: benchmarks/solve_2048.md."""
EQUAL = 1.01  # a model of cost does not tell times apart that are closer than this


@dataclass(frozen=True)
class Job:
    """What is to be solved, on what; numbers are 1 or more."""

    lattice: Any  # what ranks get whole parts of: a `Lattice`; of media `NodeBoxes`
    ranks: int
    ranks_per_node: int  # ranks on a node
    iterations: int = ITERATIONS  # that a solve takes; they do not grow with the domain
    problems: int = 1  # to be solved on the same lattice
    values_given: bool = True  # on all sides of a rectangle or box

    @property
    def grid(self) -> Grid:
        """The grid of the domain."""
        return self.lattice.grid

    def __post_init__(self) -> None:
        for name in ("ranks", "ranks_per_node", "iterations", "problems"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class OrderPlan:
    """One order of the ranks: what leaves a node, and the seconds of an iteration."""

    order: RankOrder
    # messages_leaving, bytes_leaving: per iteration, over all nodes
    messages_leaving: int
    bytes_leaving: int
    most_bytes_leaving_a_node: int  # of the node that sends most
    iteration: IterationCost


@dataclass(frozen=True)
class Counts:
    """What is sent in one iteration; exact."""

    # messages, bytes: of the halo exchange, over all ranks
    messages: int
    bytes: int
    # most_messages, most_bytes: of the rank that sends most
    most_messages: int
    most_bytes: int
    # That arrive at every rank from the all-gather; where the coarse solve is shared, that a rank
    # sends in its redistributions
    gathered_bytes: int


@dataclass(frozen=True)
class Suggestion:
    """What takes the least time."""

    dims: Dims  # ranks per axis, (y, x)
    order: str  # of the ranks
    halo: int  # depth in lattice cells
    halo_seconds: dict[int, float]  # of an iteration at each depth that fits, by depth
    replicas: int  # groups of ranks that solve problems side by side
    seconds: float  # for all problems


@dataclass(frozen=True)
class Plan:
    """All about one job on given dims."""

    dims: Dims  # ranks per axis, (y, x)
    subdomains: tuple[int, ...]  # of the rank that owns the fewest, and the most
    replicated: bool  # whether every rank solves the whole coarse problem
    counts: Counts
    orders: tuple[OrderPlan, ...]
    memory: Memory
    best: OrderPlan  # of the orders of ranks, that with the shortest iteration; ``cost`` is for it
    cost: SolveCost
    serial: IterationCost  # the iteration on one rank
    suggestion: Suggestion

    @property
    def efficiency(self) -> float:
        """The iteration on one rank over that on all, per rank."""
        return self.serial.total / (math.prod(self.dims) * self.best.iteration.total)


def make_plan(job: Job, rates: CompleteRates, dims: Dims | None = None) -> Plan:
    """Plan a job by rates whose links are all known, on dims, (y, x); by default those of least time.

    `ValueError` if the ranks do not fit the lattice, or the rates are of subdomains of another number of axes.
    """
    axes, on_one = len(job.lattice.subdomains), (1,) * len(job.lattice.subdomains)
    if rates.axes != axes:
        raise ValueError(
            f"the rates of {rates.machine} are of {rates.local_solver}, on the axes {letters(rates.axes)}, the "
            f"domain's are {letters(axes)}; mosaicdd bench --local-solver measures others"
        )
    candidates = fitting_dims(job.ranks, job.lattice.subdomains)[:_DIMS_TRIED]
    fastest = _cheapest(
        [Decomposition(job.lattice, candidate) for candidate in candidates],
        lambda d: iteration_cost(d, row_wise(d.dims, job.ranks_per_node), rates).total,
        lambda d: sum(int(d.words(direction).sum()) for direction in directions(len(d.dims))),
    )
    chosen = fastest if dims is None else Decomposition(job.lattice, dims)
    orders = _order_plans(chosen, job, rates)
    best = _best_order(orders)
    alone = Decomposition(job.lattice, on_one)
    return Plan(
        dims=chosen.dims,
        subdomains=(int(chosen.subdomains.min()), int(chosen.subdomains.max())),
        replicated=coarse_is_replicated(math.prod(chosen.lattice.subdomains), chosen.ranks),
        counts=_counts(chosen, rates),
        orders=orders,
        memory=memory_of_rank(chosen, rates),
        best=best,
        cost=solve_cost(chosen, best.iteration, rates, job.iterations),
        serial=iteration_cost(alone, row_wise(on_one, 1), rates),
        suggestion=_suggest(fastest, job, rates),
    )


def _cheapest(
    candidates: Sequence[Candidate],
    seconds: Callable[[Candidate], Any],
    burden: Callable[[Candidate], Any],
) -> Candidate:
    """Choose what takes the least time, and of equals what has the least burden."""
    times = [seconds(candidate) for candidate in candidates]
    equals = [c for c, s in zip(candidates, times, strict=True) if s <= EQUAL * min(times)]
    return min(equals, key=burden)


def _best_order(orders: Sequence[OrderPlan]) -> OrderPlan:
    """Choose the order with the shortest iteration, of equals the one that leaves nodes least."""
    return _cheapest(orders, lambda order: order.iteration.total, lambda order: order.bytes_leaving)


def _order_plans(
    decomposition: Decomposition, job: Job, rates: CompleteRates
) -> tuple[OrderPlan, ...]:
    orders = (
        row_wise(decomposition.dims, job.ranks_per_node),
        best_bricks(decomposition, job.ranks_per_node),
    )
    return tuple(_order_plan(decomposition, order, rates) for order in orders)


def _order_plan(decomposition: Decomposition, order: RankOrder, rates: CompleteRates) -> OrderPlan:
    sent = traffic(decomposition.words, order)
    return OrderPlan(
        order=order,
        messages_leaving=int(sent.messages_leaving.sum()),
        bytes_leaving=int(sent.words_leaving.sum()) * rates.word,
        most_bytes_leaving_a_node=int(sent.words_leaving_node.max()) * rates.word,
        iteration=iteration_cost(decomposition, order, rates),
    )


def _counts(decomposition: Decomposition, rates: CompleteRates) -> Counts:
    words = [decomposition.words(direction) for direction in directions(len(decomposition.dims))]
    messages = np.sum([sent > 0 for sent in words], axis=0)
    size = np.sum(words, axis=0) * rates.word
    return Counts(
        messages=int(messages.sum()),
        bytes=int(size.sum()),
        most_messages=int(messages.max()),
        most_bytes=int(size.max()),
        gathered_bytes=gathered_bytes(decomposition),
    )


def _suggest(decomposition: Decomposition, job: Job, rates: CompleteRates) -> Suggestion:
    narrowest = min(
        (
            int(sides.min())
            for sides, dim in zip(decomposition.sides, decomposition.dims, strict=True)
            if dim > 1
        ),
        default=1,
    )
    order = _best_order(_order_plans(decomposition, job, rates)).order
    seconds = {
        halo: iteration_cost(decomposition, order, rates, halo).total
        for halo in HALOS
        if halo <= narrowest
    }
    replicas, total = _replicas(job, rates)
    return Suggestion(
        dims=decomposition.dims,
        order=order.name,
        halo=_cheapest(list(seconds), seconds.get, int),
        halo_seconds=seconds,
        replicas=replicas,
        seconds=total,
    )


def _replicas(job: Job, rates: CompleteRates) -> tuple[int, float]:
    """Return how many groups of ranks solve the problems soonest, and in which time."""
    options = []
    for groups in range(1, min(job.ranks, job.problems) + 1):
        if job.ranks % groups:
            continue
        try:
            dims = fitting_dims(job.ranks // groups, job.lattice.subdomains)[0]
        except ValueError:
            continue
        decomposition = Decomposition(job.lattice, dims)
        order = row_wise(dims, job.ranks_per_node)
        cost = solve_cost(
            decomposition, iteration_cost(decomposition, order, rates), rates, job.iterations
        )
        rounds = math.ceil(job.problems / groups)
        options.append((groups, cost.setup + rounds * (cost.total - cost.setup)))
    return min(options, key=lambda option: option[1])
