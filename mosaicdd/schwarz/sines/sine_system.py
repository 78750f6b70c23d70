"""Everything that is planned once for constant coefficients on the region of a rank, in the place of a hierarchy of levels.

An equation is, divided by what a rectangle has of its node's volume, the same at all unknowns: ``A u = b`` with second
differences along the axes and a reaction, whose eigenvectors are products of waves.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import Partition
from mosaicdd.lattice.axes import Slices, common, crossed, within
from mosaicdd.parallel.layouts.layout import Layout, Shard
from mosaicdd.parallel.sine_solve import Eliminate, SineSolve, Waves
from mosaicdd.problems.discretisation.region_equations import region_equations
from mosaicdd.problems.discretisation.system import SeparableSystem
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.edge_values import EdgeValues
from mosaicdd.schwarz.error_estimate import ERROR_STEP, ErrorEstimate
from mosaicdd.schwarz.measure import Measure, NodeSource, require_range
from mosaicdd.schwarz.multigrid.iteration import Judge
from mosaicdd.schwarz.sines.elimination import elimination, is_compiled
from mosaicdd.schwarz.sines.second_differences import SecondDifferences
from mosaicdd.schwarz.stopwatch import Stopwatch

_GAIN = 0.5  # of residuals from one correction to the next, at least: there is little but rounding left else


class SineSystem:
    """The equations of all nodes, as a `MultigridSystem` has them, and the transforms that solve them.

    Vectors are arrays of the unknowns of this rank, ``(rows, columns)``.

    `ValueError` on all ranks, if the coefficients are not sound.

    Attributes
    ----------
    equations, conductances, measure, region
        See `MultigridSystem`.
    nodes, gradients
        This, which says what vectors are, and solves.
    unknowns
        Nodes of the whole domain that have stencil.
    scale
        The number on the diagonal.
    """

    directed = False

    def __init__(self, partition: Partition, solver: SeparableSystem, clock: Stopwatch):
        self._partition, self._ranks = partition, partition.ranks
        ranks, grid = partition.ranks, partition.grid
        self._ghosts = GhostNodes(partition, 1)
        self._left = 0.0  # the 2-norm of the residual of the last solve, per volume
        self.region = partition.region(values_given=solver.discretisation is None)
        own = self.region.owned
        self._waves = [
            Waves(cells if ends is None else cells + 1 - sum(ends), ends)
            for cells, ends in zip(grid.shape, solver.ends, strict=True)
        ]
        first = [int(ends is not None and ends[0]) for ends in solver.ends]
        unknown = tuple(
            slice(start, start + waves.count)
            for start, waves in zip(first, self._waves, strict=True)
        )
        self.unknowns = math.prod(waves.count for waves in self._waves)
        self._mine = common(own, unknown)
        with clock.part("sample"):
            stencil = ranks.agree(
                lambda: solver.operator.conductances(grid, (slice(0, 2),) * len(own))
            )
            self._sample(solver, stencil)
        self.measure = Measure(
            self.region,
            self.conductances,
            None if self.equations is None else self.equations.active,
        )
        self._inside = within(self._mine, self.region.nodes)
        ring = zip(self.region.flat_places(self.measure.ring), self._mine, strict=True)
        self._ring = tuple(n - mine.start for n, mine in ring)
        self._rows = None
        if len(self.measure.weights.nodes):
            every = self.measure.weights.every(self.region.shape)
            self._rows = every[within(self._mine, self.region.nodes)]
        floating = solver.discretisation is not None and solver.discretisation.floating
        self._pin = None
        if floating:
            pin = solver.discretisation.known[0]
            here = all(p.start <= n < p.stop for n, p in zip(pin, self._mine, strict=True))
            self._pin = (
                tuple(n - p.start for n, p in zip(pin, self._mine, strict=True)) if here else ()
            )
        couplings = [float(k.flat[0]) for k in stencil.along]
        reaction = float(stencil.reaction.flat[0])
        self.scale = reaction + 2 * sum(couplings)
        require_range(self.scale)
        with clock.part("levels"):
            layout, sizes = self._layout(unknown)
            along = [k * waves.eigenvalues for k, waves in zip(couplings, self._waves, strict=True)]
            self._least = reaction + sum(values.min() for values in along)
            if floating:  # the constant is left out
                self._least = min(values[1:].min() for values in along if len(values) > 1)

            def symbol(*parts: slice) -> np.ndarray:
                terms = crossed(*(values[part] for values, part in zip(along, parts, strict=True)))
                total = reaction + sum(terms[1:], terms[0])
                return np.where(total > 0, total, np.inf) if floating else total

            held, k = self._waves[0].given, couplings[0]
            eliminate: Eliminate | None = None
            if held is not None and not floating and is_compiled():

                def eliminate(array: np.ndarray, part: Sequence[slice]) -> Callable[[], None]:
                    rest = crossed(
                        *(values[p] for values, p in zip(along[1:], part[1:], strict=True))
                    )
                    return elimination(array, k, 2 + (reaction + sum(rest[1:], rest[0])) / k, held)

            self._solve = SineSolve(
                layout, layout, symbol, ranks, waves=self._waves, eliminate=eliminate
            )
            self._differences = SecondDifferences(
                ranks, layout, sizes, self._waves, couplings, reaction
            )

    @property
    def nodes(self) -> "SineSystem":
        """Itself; an attribute would keep it alive when all others are done with it."""
        return self

    gradients = nodes

    def _sample(self, solver: SeparableSystem, stencil: Conductances) -> None:
        """Find the equations of the region; in arrays of one value, where values are given on all sides."""
        part, flows = self.region.nodes, solver.discretisation
        self.equations = None
        if flows is not None:
            self.equations = self._ranks.agree(lambda: region_equations(flows, part))
            self.conductances = self.equations.conductances
            return
        nodes = self.region.shape
        along = tuple(
            np.broadcast_to(k.flat[0], [n - (axis == other) for other, n in enumerate(nodes)])
            for axis, k in enumerate(stencil.along)
        )
        self.conductances = Conductances(along, np.broadcast_to(stencil.reaction.flat[0], nodes))

    def _layout(self, unknown: Slices) -> tuple[Layout, list[tuple[int, ...]]]:
        """Return how the unknowns lie over the ranks, and how many along each axis these have."""
        sizes = []
        for axis, part in enumerate(unknown):
            parts = self._partition.unknowns_along[axis]
            owned = [common((p,), (part,))[0] for p in parts]
            sizes.append(tuple(p.stop - p.start for p in owned))
        shards = tuple(Shard(axis, counts) for axis, counts in enumerate(sizes))
        return Layout(tuple(waves.count for waves in self._waves), self._ranks.dims, shards), sizes

    def vector(self) -> np.ndarray:
        """Return zeros."""
        return np.zeros([p.stop - p.start for p in self._mine])

    def right_hand_side(
        self,
        edges: EdgeValues,
        source: NodeSource | None,
        number: int,
        room: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return that of one of the problems, a vector; see `MultigridSystem.right_hand_side`."""
        b = self.vector() if room is None else room
        if source is None:
            b[...] = 0.0
        else:
            values = source.values[number].cpu().numpy()
            np.multiply(values[self._inside], source.scale, out=b)
        if self.equations is None:
            b[self._ring] += self.measure.added(edges, slice(number, number + 1))[0]
        if self._pin is not None:  # one equation follows from all others
            total = self._ranks.sum(np.array([b.sum()]))[0]
            if self._pin:
                b[self._pin] -= total
        return b

    def start(self, own: np.ndarray, room: np.ndarray | None = None) -> np.ndarray:
        """Return a vector of values at the owned nodes; see `MultigridSystem.start`."""
        x = self.vector() if room is None else room
        owned = self.region.owned
        shape = [p.stop - p.start for p in owned]
        x[...] = np.broadcast_to(own, shape)[within(self._mine, owned)]
        return x

    def field(
        self, x: np.ndarray, edges: EdgeValues, number: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the values of a problem at the nodes of the region; see `MultigridSystem.field`."""
        ghosts, region = self._ghosts, self.region.nodes
        values = np.empty(self.region.shape) if out is None else out
        owned = np.zeros([p.stop - p.start for p in ghosts.owned])
        owned[within(self._mine, ghosts.owned)] = x
        values[...] = 0.0
        both = common(ghosts.ghosted, region)
        values[within(both, region)] = ghosts.at(both, ghosts.with_ghosts(owned))
        edges.impose(values, number)
        return values

    def __call__(self, b: np.ndarray, x: np.ndarray, size: float, judge: Judge) -> str:
        """Solve for a right-hand side, whatever ``x`` is, which becomes the result; return how it ended.

        All ranks together. Corrections of what rounding leaves follow while they gain. ``size``: what residuals are relative to.
        """
        left = per_volume = self._differences.per_volume(b)
        x[...] = 0.0
        before, status = math.inf, None
        while status is None:
            step = self._solve(left)
            if self._pin is not None:
                mine = [step[self._pin]] if self._pin else [0.0]
                step -= self._ranks.sum(np.array(mine))[0]
            x += step
            left = self._differences.residual(per_volume, x)
            squares, weighted, square, *calls = self._ranks.sum(
                np.array(
                    [np.vdot(left, left), self._weighted(left), np.vdot(step, step), *judge.calls()]
                )
            )
            residual = math.sqrt(weighted) / size
            status = judge.enter(x, math.sqrt(square / self.unknowns), residual, calls)
            if status is None and not residual <= _GAIN * before:
                status = "stagnated"
            before = residual
        self._left = math.sqrt(squares)
        return status

    def _weighted(self, left: np.ndarray) -> float:
        """Return the square of a residual per volume as its rows count, of this rank."""
        whole = self._differences.times_volumes(left)
        whole = whole if self._rows is None else whole * self._rows
        return float(np.vdot(whole, whole))

    def norm(self, b: np.ndarray) -> float:
        """Return the 2-norm of a right-hand side, as its rows count; all ranks together."""
        counted = b if self._rows is None else b * self._rows
        return math.sqrt(self._ranks.sum(np.array([np.vdot(counted, counted)]))[0])

    def size_here(self, x: np.ndarray) -> float:
        """Return the root mean square of a vector, as this rank knows it."""
        return math.sqrt(np.vdot(x, x) / max(x.size, 1))

    def rms(self, x: np.ndarray) -> float:
        """Return the root mean square of a vector; all ranks together."""
        return math.sqrt(self._ranks.sum(np.array([np.vdot(x, x)]))[0] / self.unknowns)

    def estimate(self) -> ErrorEstimate:
        """Bound the error of the last result by its residual and the smallest eigenvalue."""
        rms = self._left / self._least / math.sqrt(self.unknowns)
        place = self._partition.samples(ERROR_STEP[len(self.region.shape)])
        everywhere = torch.full([p.stop - p.start for p in place], rms, dtype=torch.float64)
        return ErrorEstimate(rms, rms, everywhere, place, self._left / math.sqrt(self._least))
