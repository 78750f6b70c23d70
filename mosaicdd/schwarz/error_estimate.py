"""The error of a result, known without the truth.

One two-level iteration ``M`` with the *exact* local solver, from the result ``v``, costs one sweep.
It contracts the distance to the discrete solution ``u`` to a fraction ``rho``, so its update is
``(I - G) (u - v)`` and the error at most ``1 / (1 - rho)`` times as large. This sees everything that
separates ``v`` from ``u`` on the lattice lines: iterations that were not done, and the network's own
error.

That is so of what such iterations have left, in which the eigenvectors of the largest eigenvalues are. A network
errs in any direction, and ``G`` is far from normal: what a network gets wrong between the lattice
nodes, in each subdomain alike, makes a smooth error of the whole domain, which the coarse problem sees
when one sweep has brought it to the lattice nodes. On 80 x 80 cells ``(I - G)^-1`` has the norm 22, ``(I - G^2)^-1``
4.3, ``(I - G^3)^-1`` 1.5, and these grow with the squared number of subdomains along a side. So the iteration is
repeated until its last update is a small part of all that it has moved.

Inside, what is wrong between the lines is wrong on them, too; but rough boundary data fade before they
reach the first line, and with them the error. So in the tiles along the edge, from which the field is
filled there, the local solver is compared with the exact one at all nodes (`plan_edge_error`), and what it
gets wrong comes on top.

Certified mode: from any start to a discrete residual that is measured, not believed.

The two-level iteration with the exact local solver goes on from the network's answer until the
filled field satisfies the discrete equation, ``|A u| <= rtol |b|``. It converges from any start, at
a rate that does not depend on the domain; a start that is not finite is replaced by zero.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.block import Block, Tiles, owned_tiles
from mosaicdd.schwarz.fixed_point import Iteration
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.bound import Plan, SharedSolver
from mosaicdd.schwarz.local_solvers.exact import linear_plan
from mosaicdd.schwarz.monitor import Monitor
from mosaicdd.schwarz.transfer import Transfer
from mosaicdd.solvers.outcome import Certificate, ErrorEstimate
from mosaicdd.tensors import Tensors

_BATCH = 64  # subdomains of all problems: their values at all nodes stay in the cache
EdgeError = Callable[[Interface], np.ndarray]


def plan_edge_error(
    ranks: Ranks,
    block: Block,
    local_solver: SharedSolver,
    exact: SharedSolver,
    **tensors: Unpack[Tensors],
) -> EdgeError:
    """Plan the error of a local solver against the exact one in the tiles along the domain's edge.

    It gives the root mean square of the difference over the nodes inside the domain, ``(n,)``.
    """
    if local_solver.exact:
        return lambda v: np.zeros(v.problems)
    subdomain, lattice = local_solver.subdomain, block.lattice
    plans = [solver.plan(subdomain.interior, **tensors) for solver in (local_solver, exact)]
    # Of cubes both are applied: each has symmetries that halve its products thrice, what is left of rounding has none.
    if local_solver.linear and subdomain.axes == 2:
        plans = [_difference(plans, subdomain, **tensors)]
    transfer = Transfer(block, **tensors)
    m, s, nodes = subdomain.cells, lattice.spacing, len(subdomain.perimeter)

    def squares(v: Interface, tiles: tuple[Tiles, ...]) -> np.ndarray:
        """Return the sum of the squares of the differences inside tiles, ``(n,)``."""
        count, axes = v.problems * math.prod(run.count for run in tiles), len(tiles)
        perimeters = torch.empty(count, nodes, **tensors)
        batch = tuple(run.subdomains(block, axis) for axis, run in enumerate(tiles))
        transfer.restrict(v, batch, perimeters)
        values = [torch.empty(count, (m - 1) ** axes, **tensors) for _ in plans]
        for plan, out in zip(plans, values, strict=True):
            plan(perimeters, out)
        difference = values[0] if len(values) == 1 else torch.sub(*values, out=values[0])
        inside = difference.view(v.problems, -1, *[m - 1] * axes)
        filled = inside[:, :, *(slice(m - run.cells * s, m - 1) for run in tiles)]
        return filled.square().flatten(1).sum(dim=1).double().cpu().numpy()

    def edge_error(v: Interface) -> np.ndarray:
        total = np.zeros(v.problems)
        for tiles in _edge_tiles(block, max(1, _BATCH // v.problems)):
            total += squares(v, tiles)
        inside = math.prod(n - 1 for n in lattice.grid.shape)
        return np.sqrt(ranks.sum(total) / inside)

    return edge_error


def _difference(plans: Sequence[Plan], subdomain: Subdomain, **tensors: Unpack[Tensors]) -> Plan:
    """Plan the difference of two linear local solvers: half of the work of both."""
    unit = torch.eye(len(subdomain.perimeter), **tensors)
    values = unit.new_empty(len(unit), len(subdomain.interior))
    operators = []
    for plan in plans:
        plan(unit, values)
        operators.append(values.mT.cpu().numpy().copy())
    predicted, exact = operators
    return linear_plan(predicted - exact, subdomain.interior, subdomain, **tensors)


def _edge_tiles(block: Block, largest: int) -> Iterator[tuple[Tiles, ...]]:
    """Yield the owned tiles along the domain's edge, a run per axis, at most ``largest`` together."""
    runs = [_runs(block, axis) for axis in range(len(block.cells))]
    for pieces in itertools.product(*runs):
        if any(at_edge for _, at_edge in pieces):
            yield from _split(tuple(run for run, _ in pieces), largest)


def _runs(block: Block, axis: int) -> list[tuple[Tiles, bool]]:
    """Return runs of owned tiles along an axis, each with whether it is the domain's first or last tile."""
    pieces, last = [], block.lattice.cells[axis]
    for run in owned_tiles(block, axis):
        low, high = int(run.line == 0), int(run.end == last)
        if run.count == 1:
            pieces.append((run, bool(low or high)))
            continue
        between = Tiles(run.line + low * run.cells, run.count - low - high, run.cells)
        pieces += [(Tiles(0, 1, run.cells), True)] * low
        pieces += [(between, False)] if between.count else []
        pieces += [(Tiles(last - run.cells, 1, run.cells), True)] * high
    return pieces


def _split(tiles: tuple[Tiles, ...], largest: int) -> Iterator[tuple[Tiles, ...]]:
    """Cut runs, one per axis, into such of at most so many tiles together."""
    if not tiles:
        yield ()
        return
    for part in tiles[0].split(largest):
        for others in _split(tiles[1:], max(1, largest // part.count)):
            yield part, *others


_SEEN = 1 / 3  # share of the distance so far below which an update adds little to it
_MOST = 8  # exact iterations from a network's result


def estimate_errors(
    exact_iteration: Iteration,
    v: Interface,
    monitor: Monitor,
    edge_error: EdgeError,
    safety: float,
    *,
    exact: bool,
) -> list[ErrorEstimate]:
    """Estimate the error of each problem by two-level iterations with the exact local solver.

    Parameters
    ----------
    safety
        ``1 / (1 - rho)`` of that iteration.
    exact
        Whether the result is of iterations with that local solver: then one is enough.
    """
    better, before = v.like_boundary(), v
    exact_iteration(v, better)
    step = moved = monitor.distance(better, v)
    for _ in range(0 if exact else _MOST - 1):
        if not (step > _SEEN * moved).any():  # nor where a distance is no number
            break
        before, better = better, v.like_boundary() if before is v else before
        exact_iteration(before, better)
        step, moved = monitor.distance(better, before), monitor.distance(better, v)
    on_interface = safety * moved
    along_edge = edge_error(v)
    nodes = safety * (better.nodes() - v.nodes()).abs()
    return [
        ErrorEstimate(
            rms=float(on_interface[i] + along_edge[i]),
            interface=float(on_interface[i]),
            nodes=nodes[i],
            place=v.block.centres,
        )
        for i in range(v.problems)
    ]


# The residual of the field is some 1e-2 of the last update with the exact local solver, and more or less with the
# data (benchmarks/certify.md): so updates ten times what is asked for come first, then ever smaller ones.
_LOOSER, _TIGHTER, _ROUNDS = 10.0, 1e-2, 3
Driver = Callable[[Iteration, Interface, Monitor], tuple[Interface, list[str]]]


def updates_from_zero(zero: Interface, monitor: Monitor, iterate: Iteration) -> list[list[float]]:
    """Return the sizes of the first two updates from zero, of each problem, ``(2, n)``.

    ``zero``: with the values on the edge of the domain, overwritten; ``iterate``: as of `certify`. The first two of all
    iterates: no other need be there yet.
    """
    first, updates = zero.like_boundary(), []
    for old, new in ((zero, first), (first, zero)):
        iterate(old, new)
        updates.append(monitor.distance(new, old).tolist())
    return updates


def certify(
    v: Interface,
    rtol: float,
    monitor: Monitor,
    updates: Sequence[Sequence[float]],
    *,
    iterate: Iteration,
    drive: Driver,
    discrete_residual: Callable[[Interface], np.ndarray],
) -> tuple[Interface, list[str], list[Certificate]]:
    """Drive an interface, which is overwritten, to a discrete residual.

    Parameters
    ----------
    monitor
        Whose rule and history are new; its rule's tolerance is set here.
    updates
        What `updates_from_zero` returned.
    iterate
        Two-level, with the exact local solver.
    drive
        What drives the iteration, as `stationary`.
    discrete_residual
        Of the fields that an interface is filled to, ``(n,)``.
    """
    for problem in np.flatnonzero(~np.isfinite(monitor.size_of(v))).tolist():
        for axis, inner in enumerate(map(v.block.inner, range(len(v.lines)))):
            v.lines[axis][problem][inner] = 0.0
    for number in range(_ROUNDS):
        tolerance = min(rtol**0.5, _LOOSER * rtol * _TIGHTER**number)  # below 1
        monitor.restart(tolerance)
        v, statuses = drive(iterate, v, monitor)
        reached = discrete_residual(v) <= rtol
        if reached.all() or not all(status.startswith("converged") for status in statuses):
            break
    for i, status in enumerate(statuses):
        if reached[i] or status.startswith("converged"):
            statuses[i] = "converged_rtol" if reached[i] else "stagnated"
    certificates = [
        _certificate(rtol, from_zero, history.update)
        for *from_zero, history in zip(*updates, monitor.histories, strict=True)
    ]
    return v, statuses, certificates


def _certificate(rtol: float, first: list[float], updates: list[float]) -> Certificate:
    """Return the certificate: iterations, and those saved by a start, from the sizes of updates."""
    series = updates if len(updates) > 1 else first
    saved = [math.nan, math.nan]
    if 0 < series[-1] < series[0] and min(updates[0], *first) > 0:
        per_iteration = math.log(series[0] / series[-1]) / (len(series) - 1)
        saved = [math.log(update / updates[0]) / per_iteration for update in first]
    return Certificate(rtol, len(updates), *saved)
