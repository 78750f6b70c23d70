"""Everything that is planned once for constant coefficients on the block of a rank, in the place of a hierarchy of levels.

An equation is, divided by what a rectangle has of its node's volume, the same at all unknowns: ``A u = b`` with second
differences along the axes and a reaction, whose eigenvectors are products of waves.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, at, common, crossed, others, within
from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.exact import SineSolver
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Shard
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.sine_solve import Eliminate, SineSolve
from mosaicdd.parallel.waves import Waves
from mosaicdd.problems.discretisation.region_equations import region_equations
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.layouts import blocks_along
from mosaicdd.schwarz.measure import Measure, NodeSource, require_range
from mosaicdd.schwarz.multigrid.judge import Judge
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
    equations, conductances, measure, own, around
        See `MultigridSystem`.
    nodes, gradients
        This, which says what vectors are, and solves.
    unknowns
        Nodes of the whole domain that have stencil.
    """

    directed = False

    def __init__(self, ranks: Ranks, share: FieldShare, solver: SineSolver, clock: Stopwatch):
        self._ranks, self._share, self._block = ranks, share, share.block
        self._left = 0.0  # the 2-norm of the residual of the last solve, per volume
        block, grid = share.block, share.grid
        self.own = own = block.owned_unknowns()[1]
        self.around = tuple(
            slice(max(o.start - 1, part.start), min(o.stop + 1, part.stop))
            for o, part in zip(own, block.nodes, strict=True)
        )
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
            block, self.conductances, None if self.equations is None else self.equations.active
        )
        self._inside = within(self._mine, block.nodes)
        ring = np.unravel_index(self.measure.ring, [p.stop - p.start for p in block.nodes])
        parts = zip(ring, block.nodes, self._mine, strict=True)
        self._ring = tuple(n + part.start - mine.start for n, part, mine in parts)
        self._rows = None
        if len(self.measure.weights.nodes):
            every = self.measure.weights.every(tuple(n + 1 for n in block.cells))
            self._rows = every[within(self._mine, block.nodes)]
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
        require_range(reaction + 2 * sum(couplings))
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

    def _sample(self, solver: SineSolver, stencil: Conductances) -> None:
        """Find the equations of the region; in arrays of one value, where the lattice ends at the edge of the grid."""
        part, flows = self._block.nodes, solver.discretisation
        self.equations = None
        if flows is not None:
            self.equations = self._ranks.agree(lambda: region_equations(flows, part))
            self.conductances = self.equations.conductances
            return
        nodes = [p.stop - p.start for p in part]
        along = tuple(
            np.broadcast_to(k.flat[0], [n - (axis == other) for other, n in enumerate(nodes)])
            for axis, k in enumerate(stencil.along)
        )
        self.conductances = Conductances(along, np.broadcast_to(stencil.reaction.flat[0], nodes))

    def _layout(self, unknown: Slices) -> tuple[Layout, list[tuple[int, ...]]]:
        """Return how the unknowns lie over the ranks, and how many along each axis these have."""
        sizes = []
        for axis, part in enumerate(unknown):
            blocks = blocks_along(self._ranks, self._block.lattice, axis)
            owned = [common((b.owned_unknowns()[1][axis],), (part,))[0] for b in blocks]
            sizes.append(tuple(p.stop - p.start for p in owned))
        shards = tuple(Shard(axis, counts) for axis, counts in enumerate(sizes))
        return Layout(tuple(waves.count for waves in self._waves), self._ranks.dims, shards), sizes

    def vector(self) -> np.ndarray:
        """Return zeros."""
        return np.zeros([p.stop - p.start for p in self._mine])

    def right_hand_side(
        self, v: Interface, source: NodeSource | None, number: int, room: np.ndarray | None = None
    ) -> np.ndarray:
        """Return that of one of the problems, a vector; see `MultigridSystem.right_hand_side`."""
        b = self.vector() if room is None else room
        if source is None:
            b[...] = 0.0
        else:
            values = source.values[number].cpu().numpy()
            np.multiply(values[self._inside], source.scale, out=b)
        if self.equations is None:
            b[self._ring] += self.measure.added(v, slice(number, number + 1))[0]
        if self._pin is not None:  # one equation follows from all others
            total = self._ranks.sum(np.array([b.sum()]))[0]
            if self._pin:
                b[self._pin] -= total
        return b

    def start(self, own: np.ndarray, room: np.ndarray | None = None) -> np.ndarray:
        """Return a vector of values at the owned nodes; see `MultigridSystem.start`."""
        x = self.vector() if room is None else room
        shape = [p.stop - p.start for p in self.own]
        x[...] = np.broadcast_to(own, shape)[within(self._mine, self.own)]
        return x

    def field(
        self, x: np.ndarray, v: Interface, number: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the values of a problem at the nodes `around`; see `MultigridSystem.field`."""
        share, part = self._share, self._block.nodes
        values = np.empty([p.stop - p.start for p in self.around]) if out is None else out
        owned = np.zeros([p.stop - p.start for p in share.own])
        owned[within(self._mine, share.own)] = x
        values[...] = share.in_region(share.widened(owned))[within(self.around, part)]
        inside = within(self.around, part)
        for axis, end in self._edges():
            along = tuple(inside[other] for other in others(axis, values.ndim))
            edge = v.lines[axis][number].select(0, end)[along].cpu().numpy()
            values[at(axis, values.ndim, end)] = edge
        return values

    def _edges(self) -> Iterator[tuple[int, int]]:
        """Yield the edges of the lattice with given values: axis and end."""
        for axis in range(len(self.own)) if self.equations is None else ():
            for end, there in zip((0, -1), self._block.at_edge(axis), strict=True):
                if there:
                    yield axis, end

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
        block = self._block
        rms = self._left / self._least / math.sqrt(self.unknowns)
        place = tuple(map(slice, block.start, block.stop))
        everywhere = torch.full(block.subdomains, rms, dtype=torch.float64)
        return ErrorEstimate(rms, rms, everywhere, place, self._left / math.sqrt(self._least))
