"""What a solve in a medium will cost: elements condensed once, then Krylov iterations on their edges.

A rank condenses the elements of its own block and, in each iteration, multiplies with them and with the
inverses of its stars. The coarse problem, three unknowns per lattice node, is put together, factorised
and solved by one rank of every machine, while the others wait: its seconds do not fall with more ranks, nor its
bytes with more machines. An iteration exchanges halos as one of constant coefficients does, and hides
nothing of it.
"""

import math
from dataclasses import dataclass

from mosaicdd.parallel.partition import Dims, fitting_dims
from mosaicdd.planning.cost import SolveCost, halo_seconds
from mosaicdd.planning.decomposition import Decomposition, row_wise, traffic
from mosaicdd.planning.plan import EQUAL, Job
from mosaicdd.planning.rates import CompleteRates, MediumRates, Summed

_DIMS_TRIED = 4  # the most compact ones
_DOUBLE = 8
_COARSE = 3  # unknowns per lattice node: a hat, and a mode for each of its two edges
_SUMS = 5  # numbers that the two reductions of an iteration add up, for one problem
_ASSEMBLED = 3000  # bytes of the coarse matrix, per lattice node, and of what is left of it while it is factorised


@dataclass(frozen=True)
class MediumMemory(Summed):
    """Bytes of the rank that needs most."""

    base: int  # the process itself: interpreter and libraries
    # Condensed elements, stars, vectors of the iteration and all else that a block has
    elements: int
    coarse: int  # the coarse problem and its factors


@dataclass(frozen=True)
class MediumPlan:
    """All about one job in a medium, on given dims."""

    dims: Dims  # ranks per axis, (y, x)
    subdomains: tuple[int, ...]  # of the rank that owns the fewest, and the most
    coarse_unknowns: int  # of the whole domain
    # messages, bytes: of an iteration's halo exchange, over all ranks
    messages: int
    bytes: int
    # That arrive at every rank from the coarse problem and the sums of an iteration
    gathered_bytes: int
    iteration: dict[str, float]  # seconds, of parts: ``sweep``, ``coarse``, ``gather``, ``halo``
    memory: MediumMemory
    cost: SolveCost  # of the first solve
    again: float  # seconds of a further one in the same medium, without writing


def plan_medium(job: Job, rates: CompleteRates, dims: Dims | None = None) -> MediumPlan:
    """Plan a job in a medium on dims, (y, x); by default those of least time, of equals the most compact.

    `ValueError` if the ranks do not fit the lattice, or the rates know nothing of media.
    """
    known = rates.medium
    if known is None:
        raise ValueError(
            f"the rates of {rates.machine} are not known for media; mosaicdd bench measures them on a "
            "processor, in float64"
        )
    tried = fitting_dims(job.ranks, job.lattice.subdomains) if dims is None else [dims]
    plans = [_on_dims(job, rates, known, candidate) for candidate in tried[:_DIMS_TRIED]]
    least = min(plan.cost.total for plan in plans)
    return next(plan for plan in plans if plan.cost.total <= EQUAL * least)


def _on_dims(job: Job, rates: CompleteRates, known: MediumRates, dims: Dims) -> MediumPlan:
    decomposition = Decomposition(job.lattice, dims)
    order = row_wise(dims, job.ranks_per_node)
    nodes, most = math.prod(job.lattice.subdomains), int(decomposition.subdomains.max())
    sent = traffic(decomposition, order)
    words = int(sent.words.sum() + sent.words_leaving.sum())
    gathered = 0 if job.ranks == 1 else _DOUBLE * (_COARSE * nodes + _SUMS * job.ranks)
    iteration = {
        "sweep": float(known.sweep(most)),
        "coarse": float(known.coarse(nodes)),
        "gather": _gather_seconds(gathered, job, rates),
        "halo": float(halo_seconds(decomposition, order, rates, 1).max()),
    }
    each = sum(iteration.values())
    field = math.prod(job.lattice.grid.nodes) * rates.word
    foreign = field * (1 - 1 / job.ranks)  # collected by the rank that writes
    cost = SolveCost(
        setup=float(known.setup(most) + known.factorise(nodes)),
        iterate=job.iterations * each,
        estimate=each,
        fill=float(known.fill(most)) + foreign / rates.within_node.bandwidth,
        write=field / rates.write,
    )
    return MediumPlan(
        dims=dims,
        subdomains=(int(decomposition.subdomains.min()), most),
        coarse_unknowns=_COARSE * nodes,
        messages=int(sent.messages.sum() + sent.messages_leaving.sum()),
        bytes=words * rates.word,
        gathered_bytes=gathered,
        iteration=iteration,
        memory=MediumMemory(
            base=rates.base_bytes,
            elements=int(known.bytes_per_subdomain * most),
            coarse=coarse_bytes(nodes),
        ),
        cost=cost,
        again=cost.total - cost.setup - cost.write,
    )


def coarse_bytes(nodes: int) -> int:
    """Return the memory of the coarse problem over so many lattice nodes, on the rank that solves it.

    The numbers of its factors rise by 14 a node where the nodes double: counted in a smooth medium from
    256 x 256 to 2048 x 2048 cells, where they are 187, 209, 237 and 260. Where most edges have a second
    mode they are up to three times as many.
    """
    numbers = 14 * math.log2(nodes) + 76 if nodes > 1 else 3
    return int(nodes * (_DOUBLE * numbers + _ASSEMBLED))


def _gather_seconds(size: int, job: Job, rates: CompleteRates) -> float:
    """Return the seconds of an iteration's all-gather and its two reductions."""
    if job.ranks == 1:
        return 0.0
    links = [rates.gather]
    if job.ranks > job.ranks_per_node:
        links.append(rates.between_nodes)
    stages = math.ceil(math.log2(job.ranks))
    latency = max(link.latency for link in links)
    return 3 * stages * latency + size / min(link.bandwidth for link in links)
