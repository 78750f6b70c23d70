"""Linear systems on the whole grid, prepared for solves: the protocol, the choice of a method, and solves at nodes."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch

from mosaicdd.axes import even, within
from mosaicdd.discretisation.node_equations import Equations
from mosaicdd.discretisation.system import LinearSystem, SeparableSystem
from mosaicdd.grid.partition import Partition, Region
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.safe_norms import is_safe, largest_of, power_for
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Resampled
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.field_residual import FieldResidual
from mosaicdd.solvers.measure import EdgeValues, NodeSource, ResidualScale
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.multigrid_system import MultigridSystem
from mosaicdd.solvers.outcome import ERROR_STEP, PLAUSIBLE, ROUNDINGS, ErrorEstimate
from mosaicdd.solvers.settings import StoppingRule
from mosaicdd.solvers.transforms.sine_system import SineSystem

_STRIP = 2**17  # values of the field that are handed out at once


class PreparedSystem(Protocol):
    """Linear equations ``A u = b`` on a partition, prepared for solves; each kind has vectors of its own.

    Attributes
    ----------
    name
        Of the method.
    iterates
        Whether it matters where a solve begins.
    directed
        Whether the transposed equations are others.
    region
        The nodes that this rank owns, and one more all around.
    equations
        At the nodes of the region; None of a rectangle with values on all sides.
    conductances
        Between the nodes of the region.
    measure
        Of right-hand sides.
    unknowns
        Of the whole domain.
    scale
        The largest number of the equations.
    """

    name: str
    iterates: bool
    directed: bool
    region: Region
    equations: Equations | None
    conductances: Conductances | Resampled
    measure: ResidualScale
    unknowns: int
    scale: float

    def right_hand_side(
        self, edges: EdgeValues, source: NodeSource | None, number: int, room: Any = None
    ) -> Any:
        """Return the right-hand side of one of the problems.

        ``edges``: the values on the edge of the grid; ``room``: a vector whose place another may take.
        """

    def start(self, own: np.ndarray, room: Any = None) -> Any:
        """Return a vector of values at the owned nodes, zero where no unknown is.

        ``own``: of one value along each axis, if all are the same.
        """

    def solve(self, b: Any, x: Any, size: float, monitor: ResidualMonitor) -> str:
        """Solve for a right-hand side from values ``x``, in place; return how it ended. All ranks together.

        ``size``: what residuals are relative to.
        """

    def estimate(self) -> ErrorEstimate:
        """Estimate the error of the last result by its residual."""

    def field(
        self, x: Any, edges: EdgeValues, number: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the values of a problem at the nodes of the region, edges included; in ``out``, if there is any."""

    def norm(self, b: Any) -> float:
        """Return the 2-norm of a right-hand side, as its rows count; all ranks together."""

    def rms(self, x: Any) -> float:
        """Return the root mean square of a vector; all ranks together."""

    def size_here(self, x: Any) -> float:
        """Return the root mean square of a vector over the nodes of this rank."""


def prepare(
    system: LinearSystem,
    partition: Partition,
    clock: Stopwatch,
    device: torch.device,
    *,
    transposed: bool = False,
) -> PreparedSystem:
    """Prepare linear equations, or the transposed ones, once: the system keeps what is prepared.

    Separable equations on a processor are solved by transforms, all others by multigrid.
    """
    separable = isinstance(system, SeparableSystem) and device.type == "cpu"
    key = SineSystem if separable else MultigridSystem, partition, transposed
    if key not in system.planned:
        if isinstance(system, SeparableSystem) and separable:
            system.planned[key] = SineSystem(partition, system, clock)
        else:
            of = partition, system.operator, system.discretisation, clock
            system.planned[key] = MultigridSystem(*of, device=device, transposed=transposed)
    prepared: PreparedSystem = system.planned[key]
    return prepared


@dataclasses.dataclass(frozen=True)
class Change:
    """The solution for one right-hand side, as a change of values.

    Parameters
    ----------
    values
        At the nodes that this rank owns.
    size, error
        Root mean squares over the domain: of the values, and, estimated, of their error; zero where it was not.
    status, residual
        How the iteration ended, and the relative residual that it left.
    """

    values: np.ndarray
    size: float
    error: float
    status: str
    residual: float = 0.0

    def at_samples(self, partition: Partition) -> torch.Tensor:
        """Return the absolute values at this rank's nodes that have an estimate, see `ERROR_STEP`."""
        step = ERROR_STEP[self.values.ndim]
        sampled = tuple(
            slice(step * part.start - own.start, own.stop - own.start, step)
            for part, own in zip(partition.samples(step), partition.unknowns, strict=True)
        )
        return torch.from_numpy(abs(self.values[sampled]))


def solve_at_nodes(
    system: PreparedSystem,
    partition: Partition,
    force: np.ndarray,
    rule: StoppingRule,
    *,
    by_measure: bool = False,
) -> Change:
    """Solve ``A u = force``, zero on the edge of the grid; all ranks together.

    Parameters
    ----------
    force
        Times the squared spacing, at the nodes that this rank owns.
    by_measure
        Whether residuals are relative to what `ResidualScale` finds of the force, and the error is estimated; else
        residuals are relative to the force's 2-norm.
    """
    ranks, region = partition.ranks, system.region
    edges = EdgeValues.of(region)
    force = force[within(region.owned, partition.owned)]  # without copies along periodic axes
    largest = ranks.largest(largest_of(force))
    power = power_of(system, largest, largest)
    force = power * force
    b, constant = system.start(force), 0.0
    if by_measure:
        values = torch.zeros(1, *region.shape, dtype=torch.float64)
        values[0][within(region.owned, region.nodes)] = torch.from_numpy(force)
        measures, constants = system.measure(ranks, edges, NodeSource(values), rule.rtol)
        size, constant = float(measures[0]), float(constants[0])
    else:
        size = system.norm(b)
    x = system.start(np.full((1,) * force.ndim, constant))
    monitor = ResidualMonitor(dataclasses.replace(rule, atol=power * rule.atol))
    status, residual, error = "converged_rtol", 0.0, 0.0
    if size:  # else nothing acts but at nodes with given values
        status = system.solve(b, x, size, monitor)
        residual = monitor.history.residual[-1]
        error = system.estimate().rms if by_measure else 0.0
    field, rms = system.field(x, edges, 0), system.rms(x)
    if status == "stagnated" and error <= PLAUSIBLE * rms:
        rounding = FieldResidual(ranks, system, None, np.array([size]))
        for strip in strips_of(field[None], region):
            rounding.add_rounding(strip)
        if residual <= ROUNDINGS * float(rounding.rounding()[0]):
            status = "converged_rounding"
    changes = field[within(partition.owned, region.nodes)] / power
    return Change(changes, rms / power, error / power, status, residual)


def power_of(system: PreparedSystem, size: float, largest: float) -> float:
    """Return the factor of right-hand sides of a size by which float64 holds all squares."""
    safe = is_safe(size) and is_safe(size / system.scale)
    return 1.0 if safe else power_for(largest, math.sqrt(system.scale))


def strips_of(
    fields: np.ndarray, region: Region, device: torch.device | str = "cpu"
) -> Iterator[Strip]:
    """Yield a rank's part of fields from below, with a node more all around; views of them on the processor."""
    own, around = region.owned, region.nodes
    inner = within(own, around)
    rows = max(1, _STRIP // (len(fields) * fields[0][0].size))
    for part in even(own[0].stop - own[0].start, rows):
        low, high = own[0].start + part.start, own[0].start + part.stop
        first = max(low - 1, around[0].start) - around[0].start
        last = min(high + 1, around[0].stop) - around[0].start
        start = low - around[0].start - first
        yield Strip(
            torch.from_numpy(fields[:, first:last]).to(device),
            (slice(start, start + high - low), *inner[1:]),
            (slice(low, high), *own[1:]),
        )
