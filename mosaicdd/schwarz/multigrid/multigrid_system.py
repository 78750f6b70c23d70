"""Everything that is planned once for a medium on the block of a rank: its equations, and levels below them."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, at, common, others, within
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.machine import give_back_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.discretisation.linear_step import LinearStep
from mosaicdd.problems.discretisation.node_equations import Equations
from mosaicdd.problems.discretisation.region_equations import region_equations
from mosaicdd.problems.discretisation.row_weights import RowWeights
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Medium, Resampled
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.layouts import blocks_along
from mosaicdd.schwarz.measure import Measure, NodeSource, require_range, require_ratio
from mosaicdd.schwarz.multigrid.aggregates import require_levels
from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.multigrid.shares import Shares, owned_ranges
from mosaicdd.schwarz.multigrid.stabilised_gradients import gradients_of, try_out
from mosaicdd.schwarz.stopwatch import Stopwatch

AROUND = 9  # nodes: the copies of four colours, and one more

Room = torch.Tensor | None
"""A vector that is needed no more, whose place another takes."""


class MultigridSystem:
    """The equations of all nodes that a rank owns, and what solves them with those of the others.

    ``transposed``: whether what is solved is the transposed matrix, as where a velocity makes it another.

    Attributes
    ----------
    equations
        At the nodes of the block's region, where the edge of the grid is not that of the lattice; else None.
    conductances
        Between the nodes of the region.
    measure
        Of right-hand sides.
    nodes
        The system of the nodes with an unknown.
    gradients
        What solves it.
    own, around
        Nodes of the whole domain: those that this rank owns, without copies along periodic axes, and one more all
        around, within the region.

    Raises
    ------
    ValueError
        On all ranks, if the coefficients are not sound, or no node has an unknown.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        medium: Medium | Linearised | LinearStep,
        discretisation: Discretisation | LinearStep | None,
        clock: Stopwatch,
        *,
        device: torch.device,
        transposed: bool = False,
    ):
        self._block = block
        self.own = own = block.owned_unknowns()[1]
        self.around = tuple(
            slice(max(o.start - 1, part.start), min(o.stop + 1, part.stop))
            for o, part in zip(own, block.nodes, strict=True)
        )
        self.equations: Equations | None = None
        wide = self._wide()
        with clock.part("sample"):
            between, active, region = ranks.agree(
                lambda: self._sampled(medium, discretisation, wide)
            )
            between = between.transposed() if transposed else between
        self.measure = Measure(
            block, region, None if self.equations is None else self.equations.active
        )
        lattice, axes = block.lattice, range(len(own))
        colours = 2 ** len(own) if between.across else 2
        ranges = owned_ranges(
            [blocks_along(ranks, lattice, axis) for axis in axes],
            values_given=self.equations is None,
        )
        blocks = Blocks(ranks, Shares(ranges, colours, lattice.periodic), device)
        with clock.part("levels"):
            start, weights = [p.start for p in wide], RowWeights.of(between, active)
            self.nodes = NodeSystem(blocks, between, start, active, weights)
            del between, region  # the levels below need the memory
            require_range(self.nodes.scale)
            require_ratio(self.nodes.least, self.nodes.scale)
            if isinstance(medium, Medium):  # of a Newton step the equations that it is for tell
                require_levels(self.nodes)
            self.gradients = gradients_of(self.nodes)
        with clock.part("trial"):
            try_out(self.gradients)
        if isinstance(medium, Medium):
            give_back_memory(always=True)

    def right_hand_side(
        self, v: Interface, source: NodeSource | None, number: int, room: Room = None
    ) -> torch.Tensor:
        """Return that of one of the problems, a vector.

        Parameters
        ----------
        v
            With the values on the edge of the lattice.
        """
        b, nodes = self._zeros(room), self.nodes.nodes
        known, part = self._known, self._block.nodes
        here = within(known, part)
        if source is not None and source.nodes is not None:
            place = np.unravel_index(source.nodes, source.values.shape[1:])
            ends = zip(place, here, strict=True)
            inside = [(n >= along.start) & (n < along.stop) for n, along in ends]
            if self.equations is not None:
                inside.append(self.equations.active[place])
            driven = source.nodes[np.logical_and.reduce(inside)]
            values = source.values[number].reshape(-1)[torch.from_numpy(driven)]
            b.view(-1)[self._places(driven)] = source.scale * values.to(b)
        elif source is not None:
            first = [along.start for along in known]
            nodes.take(source.values[number][here], b, first, self._active(known))
            if source.scale != 1.0:
                b *= source.scale
        if self.equations is None:
            added = self.measure.added(v, slice(number, number + 1))[0]
            b.view(-1)[self._places(self.measure.ring)] += torch.from_numpy(added).to(b.device)
        return b

    def _places(self, region: np.ndarray) -> torch.Tensor:
        """Return where in a flat vector some nodes of the region are, flat there."""
        part = self._block.nodes
        along = np.unravel_index(region, [of.stop - of.start for of in part])
        return self.nodes.nodes.places([n + of.start for n, of in zip(along, part, strict=True)])

    def start(self, own: np.ndarray, room: Room = None) -> torch.Tensor:
        """Return a vector of values at the owned nodes, zero where no unknown is; copies have no values yet.

        Parameters
        ----------
        own
            Of one value along each axis, if all are the same.
        """
        if own.size == 1 and not own.any():
            return self._zeros(room)
        both = common(self.own, self._box)
        every = torch.from_numpy(own).expand([part.stop - part.start for part in self.own])
        values, start = every[within(both, self.own)], [along.start for along in both]
        return self.nodes.nodes.take(values, self._zeros(room), start, self._active(both))

    def _active(self, part: Slices) -> torch.Tensor | None:
        """Return which nodes of a part have an unknown, where the equations tell."""
        if self.equations is None:
            return None
        return torch.from_numpy(np.array(self.equations.active[within(part, self._block.nodes)]))

    def _zeros(self, room: Room) -> torch.Tensor:
        return self.nodes.vector() if room is None else room.zero_()

    def field(
        self, x: torch.Tensor, v: Interface, number: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the values of a problem at the nodes `around`, with those that are given on the lattice's edge.

        Parameters
        ----------
        x
            With refreshed copies.
        v
            With the latter.
        out
            Where they are written to.
        """
        values = np.empty([part.stop - part.start for part in self.around]) if out is None else out
        values[...] = 0.0
        if self._goes_on:
            both, every = common(self._box, self.around), self.nodes.values(x)
            self._go_on(every)
            values[within(both, self.around)] = every[within(both, self._box)]
        else:
            start = [part.start for part in self.around]
            self.nodes.nodes.give(x, torch.from_numpy(values), start)
        inside = within(self.around, self._block.nodes)
        for axis, end in self._edges():
            along = tuple(inside[other] for other in others(axis, values.ndim))
            edge = v.lines[axis][number].select(0, end)[along].cpu().numpy()
            values[at(axis, values.ndim, end)] = edge
        return values

    def estimate(self) -> ErrorEstimate:
        """Estimate the error of the last result from its residual."""
        error, factor, energy = self.gradients.error()
        nodes, block = self.nodes, self._block
        rms = factor * nodes.rms(error)
        lattice, here, there = block.lattice, [], []
        box = zip(nodes.nodes.box, lattice.first_node, block.start, block.stop, strict=True)
        for (low, high), first, start, stop in box:
            centres = first + lattice.spacing * np.arange(start, stop)
            inside = (centres >= low) & (centres <= high)
            here.append(np.flatnonzero(inside))
            there.append(centres[inside])
        at_centres = np.zeros(block.subdomains)
        places = nodes.nodes.places([n.ravel() for n in np.meshgrid(*there, indexing="ij")])
        values = error.view(-1)[places].cpu().numpy()
        at_centres[np.ix_(*here)] = np.abs(factor * values).reshape([len(n) for n in here])
        place = tuple(map(slice, block.start, block.stop))
        bound = None if math.isnan(energy) else energy
        return ErrorEstimate(rms, rms, torch.from_numpy(at_centres), place, bound)

    @property
    def _box(self) -> Slices:
        return tuple(slice(first, last + 1) for first, last in self.nodes.nodes.box)

    @property
    def _known(self) -> Slices:
        """The nodes of which the region tells right-hand sides."""
        both, periodic = common(self._box, self._block.nodes), self._block.lattice.periodic
        return tuple(
            own if wraps else part
            for part, own, wraps in zip(both, self.own, periodic, strict=True)
        )

    @property
    def _rounds(self) -> Periods:
        """After how many nodes each axis comes round here, an even number; None where it does not.

        If the grid's is odd, a node on the way from the last one to the first is one of them, see `stretched`.
        """
        return tuple(cells and cells + cells % 2 for cells in self._block.lattice.rounds)

    def _wide(self) -> Slices:
        """Return the region, and what a box has of nodes beyond it, within the lattice.

        Along an axis that comes round here after another number of nodes than the lattice does, the latter alone.
        """
        block, lattice, wide = self._block, self._block.lattice, []
        rounds = zip(self._rounds, lattice.periods, strict=True)
        ends = zip(
            block.nodes, self.own, rounds, lattice.first_node, lattice.last_node, strict=True
        )
        for part, own, (count, period), first, last in ends:
            low, high = own.start - AROUND, own.stop + AROUND
            if count is None:
                low, high = max(min(part.start, low), first), min(max(part.stop, high), last + 1)
            elif count == period:
                low, high = min(part.start, low), max(part.stop, high)
            else:
                high += 1
            wide.append(slice(low, high))
        return tuple(wide)

    @property
    def _goes_on(self) -> bool:
        """Whether the box goes on beyond the ends of periodic axes by other nodes than the lattice does."""
        lattice = self._block.lattice
        every = zip(lattice.rounds, self._rounds, lattice.periods, strict=True)
        return any(cells is not None and not cells == own == period for cells, own, period in every)

    def _go_on(self, values: np.ndarray) -> None:
        """Let values in the box just beyond the ends of periodic axes be those at the lattice's nodes there.

        Where one of both ends of an edge has a given value, nothing between them is an unknown, and values stay zero.
        """
        lattice, first = self._block.lattice, [part.start for part in self._box]
        every = zip(lattice.rounds, self._rounds, lattice.periods, strict=True)
        for axis, (cells, count, period) in enumerate(every):
            if cells is None or count is None or period is None or cells == count == period:
                continue
            along = np.moveaxis(values, axis, 0)
            unknown = np.moveaxis(self.nodes.ones, axis, 0)
            # On the way from the last node to the first, and linear there.
            for last, beyond, way in (
                (cells - 1 - count, -1, period - cells),
                (cells - 1, cells, 1),
            ):
                if last >= first[axis] and last - first[axis] + count - cells + 1 < len(along):
                    low, high = last - first[axis], last + 1 + count - cells - first[axis]
                    between = along[low] + (along[high] - along[low]) * (way / (period - cells + 1))
                    along[beyond - first[axis]] = between * (unknown[low] & unknown[high])

    def _sampled(
        self,
        medium: Medium | Linearised | LinearStep,
        discretisation: Discretisation | LinearStep | None,
        wide: Slices,
    ) -> tuple[Conductances, np.ndarray | None, Conductances]:
        """Return conductances and active nodes of a part around the region, and conductances of this.

        What there is to keep is kept.
        """
        grid, part = self._block.lattice.grid, self._block.nodes
        self.conductances: Conductances | Resampled
        if discretisation is None:
            between = medium.conductances(grid, wide)
            self.conductances = region = between.part(*within(part, wide))
            if isinstance(medium, Medium):
                self.conductances = Resampled(medium, grid, part)
            return between, None, region
        if self._rounds == self._block.lattice.periods:
            everywhere = region_equations(discretisation, wide)
            self.equations = everywhere.part(*within(part, wide))
        else:
            everywhere = region_equations(discretisation.coming_round(self._rounds), wide)
            self.equations = region_equations(discretisation, part)
        self.conductances = self.equations.conductances
        return everywhere.conductances, everywhere.active, self.equations.conductances

    def _edges(self) -> Iterator[tuple[int, int]]:
        """Yield the edges of the lattice with given values: axis and end."""
        for axis in range(len(self._box)) if self.equations is None else ():
            for end, there in zip((0, -1), self._block.at_edge(axis), strict=True):
                if there:
                    yield axis, end
