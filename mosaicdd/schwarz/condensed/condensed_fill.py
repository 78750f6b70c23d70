"""The field of a medium from its interface, strip by strip, and its residual by the way."""

from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, even
from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.common_conductances import CommonConductances
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Resampled
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.condensed.stencil import Stencil
from mosaicdd.schwarz.fill import Strip

_VALUES = 2**16  # of a field that are handled at once, for the cache


def fill_strips(
    system: CondensedSystem, v: Interface, source: NodeSource | None
) -> Iterator[Strip]:
    """Yield this rank's part of the field from below, in strips with a node more all around.

    Without what is a copy along periodic axes.

    Parameters
    ----------
    source
        At the nodes of the region; None for zero.
    """
    block, s = v.block, v.block.lattice.spacing
    (rows, columns), (_, place) = block.owned_unknowns()
    across = slice(max(columns.start - 1, 0), min(columns.stop + 1, block.cells[1] + 1))
    inner = slice(columns.start - across.start, columns.stop - across.start)
    before, done = v.lines[0][:, :1], rows.start
    for strip, values in system.elements.fill(v.lines, source):
        bottom, top = strip.start * s, strip.stop * s
        values[:, :1] = before
        base = bottom - 1  # the row of the region that stands first
        last = min(top if top < block.cells[0] else top + 1, rows.stop)
        before = values[:, -2:-1]
        if last <= done:
            continue
        low, high = max(done - 1, 0), min(last + 1, block.cells[0] + 1)
        yield Strip(
            values=values[:, low - base : high - base, across],
            inner=(slice(done - low, last - low), inner),
            place=(slice(block.origin[0] + done, block.origin[0] + last), place),
        )
        done = last


class FieldResidual:
    """Adds up the squares of ``b - A u`` over the strips of a field; and those of ``b``.

    Parameters
    ----------
    v
        An interface of the block, with the values on the edge of the domain.
    conductances
        Between the nodes of the region.
    source
        At the nodes of the region; None for zero.
    less
        Flat nodes whose right-hand sides do not fully count in the norms, and what they count.
    active
        Which nodes of the region are; None if all.
    """

    def __init__(
        self,
        ranks: Ranks,
        v: Interface,
        conductances: Conductances | Resampled,
        source: NodeSource | None,
        less: tuple[np.ndarray, np.ndarray] | None = None,
        active: np.ndarray | None = None,
    ):
        self._ranks = ranks
        self._block = block = v.block
        self._conductances = conductances
        self._common = None
        if active is not None:
            self._common = CommonConductances.of(conductances, active)
        self._source = None if source is None else source.values.cpu().numpy()
        self._scale = 1.0 if source is None else source.scale
        self._driven = None if source is None else source.nodes
        self._squares, self._rounded = np.zeros(v.problems), np.zeros(v.problems)
        self._less = less
        # The nodes of the region that this rank owns and that are not on the edge of the lattice.
        self._ends = [
            (-1, last + 1) if around else (first, last)
            for first, last, around in zip(
                block.lattice.first_node,
                block.lattice.last_node,
                block.lattice.periodic,
                strict=True,
            )
        ]
        self._inner = tuple(
            slice(part.start + (part.start + first == low), part.stop - (part.stop + first > high))
            for part, first, (low, high) in zip(
                block.owned_unknowns()[0], block.origin, self._ends, strict=True
            )
        )
        self.norms = self._norms(v, less)

    def _norms(self, v: Interface, less: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
        """Return the 2-norm of each ``b``, ``(n,)``: sources, and edge values times conductances."""
        squares = np.zeros(v.problems)
        if self._source is not None:
            squares += self._scale**2 * self._squares_of(self._source, less)
        beside: list[list[tuple[int, np.ndarray]]] = [
            [],
            [],
        ]  # per axis: what an edge adds to the nodes beside it
        for axis in (0, 1):
            along = self._inner[1 - axis]
            for end, at in zip((0, -1), self._block.at_edge(axis), strict=True):
                if at:
                    g = v.lines[axis][:, end, along].cpu().numpy()
                    added = self._beside_edge(axis, end)[along] * g
                    squares += np.square(added).sum(axis=1)
                    if self._source is not None:
                        nodes = self._source if axis == 0 else self._source.swapaxes(1, 2)
                        row = self._inner[axis].start if end == 0 else self._inner[axis].stop - 1
                        squares += 2 * self._scale * (nodes[:, row, along] * added).sum(axis=1)
                    beside[axis].append((end, added))
        for end, rows in beside[0]:  # corners are beside two edges
            for other, columns in beside[1]:
                squares += 2 * rows[:, other] * columns[:, end]
        return np.sqrt(self._ranks.sum(squares))

    def _squares_of(
        self, source: np.ndarray, less: tuple[np.ndarray, np.ndarray] | None
    ) -> np.ndarray:
        """Return the sums of the squares of sources at the inner nodes, as they count, ``(n,)``."""
        columns = source.shape[2]
        if self._driven is not None:
            y, x = np.divmod(self._driven, columns)
            rows, across = self._inner
            inside = (y >= rows.start) & (y < rows.stop) & (x >= across.start) & (x < across.stop)
            nodes = self._driven[inside]
            values = source.reshape(len(source), -1)[:, nodes]
            if less is not None:
                _, at, these = np.intersect1d(nodes, less[0], return_indices=True)
                values[:, at] *= less[1][these]
            return np.einsum("nt,nt->n", values, values)
        if less is not None and len(less[0]):
            source = source.copy()
            source.reshape(len(source), -1)[:, less[0]] *= less[1]
        inner = source[:, *self._inner]
        return np.einsum("nyx,nyx->n", inner, inner)

    def _beside_edge(self, axis: int, end: int) -> np.ndarray:
        """Return the conductances of the nodes on an edge in the equations of those beside them."""
        place = [slice(0, cells + 1) for cells in self._block.cells]
        place[axis] = slice(0, 2) if end == 0 else slice(place[axis].stop - 2, place[axis].stop)
        part = self._conductances.part(*place)
        low, high = (part.down, part.left.T), (part.up, part.right.T)
        return (low, high)[end][axis][0]

    def add(self, strip: Strip) -> None:
        """Take the owned nodes of a strip into account that are not on the edge of the lattice."""
        values, here = self._around(strip)
        if not values.numel():
            return
        if self._common is None:
            beyond = (slice(part.start - 1, part.stop + 1) for part in here)
            conductances = self._conductances.part(*beyond).each(np.asarray)
        for some in even(values.shape[1] - 2, max(1, _VALUES // values.shape[2])):
            place = slice(here[0].start + some.start, here[0].start + some.stop), here[1]
            around = slice(some.start, some.stop + 2), slice(0, values.shape[2])
            equations = self._common or Stencil(conductances.part(*around))
            for i, u in enumerate(values[:, around[0]].double().cpu()):
                residual = self._residual(i, u, place, equations)
                self._squares[i] += np.vdot(residual, residual)

    def _around(self, strip: Strip) -> tuple[torch.Tensor, Slices]:
        """Return a strip's values at such nodes and one more all around, and where in the region they are."""
        origin = self._block.origin
        rows, columns = (
            slice(inner.start + (place.start == low), inner.stop - (place.stop > high))
            for inner, place, (low, high) in zip(strip.inner, strip.place, self._ends, strict=True)
        )
        if rows.stop <= rows.start:
            return strip.values[:, :0], (rows, columns)
        values = strip.values[
            :, rows.start - 1 : rows.stop + 1, columns.start - 1 : columns.stop + 1
        ]
        here = tuple(  # in the region
            slice(low, low + len(range(part.start, part.stop)))
            for low, part in (
                (place.start - inner.start + part.start - first, part)
                for place, inner, part, first in zip(
                    strip.place, strip.inner, (rows, columns), origin, strict=True
                )
            )
        )
        return values, here

    def add_rounding(self, strip: Strip) -> None:
        """Take the same nodes of a strip into account for `rounding`."""
        values, here = self._around(strip)
        if not values.numel():
            return
        beyond = tuple(slice(part.start - 1, part.stop + 1) for part in here)
        conductances = self._conductances.part(*beyond).each(np.asarray)
        weights = 2 * np.abs(conductances.diagonal()[1:-1, 1:-1])
        if self._less is not None:
            width = self._block.cells[1] + 1
            (y, x), (rows, columns) = np.divmod(self._less[0], width), here
            there = (y >= rows.start) & (y < rows.stop) & (x >= columns.start) & (x < columns.stop)
            weights[y[there] - rows.start, x[there] - columns.start] *= self._less[1][there]
        for i, u in enumerate(values[:, 1:-1, 1:-1].double().cpu().numpy()):
            self._rounded[i] += np.square(weights * u).sum()

    def rounding(self) -> np.ndarray:
        """Return ``|eps |A| |u|| / |b|`` of each problem, ``A``'s rows taken as twice their diagonal."""
        squares, eps = self._ranks.sum(self._rounded), np.finfo(float).eps
        return eps * np.sqrt(squares) / np.where(self.norms > 0, self.norms, 1.0)

    def _residual(
        self, i: int, u: torch.Tensor, here: Slices, equations: CommonConductances | Stencil
    ) -> np.ndarray:
        """Return ``A u - b`` of a problem at some nodes of the region; ``u`` has one more all around."""
        source = None if self._source is None else self._source[i]
        if isinstance(equations, CommonConductances):
            residual = equations.apply(u.numpy(), here)
        elif source is not None and self._driven is None:
            return equations.residual(u, torch.from_numpy(source[here]), self._scale).numpy()
        else:
            residual = equations.residual(u).numpy()
        if source is not None:
            self._subtract(source, residual, here)
        return residual

    def _subtract(self, source: np.ndarray, residual: np.ndarray, here: Slices) -> None:
        """Take a problem's source off at some nodes of the region."""
        if self._driven is None:
            residual -= self._scale * source[here]
            return
        width, (rows, columns) = source.shape[1], here
        some = slice(*np.searchsorted(self._driven, [rows.start * width, rows.stop * width]))
        y, x = np.divmod(self._driven[some], width)
        there = (x >= columns.start) & (x < columns.stop)
        y, x = y[there], x[there]
        residual[y - rows.start, x - columns.start] -= self._scale * source[y, x]

    def relative(self) -> np.ndarray:
        """Return ``|b - A u| / |b|`` of each problem; for ``b = 0`` it is ``|A u|``."""
        squares = self._ranks.sum(self._squares)
        return np.sqrt(squares) / np.where(self.norms > 0, self.norms, 1.0)
