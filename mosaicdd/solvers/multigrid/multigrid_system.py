"""The equations of a medium on a rank's block, prepared for multigrid."""

import math

import numpy as np
import torch

from mosaicdd.axes import Slices, common, within
from mosaicdd.discretisation.node_equations import (
    Equations,
    LinearEquations,
    LinearStep,
    RowWeights,
)
from mosaicdd.discretisation.region_equations import region_equations
from mosaicdd.grid.partition import Partition
from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Medium, Resampled
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.measure import (
    EdgeValues,
    NodeSource,
    ResidualScale,
    require_range,
    require_ratio,
)
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.aggregates import require_levels
from mosaicdd.solvers.multigrid.biconjugate_gradients import gradients_of, try_out
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.outcome import ERROR_STEP, ErrorEstimate

AROUND = 9  # nodes: the copies of four colours, and one more

Room = torch.Tensor | None
"""A vector that is needed no more, whose place another takes."""


class MultigridSystem:
    """The equations of all nodes that a rank owns, prepared for multigrid; see `PreparedSystem`.

    ``transposed``: whether the transposed matrix is prepared, as where a velocity makes it another.

    Attributes
    ----------
    nodes
        The equations of the nodes with an unknown.
    gradients
        The Krylov method under multigrid that solves them.

    Raises
    ------
    ValueError
        On all ranks, if the coefficients are not sound, or no node has an unknown.
    """

    name, iterates = "multigrid", True

    def __init__(
        self,
        partition: Partition,
        medium: Medium | Linearised | LinearStep,
        discretisation: LinearEquations | None,
        clock: Stopwatch,
        *,
        device: torch.device,
        transposed: bool = False,
    ):
        ranks, self._partition = partition.ranks, partition
        self.region = partition.region(values_given=discretisation is None)
        self.equations: Equations | None = None
        wide = self._wide()
        with clock.part("sample"):
            between, active, between_region = ranks.run_on_all(
                lambda: self._sampled(medium, discretisation, wide)
            )
            between = between.transposed() if transposed else between
        self.measure = ResidualScale(
            self.region, between_region, None if self.equations is None else self.equations.active
        )
        colours = 2 ** len(self.region.shape) if between.across else 2
        ranges = partition.boxes.unknown_ranges(
            partition.along, values_given=self.equations is None
        )
        blocks = LevelBox(ranks, LevelPartition(ranges, colours, partition.periodic), device)
        with clock.part("levels"):
            start, weights = [p.start for p in wide], RowWeights.of(between, active)
            self.nodes = NodeEquations(blocks, between, start, active, weights)
            del between, between_region  # the levels below need the memory
            self.unknowns, self.scale = self.nodes.unknowns, self.nodes.scale
            self.directed = self.nodes.directed
            require_range(self.scale)
            require_ratio(self.nodes.least, self.scale)
            if isinstance(medium, Medium):  # of a Newton step the equations that it is for tell
                require_levels(self.nodes)
            self.gradients = gradients_of(self.nodes)
        with clock.part("trial"):
            try_out(self.gradients)
        if isinstance(medium, Medium):
            give_back_memory(always=True)

    def solve(self, b: torch.Tensor, x: torch.Tensor, size: float, monitor: ResidualMonitor) -> str:
        """Solve by a Krylov method; see `PreparedSystem.solve`."""
        return self.gradients(b, x, size, monitor)

    def norm(self, b: torch.Tensor) -> float:
        """Return the 2-norm of a right-hand side, as its rows count; all ranks together."""
        return self.gradients.norm(b)

    def rms(self, x: torch.Tensor) -> float:
        """Return the root mean square of a vector over all unknowns; all ranks together."""
        return self.nodes.rms(x)

    def size_here(self, x: torch.Tensor) -> float:
        """Return the root mean square of a vector over the nodes of this rank."""
        return self.nodes.size_here(x)

    def right_hand_side(
        self, edges: EdgeValues, source: NodeSource | None, number: int, room: Room = None
    ) -> torch.Tensor:
        """Return the right-hand side of one of the problems; see `PreparedSystem`."""
        b, nodes = self._zeros(room), self.nodes.nodes
        known, part = self._known, self.region.nodes
        here = within(known, part)
        if source is not None:
            first = [along.start for along in known]
            nodes.take(source.values[number][here], b, first, self._active(known))
            if source.scale != 1.0:
                b *= source.scale
        if self.equations is None:
            added = self.measure.added(edges, slice(number, number + 1))[0]
            b.view(-1)[self._places(self.measure.ring)] += torch.from_numpy(added).to(b.device)
        return b

    def _places(self, region: np.ndarray) -> torch.Tensor:
        """Return the places in a flat vector of nodes that are flat in the region."""
        return self.nodes.nodes.places(list(self.region.flat_places(region)))

    def start(self, own: np.ndarray, room: Room = None) -> torch.Tensor:
        """Return a vector of values at the owned nodes, zero where no unknown is; copies have no values yet.

        Parameters
        ----------
        own
            Of one value along each axis, if all are the same.
        """
        if own.size == 1 and not own.any():
            return self._zeros(room)
        owned = self.region.owned
        both = common(owned, self._box)
        every = torch.from_numpy(own).expand([part.stop - part.start for part in owned])
        values, start = every[within(both, owned)], [along.start for along in both]
        return self.nodes.nodes.take(values, self._zeros(room), start, self._active(both))

    def _active(self, part: Slices) -> torch.Tensor | None:
        """Return the nodes of a part with an unknown; None if all have one."""
        if self.equations is None:
            return None
        return torch.from_numpy(np.array(self.equations.active[within(part, self.region.nodes)]))

    def _zeros(self, room: Room) -> torch.Tensor:
        return self.nodes.vector() if room is None else room.zero_()

    def field(
        self, x: torch.Tensor, edges: EdgeValues, number: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the values of a problem at the nodes of the region, edges included.

        Parameters
        ----------
        x
            With refreshed copies.
        out
            Where they are written to.
        """
        region = self.region.nodes
        values = np.empty(self.region.shape) if out is None else out
        values[...] = 0.0
        if self._has_ghost_unknowns:
            both, every = common(self._box, region), self.nodes.values(x)
            self._extend_odd_periods(every)
            values[within(both, region)] = every[within(both, self._box)]
        else:
            self.nodes.nodes.give(x, torch.from_numpy(values), [part.start for part in region])
        edges.impose(values, number)
        return values

    def estimate(self) -> ErrorEstimate:
        """Estimate the error of the last result from its residual."""
        error, factor, energy = self.gradients.error()
        nodes = self.nodes
        rms = factor * nodes.rms(error)
        step = ERROR_STEP[len(self.region.shape)]
        samples, there, where = self._partition.samples(step), [], []
        for (low, high), part in zip(nodes.nodes.box, samples, strict=True):
            sampled = step * np.arange(part.start, part.stop)
            inside = (sampled >= low) & (sampled <= high)
            where.append(np.flatnonzero(inside))
            there.append(sampled[inside])
        at_samples = np.zeros([part.stop - part.start for part in samples])
        places = nodes.nodes.places([n.ravel() for n in np.meshgrid(*there, indexing="ij")])
        values = error.view(-1)[places].double().cpu().numpy()
        at_samples[np.ix_(*where)] = np.abs(factor * values).reshape([len(n) for n in where])
        bound = None if math.isnan(energy) else energy
        return ErrorEstimate(rms, rms, torch.from_numpy(at_samples), samples, bound)

    @property
    def _box(self) -> Slices:
        return tuple(slice(first, last + 1) for first, last in self.nodes.nodes.box)

    @property
    def _known(self) -> Slices:
        """The nodes of which the region tells right-hand sides."""
        both = common(self._box, self.region.nodes)
        axes = zip(both, self.region.owned, self._partition.periodic, strict=True)
        return tuple(own if wraps else part for part, own, wraps in axes)

    @property
    def _rounds(self) -> Periods:
        """After how many unknowns each axis repeats, an even number; None where it does not.

        If that of the nodes is odd, another unknown lies between the last one and the first, see `stretched`.
        """
        return tuple(cells and cells + cells % 2 for cells in self._partition.rounds)

    def _wide(self) -> Slices:
        """Return the nodes of this rank with all ghost nodes of a box, at most one beyond the grid."""
        wide, region = [], self.region
        axes = zip(region.nodes, region.owned, region.ends, self._partition.rounds, strict=True)
        for axis, (part, own, ends, count) in enumerate(axes):
            low, high = own.start - AROUND, own.stop + AROUND
            if count is None:
                first, last = ends or (-1, region.grid.nodes[axis])
                low, high = max(min(part.start, low), first), min(max(part.stop, high), last + 1)
            else:
                high += count % 2
            wide.append(slice(low, high))
        return tuple(wide)

    @property
    def _has_ghost_unknowns(self) -> bool:
        """Whether an odd number of nodes along a periodic axis has another unknown after the last."""
        return any(count is not None and count % 2 for count in self._partition.rounds)

    def _extend_odd_periods(self, values: np.ndarray) -> None:
        """Write the values beyond the ends of periodic axes with an odd number of nodes.

        Next to the ends are the unknowns that are no nodes; the nodes follow after them.
        """
        first = [part.start for part in self._box]
        for axis, cells in enumerate(self._partition.rounds):
            if cells is None or cells % 2 == 0:
                continue
            along = np.moveaxis(values, axis, 0)
            for beyond, node in ((-1, -2), (cells, cells + 1)):
                if min(beyond, node) >= first[axis] and max(beyond, node) - first[axis] < len(
                    along
                ):
                    along[beyond - first[axis]] = along[node - first[axis]]

    def _sampled(
        self,
        medium: Medium | Linearised | LinearStep,
        discretisation: LinearEquations | None,
        wide: Slices,
    ) -> tuple[Conductances, np.ndarray | None, Conductances]:
        """Return conductances and active nodes of a part around the region, and conductances of this.

        What there is to keep is kept.
        """
        grid, part = self.region.grid, self.region.nodes
        self.conductances: Conductances | Resampled
        if discretisation is None:
            between = medium.conductances(grid, wide)
            self.conductances = region = between.part(*within(part, wide))
            if isinstance(medium, Medium):
                self.conductances = Resampled(medium, grid, part)
            return between, None, region
        if self._rounds == self._partition.rounds:
            everywhere = region_equations(discretisation, wide)
            self.equations = everywhere.part(*within(part, wide))
        else:
            everywhere = region_equations(discretisation, wide, self._rounds)
            # Of nodes at the edge of a part not all is known.
            wider = tuple(slice(p.start - 1, p.stop + 1) for p in part)
            self.equations = region_equations(discretisation, wider).part(*within(part, wider))
        self.conductances = self.equations.conductances
        return everywhere.conductances, everywhere.active, self.equations.conductances
