"""The seconds of a solve and the memory of a rank, from counts and rates.

One iteration of the two-level method on the slowest rank: its subdomains swept, one all-gather of
the lattice nodes, the coarse solve that every rank does, and the halo exchange, of which the
subdomains inside of the block hide a part. With many lattice nodes (`coarse_is_replicated`) the
coarse solve is shared: four redistributions, in each of which a rank sends its nodes once, from
blocks to rows, to columns, to rows, and back to blocks.

A halo of depth k is exchanged in every k-th iteration; in between, the rings of subdomains beyond
the own ones are computed twice, k - 1 rings after the exchange and none before the next.

All links of the rates must be known; `rates.completed` sees to that.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import letters
from mosaicdd.lattice.grid import Grid
from mosaicdd.planning.decomposition import Decomposition, RankOrder, Traffic, traffic
from mosaicdd.planning.rates import CompleteRates, Link, Summed
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sizes import coarse_is_replicated, count_of_sums, fill_batch

_DOUBLE = 8
_REDISTRIBUTIONS = 4  # of a coarse solve that is shared, see `parallel.sine_solve`
_VECTORS = 2  # interfaces: the last one and the next; then the last one and that of the fill, whose halo is its own
_COARSE_ARRAYS = 4  # residual, symbol, correction, and what the transforms work in


@dataclass(frozen=True)
class IterationCost(Summed):
    """Seconds of one iteration on the slowest rank."""

    sweep: float  # local solves, the coarse correction swept, and norms
    coarse: float  # sine transforms
    gather: float  # the all-gather, or the redistributions of a shared coarse solve
    halo: float  # the halo exchange
    hidden: float  # the part of it during which the rank sweeps

    @property
    def total(self) -> float:
        """All of it, but for what is hidden."""
        return self.sweep + self.coarse + self.gather + (self.halo - self.hidden)


@dataclass(frozen=True)
class SolveCost(Summed):
    """Seconds of a whole solve on the slowest rank, without the start of the program."""

    setup: float  # planning
    iterate: float  # all iterations
    estimate: float  # the error estimate
    fill: float  # the field at all nodes, and its way to the first rank
    write: float  # the solution file, by the first rank


@dataclass(frozen=True)
class Memory(Summed):
    """Bytes of the rank that needs most."""

    base: int  # the process itself: interpreter and libraries
    interface: int  # interface vectors
    coarse: int  # arrays over the lattice nodes, replicated or this rank's share
    buffers: int  # perimeters and values of a batch of subdomains
    strip: int  # the rows of the field that a batch of subdomains fills


def gathered_bytes(decomposition: Decomposition) -> int:
    """Count the bytes that the coarse solve moves per rank and iteration.

    Replicated: what arrives at every rank from the all-gather, the nodes and sums of all. Shared:
    what the rank that owns most sends in the redistributions, and the sums that arrive.
    """
    if decomposition.ranks == 1:
        return 0
    norms = decomposition.ranks * count_of_sums(1) * _DOUBLE
    if _is_replicated(decomposition):
        return math.prod(decomposition.lattice.subdomains) * _DOUBLE + norms
    return _REDISTRIBUTIONS * int(decomposition.subdomains.max()) * _DOUBLE + norms


def iteration_cost(
    decomposition: Decomposition, order: RankOrder, rates: CompleteRates, halo: int = 1
) -> IterationCost:
    """Return the seconds of one iteration, with a halo of so many lattice cells, no wider than a block."""
    _require_wide_blocks(decomposition, halo)
    sweep = np.mean([rates.sweep(_with_rings(decomposition, k)) for k in range(halo)], axis=0)
    sent = traffic(functools.partial(decomposition.words, halo=halo), order)
    exchange = halo_seconds(sent, rates, rates.word) / halo
    inner = [
        np.maximum(0, n - ends)
        for n, ends in zip(decomposition.sides, decomposition.open_ends, strict=True)
    ]
    inside = functools.reduce(np.multiply, inner) / decomposition.subdomains
    hidden = np.minimum(exchange, sweep * inside)
    slowest = np.unravel_index(np.argmax(sweep + exchange - hidden), sweep.shape)
    coarse, gather = _coarse_seconds(decomposition, order, rates)
    return IterationCost(
        sweep=float(sweep[slowest]),
        coarse=coarse,
        gather=gather,
        halo=float(exchange[slowest]),
        hidden=float(hidden[slowest]),
    )


def solve_cost(
    decomposition: Decomposition, iteration: IterationCost, rates: CompleteRates, iterations: int
) -> SolveCost:
    """Return the seconds of a whole solve with so many iterations."""
    most = decomposition.subdomains.max()
    collect, write = seconds_of_file(decomposition.lattice.grid, decomposition.ranks, rates)
    return SolveCost(
        setup=float(rates.setup(most)),
        iterate=iterations * iteration.total,
        estimate=float(rates.estimate(most)) + iteration.coarse + iteration.gather,
        fill=float(rates.fill(most)) + collect,
        write=write,
    )


def seconds_of_file(grid: Grid, ranks: int, rates: CompleteRates) -> tuple[float, float]:
    """Return the seconds until the rank that writes has the field, and those of writing it."""
    field = math.prod(grid.nodes) * rates.word
    return field * (1 - 1 / ranks) / rates.within_node.bandwidth, field / rates.write


def memory_of_rank(decomposition: Decomposition, rates: CompleteRates) -> Memory:
    """Return the memory of the rank that needs most."""
    lattice = decomposition.lattice
    m, word, axes = lattice.subdomain.cells, rates.word, len(decomposition.dims)
    owned = int(decomposition.subdomains.max())
    coarse_nodes = math.prod(lattice.subdomains)
    if not _is_replicated(decomposition):
        coarse_nodes = max(owned, math.ceil(coarse_nodes / _coarse_workers(decomposition)))
    batch = SolveSettings(device=rates.device).batch_subdomains
    inside = (m - 1) ** axes
    perimeter = (m + 1) ** axes - inside
    swept = min(batch, owned) * (perimeter + axes * (m - 1) ** (axes - 1))
    filled = min(fill_batch(batch), owned) * (perimeter + inside)
    columns = math.prod(int(region.max()) for region in decomposition.region[1:])
    rows = 2 + max(1, fill_batch(batch) * m ** (axes - 1) // columns) * m
    return Memory(
        base=rates.base_bytes,
        interface=_VECTORS * int(decomposition.interface.max()) * word,
        coarse=_COARSE_ARRAYS * coarse_nodes * _DOUBLE,
        buffers=(swept + filled) * word,
        strip=min(rows, int(decomposition.region[0].max())) * columns * word,
    )


def _coarse_workers(decomposition: Decomposition) -> int:
    """Count the ranks that share a coarse solve: there are rows and columns for no more."""
    return min(decomposition.ranks, *decomposition.lattice.subdomains[:2])


def _require_wide_blocks(decomposition: Decomposition, halo: int) -> None:
    dims = decomposition.dims
    for name, sides, dim in zip(letters(len(dims)), decomposition.sides, dims, strict=True):
        if dim > 1 and sides.min() < halo:
            raise ValueError(
                f"a halo of depth {halo} needs blocks of {halo} subdomains at least, there are "
                f"some of {sides.min()} along {name}; use fewer ranks or a halo of depth 1"
            )


def _with_rings(decomposition: Decomposition, rings: int) -> np.ndarray:
    """Count the subdomains of every rank with rings of its neighbours' around, ``(py, px)``."""
    sides = zip(decomposition.sides, decomposition.open_ends, strict=True)
    return functools.reduce(np.multiply, (n + rings * ends for n, ends in sides))


def halo_seconds(sent: Traffic, rates: CompleteRates, word: int) -> np.ndarray:
    """Return the seconds of one exchange for every rank, of words of so many bytes."""
    network = rates.between_nodes
    messages = sent.messages + sent.messages_leaving
    size = (sent.words + sent.words_leaving) * word
    seconds = rates.within_node.seconds(sent.messages, sent.words * word)
    seconds = seconds + network.seconds(sent.messages_leaving, 0)
    # The ranks of a node share its network.
    seconds += np.where(
        sent.messages_leaving > 0, sent.words_leaving_node * word / network.bandwidth, 0.0
    )
    seconds += rates.pack * messages + 4 * size / rates.copy  # read and written, there and back
    if rates.staging is not None:
        seconds += rates.staging.seconds(2 * (messages > 0), 2 * size)
    return seconds


def _coarse_seconds(
    decomposition: Decomposition, order: RankOrder, rates: CompleteRates
) -> tuple[float, float]:
    """Return the seconds of the transforms and of the messages of a coarse solve."""
    nodes = math.prod(decomposition.lattice.subdomains)
    transform = float(rates.transform(nodes))
    if decomposition.ranks == 1:
        return transform, 0.0
    several_nodes = order.node.max() > 0
    all_gather, stages = link_of_all(order, rates)
    if _is_replicated(decomposition):
        size = gathered_bytes(decomposition)
        return transform, all_gather.seconds(stages, size) + _staged(rates, size)
    workers = _coarse_workers(decomposition)
    share = math.ceil(nodes / workers) * _DOUBLE
    own = max(*(int(side.max()) for side in decomposition.sides), *decomposition.dims)
    messages = (_REDISTRIBUTIONS - 1) * min(own, workers) + workers - 1
    link = rates.between_nodes if several_nodes else rates.within_node
    sharing = np.bincount(order.node.ravel()).max() if several_nodes else 1
    seconds = link.latency * messages
    seconds += _REDISTRIBUTIONS * (sharing * share / link.bandwidth + _staged(rates, share))
    norms = decomposition.ranks * count_of_sums(1) * _DOUBLE
    return transform / workers, seconds + all_gather.seconds(stages, norms)


def link_of_all(order: RankOrder, rates: CompleteRates) -> tuple[Link, int]:
    """Return what joins all ranks, several, at its slowest, and how often it is passed one after another."""
    links = [rates.gather] + [rates.between_nodes] * bool(order.node.max() > 0)
    slowest = Link(max(link.latency for link in links), min(link.bandwidth for link in links))
    return slowest, math.ceil(math.log2(order.node.size))


def _is_replicated(decomposition: Decomposition) -> bool:
    return coarse_is_replicated(math.prod(decomposition.lattice.subdomains), decomposition.ranks)


def _staged(rates: CompleteRates, size: float) -> float:
    """Return the seconds from the device to the host and back."""
    return 0.0 if rates.staging is None else rates.staging.seconds(2, 2 * size)
