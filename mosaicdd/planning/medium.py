"""What a solve in a medium will cost, by multigrid, in the plane and in space.

A rank iterates on its box of each level and on copies of its neighbours' nodes around it, which an exchange
refreshes on the way down and on the way up. A level so small that boxes would be narrower than that is added up over all ranks,
each of which has all of it from there on: no rank waits for another one that computes alone. In an iteration there are
three sums of a few numbers besides, and nothing of the messages is hidden.

The boxes are those of the engine (`schwarz.multigrid.level_partition`), so messages and bytes are exact.
"""

import math
from dataclasses import dataclass

import numpy as np

from mosaicdd.grid.partition import NodeBoxes
from mosaicdd.lattice.axes import letters
from mosaicdd.local_solvers.exact import EQUATIONS_IN_SPACE, MULTIGRID, PER_PROBLEM, WAVES
from mosaicdd.parallel.partition import Dims, fitting_dims
from mosaicdd.planning.cost import SolveCost, halo_seconds, link_of_all, seconds_of_file
from mosaicdd.planning.decomposition import RankOrder, row_wise, traffic
from mosaicdd.planning.plan import EQUAL, Job
from mosaicdd.planning.rates import CompleteRates, Summed
from mosaicdd.schwarz.multigrid.level_partition import LevelPartition

_DIMS_TRIED = 4  # the most compact ones
_DOUBLE, _SINGLE = 8, 4  # bytes: of sums, of values on a cycle's way
_SUMS = 3  # of an iteration, over all ranks


@dataclass(frozen=True)
class MediumMemory(Summed):
    """Bytes of the rank that needs most."""

    base: int  # the process itself: interpreter and libraries
    levels: int  # of all levels: equations, interpolation, vectors


@dataclass(frozen=True)
class LevelPlan:
    """One level."""

    nodes: int  # of the whole domain
    most: int  # of them in the largest box of a rank, copies included


@dataclass(frozen=True)
class MediumPlan:
    """All about one job in a medium, on given dims."""

    dims: Dims  # ranks per axis, in the order of the grid's
    # That boxes share out, and the first one that each rank has all of
    levels: tuple[LevelPlan, ...]
    # messages, bytes: of an iteration's exchanges, over all ranks
    messages: int
    bytes: int
    # Of the level that is added up over the ranks, and of the sums of an iteration
    gathered_bytes: int
    iteration: dict[str, float]  # seconds, of parts: ``levels``, ``halo``, ``sums``
    efficiency: float  # the iteration on one rank over that on all, per rank
    memory: MediumMemory
    # Of what the busiest rank's levels take, over one that had no copies and the mean of the nodes
    memory_over_share: float
    cost: SolveCost  # of the first solve
    again: float  # seconds of a further one in the same medium, without writing


def plan_medium(job: Job, rates: CompleteRates, dims: Dims | None = None) -> MediumPlan:
    """Plan a job in a medium on dims, as the grid's axes; by default those of least time, of equals the most compact.

    `ValueError` if the ranks do not fit the grid, or the rates know nothing of media.
    """
    axes = len(job.grid.shape)
    if axes not in {of_medium.axes for of_medium in rates.media}:
        raise ValueError(
            f"the rates of {rates.machine} are not known for media on the axes {letters(axes)}; mosaicdd bench "
            "measures them on a processor, in float64"
        )
    tried = fitting_dims(job.ranks, job.lattice.counts) if dims is None else [dims]
    plans = [_on_dims(job, rates, candidate) for candidate in tried[:_DIMS_TRIED]]
    least = min(plan.cost.total for plan in plans)
    return next(plan for plan in plans if plan.cost.total <= EQUAL * least)


def bytes_by_transforms(job: Job, rates: CompleteRates) -> int:
    """Return the bytes of a rank where coefficients are numbers, and transforms solve in the place of levels."""
    in_space = EQUATIONS_IN_SPACE * (not job.values_given and len(job.grid.shape) == 3)
    each = WAVES + in_space + PER_PROBLEM * job.problems
    return rates.base_bytes + int(each * math.prod(job.grid.nodes) / job.ranks)


def levels_on(boxes: NodeBoxes, dims: Dims, *, values_given: bool) -> list[LevelPartition]:
    """Return how ranks on dims share out the levels, down to the first that every one has all of.

    ``values_given``: on all sides of a rectangle or box.
    """
    ranges = boxes.unknown_ranges(boxes.along(dims), values_given=values_given)
    levels = [LevelPartition(ranges, 2, boxes.periodic)]
    while levels[-1].several:
        levels.append(levels[-1].coarser())
    return levels


def _on_dims(job: Job, rates: CompleteRates, dims: Dims) -> MediumPlan:
    axes = len(dims)
    known = next(of_medium for of_medium in rates.media if of_medium.axes == axes)
    *several, together = levels_on(job.lattice, dims, values_given=job.values_given)
    order = row_wise(dims, job.ranks_per_node)
    exchanges = [(2 + shares.twice, traffic(shares.sent, order)) for shares in several]
    most = [int(shares.held().max()) for shares in (*several, together)]
    gathered = _DOUBLE * (together.count + _SUMS) if several else 0

    # What one rank takes for so many nodes is for a level of them and all below.
    in_levels = float(known.iteration(most[-1]))
    in_levels += sum(float(known.iteration(n) - known.iteration(n / 2**axes)) for n in most[:-1])
    iteration = {
        "levels": in_levels,
        "halo": sum(
            times * float(halo_seconds(sent, rates, _SINGLE).max()) for times, sent in exchanges
        ),
        "sums": _sum_seconds(gathered, order, rates),
    }
    each = sum(iteration.values())
    nodes = (several or [together])[0].count
    # A level has 2**axes times as many as the one below.
    on_one, share_of_one = sum(most) * (1 - 0.5**axes), nodes / job.ranks
    collect, write = seconds_of_file(job.grid, job.ranks, rates)
    cost = SolveCost(
        setup=float(known.setup(on_one)),
        iterate=job.iterations * each,
        estimate=each,
        fill=float(known.fill(share_of_one)) + collect,
        write=write,
    )
    return MediumPlan(
        dims=dims,
        levels=tuple(
            LevelPlan(shares.count, held)
            for shares, held in zip((*several, together), most, strict=True)
        ),
        messages=sum(
            times * _all(sent.messages, sent.messages_leaving) for times, sent in exchanges
        ),
        bytes=sum(times * _all(sent.words, sent.words_leaving) for times, sent in exchanges)
        * _SINGLE,
        gathered_bytes=gathered,
        iteration=iteration,
        efficiency=float(known.iteration(nodes)) / (job.ranks * each),
        memory=MediumMemory(base=rates.base_bytes, levels=int(MULTIGRID * on_one)),
        memory_over_share=on_one / share_of_one,
        cost=cost,
        again=cost.total - cost.setup - cost.write,
    )


def _all(within: np.ndarray, leaving: np.ndarray) -> int:
    return int(within.sum() + leaving.sum())


def _sum_seconds(gathered: int, order: RankOrder, rates: CompleteRates) -> float:
    """Return the seconds of an iteration's sums over all ranks, that of a whole level included."""
    if order.node.size == 1:
        return 0.0
    link, stages = link_of_all(order, rates)
    # There and back, as a sum is reduced and handed out.
    return (1 + _SUMS) * stages * link.latency + 2 * gathered / link.bandwidth
