"""Separable equations on the region of a rank, prepared for transforms.

Divided by the part of its volume that is in the rectangle, an equation is the same at all unknowns: ``A u = b`` with
second differences along the axes and a reaction, whose eigenvectors are products of waves.

Elimination along the first axis takes the place of two transforms. Of the waves along all other axes an equation in
the first one is left, ``k (-u[i-1] + d u[i] - u[i+1]) = f[i]`` for each product of these, with ``d`` at least 2. Such
equations are solved without pivots, as exactly as by transforms, and in less time than one of these takes.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from mosaicdd.axes import Slices, at, common, crossed, even, within
from mosaicdd.discretisation.region_equations import region_equations
from mosaicdd.discretisation.system import SeparableSystem
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import Partition
from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.measure import EdgeValues, NodeSource, ResidualScale, require_range
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.vector_operations import Image, kernels, planned
from mosaicdd.solvers.outcome import ERROR_STEP, ErrorEstimate
from mosaicdd.solvers.transforms.sine_solve import SineSolve, SineTransform

_VALUES = 2**13  # handled at once, so that they stay in the cache


def is_compiled() -> bool:
    """Say whether there is compiled code for it, without which transforms are faster."""
    return kernels() is not None


def elimination(
    f: np.ndarray, coupling: float, diagonal: np.ndarray, held: tuple[bool, bool]
) -> Callable[[], None]:
    """Plan the solution of right-hand sides, which it takes the place of; only where it `is_compiled`.

    Parameters
    ----------
    f
        ``(n, ..)``, contiguous: it stays where it is.
    coupling, diagonal
        ``k``, and ``d`` of each row along the first axis, ``(..)``.
    held
        Whether values are given beyond the low and the high end; else the value there is that on the other side of it.
    """
    code = kernels()
    if code is None:
        raise RuntimeError("elimination is compiled, and numba is not installed: take transforms")
    rows, d = f.reshape(len(f), -1), diagonal.reshape(-1)
    pivots = np.empty(rows.shape)  # their inverses
    np.divide(1.0, d, out=pivots[0])
    # At natural ends the row beside counts twice: for the first in what goes back, for the last on the way there.
    first = pivots[0] * (1.0 if held[0] else 2.0)
    last = 1.0 if held[1] else 2.0
    for i in range(1, len(rows)):
        factor = last if i == len(rows) - 1 else 1.0
        np.subtract(d, factor * (first if i == 1 else pivots[i - 1]), out=pivots[i])
        np.divide(1.0, pivots[i], out=pivots[i])
    parts = [(part.start, part.stop) for part in even(d.size, _VALUES)]

    def solve() -> None:
        for part in parts:
            code.eliminate(rows, pivots, first, last, 1 / coupling, *part)

    return solve


class SecondDifferences:
    """``A u``, per volume: second differences times a coupling along each axis, and a reaction; planned once.

    Beside an end with given values these are zero; beside one with fluxes values are those on the other side.

    Parameters
    ----------
    layout, sizes
        Of the unknowns, and how many along each axis the ranks along it have.
    couplings, reaction
        Times the squared spacing.
    """

    def __init__(
        self,
        ranks: Ranks,
        layout: Layout,
        sizes: Sequence[tuple[int, ...]],
        waves: Sequence[SineTransform],
        couplings: Sequence[float],
        reaction: float,
    ):
        self._couplings, self._reaction = couplings, reaction
        self._inner = tuple(slice(1, -1) for _ in waves)
        shape = layout.local_shape(ranks.rank)
        self._padded = np.zeros([n + 2 for n in shape])
        self._halo: Redistribution | None = None
        self._held = self._inner
        around = any(of.given is None for of in waves)
        if ranks.size > 1 or around:
            halos = [
                Halo(axis, 1, counts, of.count if of.given is None else None)
                for axis, (counts, of) in enumerate(zip(sizes, waves, strict=True))
            ]
            held = Layout(layout.shape, layout.mesh, tuple(halos))
            self._halo = Redistribution(layout, held, ranks, np.float64)
        self._out, self._compute = self._planned()
        # The ends of axes where this rank's first and last nodes are, with fluxes.
        self._natural: list[tuple[int, int, int]] = []
        if min(shape) == 0:
            return
        place = layout.place(ranks.rank)
        for axis, (part, of) in enumerate(zip(place, waves, strict=True)):
            lowest, highest = part.start == 0, part.stop == of.count
            if self._halo is not None:
                low, high = (int(of.given is None or not end) for end in (lowest, highest))
                self._held = (
                    *self._held[:axis],
                    slice(1 - low, shape[axis] + 1 + high),
                    *self._held[axis + 1 :],
                )
            if of.given is not None:
                # Ghost and mirrored node, in the padded array.
                if lowest and not of.given[0]:
                    self._natural.append((axis, 0, 2))
                if highest and not of.given[1]:
                    self._natural.append((axis, -1, -3))

    def _planned(self) -> tuple[np.ndarray, Callable[..., object]]:
        """Plan ``A u`` of the padded values, and return where it will be.

        Rows are one after another in memory, and all of them one stretch, the ends of each included, which nobody reads.
        """
        padded, out = self._padded, np.zeros_like(self._padded)
        u, result = (torch.from_numpy(values).view(-1) for values in (padded, out))
        distances = [stride // padded.itemsize for stride in padded.strides]
        reach = sum(distances)
        along = [
            (k, way * d) for k, d in zip(self._couplings, distances, strict=True) for way in (-1, 1)
        ]
        ones = torch.ones(min(_VALUES, u.numel()), dtype=u.dtype)
        factors = {k: k * ones for k, _ in along}
        reaction, images = self._reaction * ones, []
        for part in even(max(0, u.numel() - 2 * reach), _VALUES):
            first, last = part.start + reach, part.stop + reach
            count = last - first
            terms = [(factors[k][:count], u[first + d : last + d]) for k, d in along]
            excess = reaction[:count] if self._reaction else None
            images.append(Image(result[first:last], u[first:last], terms, excess))
        return out, planned(images)

    def per_volume(self, b: np.ndarray) -> np.ndarray:
        """Return a right-hand side divided by the volumes; itself where these are whole."""
        return self._scaled(b, 2.0)

    def times_volumes(self, left: np.ndarray) -> np.ndarray:
        """Return values per volume times the volumes; themselves where these are whole."""
        return self._scaled(left, 0.5)

    def _scaled(self, values: np.ndarray, by: float) -> np.ndarray:
        if self._natural:
            values = values.copy()
        for axis, end, _ in self._natural:
            values[at(axis, values.ndim, end)] *= by
        return values

    def residual(self, b: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return ``b - A x``; all ranks together."""
        padded, axes = self._padded, x.ndim
        padded[self._held] = x if self._halo is None else self._halo(x)
        for axis, ghost, mirrored in self._natural:
            padded[at(axis, axes, ghost)] = padded[at(axis, axes, mirrored)]
        self._compute()
        return np.subtract(b, self._out[self._inner])


_GAIN = 0.5  # of residuals from one correction to the next, at least: there is little but rounding left else


class SineSystem:
    """Separable equations, prepared for transforms; see `PreparedSystem`.

    Vectors are arrays of the unknowns of this rank, ``(rows, columns)``; the number on the diagonal is the scale.

    `ValueError` on all ranks, if the coefficients are not sound.
    """

    name, iterates, directed = "sines", False, False

    def __init__(self, partition: Partition, solver: SeparableSystem, clock: Stopwatch):
        self._partition, self._ranks = partition, partition.ranks
        ranks, grid = partition.ranks, partition.grid
        self._ghosts = GhostNodes(partition, 1)
        self._left = 0.0  # the 2-norm of the residual of the last solve, per volume
        self.region = partition.region(values_given=solver.discretisation is None)
        own = self.region.owned
        self._waves = [
            SineTransform(cells if ends is None else cells + 1 - sum(ends), ends)
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
            stencil = ranks.run_on_all(
                lambda: solver.operator.conductances(grid, (slice(0, 2),) * len(own))
            )
            self._sample(solver, stencil)
        self.measure = ResidualScale(
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

            self._transforms = SineSolve(layout, layout, ranks, self._waves)
            held, k = self._waves[0].given, couplings[0]
            self._first: np.ndarray | Callable[[], None]
            if held is not None and not floating and is_compiled():

                def eliminate(array: np.ndarray, part: Sequence[slice]) -> Callable[[], None]:
                    rest = crossed(
                        *(values[p] for values, p in zip(along[1:], part[1:], strict=True))
                    )
                    return elimination(array, k, 2 + (reaction + sum(rest[1:], rest[0])) / k, held)

                self._first = self._transforms.elimination(eliminate)
            else:
                self._first = self._transforms.inverse(symbol)
            self._differences = SecondDifferences(
                ranks, layout, sizes, self._waves, couplings, reaction
            )

    def _sample(self, solver: SeparableSystem, stencil: Conductances) -> None:
        """Find the equations of the region; in arrays of one value, where values are given on all sides."""
        part, flows = self.region.nodes, solver.discretisation
        self.equations = None
        if flows is not None:
            self.equations = self._ranks.run_on_all(lambda: region_equations(flows, part))
            self.conductances = self.equations.conductances
            return
        nodes = self.region.shape
        along = tuple(
            np.broadcast_to(k.flat[0], [n - (axis == other) for other, n in enumerate(nodes)])
            for axis, k in enumerate(stencil.along)
        )
        self.conductances = Conductances(along, np.broadcast_to(stencil.reaction.flat[0], nodes))

    def _layout(self, unknown: Slices) -> tuple[Layout, list[tuple[int, ...]]]:
        """Return the layout of the unknowns, and their numbers along each axis by ranks."""
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
        """Return the right-hand side of one of the problems; see `PreparedSystem`."""
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

    def solve(self, b: np.ndarray, x: np.ndarray, size: float, judge: ResidualMonitor) -> str:
        """Solve for a right-hand side, whatever ``x`` is, which becomes the result; return how it ended.

        All ranks together. Corrections of what rounding leaves follow while they gain. ``size``: what residuals are relative to.
        """
        left = per_volume = self._differences.per_volume(b)
        x[...] = 0.0
        before, status = math.inf, None
        while status is None:
            step = self._inverted(left)
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

    def _inverted(self, left: np.ndarray) -> np.ndarray:
        """Return the solution for a residual per volume."""
        return self._transforms(left, self._first)

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
