"""Residuals of a filled field, computed strip by strip while it is filled, where it lies.

`DiscreteResidual` needs no reference and no estimate: ``|b - A u| / |b|`` for the system ``A u = b`` of
the nodes inside the domain.

`NodeResidual` is what the field differs by, at the centres of its tiles, from the interface it was
filled from. There the partition of unity knows one subdomain only, so the field is ``T v``, and this is
the residual of the fixed point at the result, for local solvers of any kind. Elsewhere the field comes
from one subdomain and ``T v`` from two.

Sums over the values that a block owns, in pieces that stay in the processor's cache.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from mosaicdd.axes import Slices, common, in_rows, moved, within
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.safe_norms import safe_power
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.source import Source

# Values per piece: on a processor few enough to stay in a cache, enough to outweigh the calls.
_NORM_PIECE = {"cpu": 2**17, "cuda": 2**24}
# Gives views of what is owned, `Interface.owned_parts`, or of some of it.
Parts = Callable[[Interface], list[torch.Tensor]]


def owned_squares(
    v: Interface, other: Interface, parts: Parts = Interface.owned_parts
) -> np.ndarray:
    """Return the sums of squares of ``v - other`` and of ``v`` over owned parts of a block, ``(2, n)``."""
    differences = values = v.flat.new_zeros(v.problems)
    for mine, theirs, room in _pieces(v, other, parts):
        differences = differences + _squares(torch.sub(mine, theirs, out=room))
        values = values + _squares(room.copy_(mine))
    return np.stack([_host(differences), _host(values)])


def owned_difference(v: Interface, other: Interface) -> np.ndarray:
    """Return the sum of the absolute values of ``v - other`` over what a block owns, ``(n,)``."""
    total = v.flat.new_zeros(v.problems)
    for mine, theirs, room in _pieces(v, other, Interface.owned_parts):
        total = total + torch.sub(mine, theirs, out=room).flatten(1).abs_().sum(dim=1)
    return _host(total)


def _pieces(
    v: Interface, other: Interface, parts: Parts
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield pieces of both, and room for what is made of them; the next piece overwrites it."""
    largest, scratch = _NORM_PIECE[v.flat.device.type], v.flat.new_empty(0)
    for mine, theirs in zip(parts(v), parts(other), strict=True):
        rows = max(1, largest // max(1, v.problems * mine[0, :1].numel()))
        for piece, beside in zip(mine.split(rows, dim=1), theirs.split(rows, dim=1), strict=True):
            if len(scratch) < piece.numel():
                scratch = v.flat.new_empty(piece.numel())
            yield piece, beside, scratch[: piece.numel()].view(piece.shape)


def _squares(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares of each problem; the values are overwritten."""
    values = values.flatten(1)
    if len(values) == 1:
        return torch.dot(values[0], values[0])[None]
    return values.square_().sum(dim=1)


def _host(total: torch.Tensor) -> np.ndarray:
    return total.double().cpu().numpy()


_PIECE = 2**15  # values worked on at a time
_LEAST = 1e-290  # norm of a right-hand side that residuals can be relative to, without an overflow


class DiscreteResidual:
    """Adds up the squares of ``b - A u`` over strips of the field, for each problem.

    Attributes
    ----------
    scale
        The sum of the absolute values of a row of ``A``.
    """

    def __init__(
        self,
        ranks: Ranks,
        whole: Grid,
        operator: EllipticOperator,
        source: Source | None = None,
        problems: int = 1,
    ):
        self._ranks = ranks
        self._grid = whole
        self._system = DirichletSystem(operator, whole)
        self._source = source
        self._problems = problems
        self.scale = float(abs(self._system.stencil).sum())
        self._power = safe_power(self.scale)  # of both sides
        self._squares = np.zeros(problems)
        self._places: list[Slices] = []

    def add(self, strip: Strip) -> None:
        """Take the owned nodes of a strip into account that lie inside the domain."""
        owned = tuple(
            slice(inner.start + (place.start == 0), inner.stop - (place.stop == nodes))
            for inner, place, nodes in zip(strip.inner, strip.place, self._grid.nodes, strict=True)
        )
        if owned[0].stop <= owned[0].start:
            return
        origin = [p.start - inner.start for p, inner in zip(strip.place, strip.inner, strict=True)]
        if self._source is not None:
            self._places.append(moved(owned, origin))
        for piece in in_rows(owned, max(1, _PIECE // len(strip.values))):
            around = (slice(part.start - 1, part.stop + 1) for part in piece)
            residual = self._system.apply(strip.values[:, *around].movedim(0, -1)).double()
            if self._source is not None:
                f = self._scaled_source(moved(piece, origin))
                residual -= torch.from_numpy(f).movedim(0, -1).to(residual)
            if self._power != 1.0:
                residual *= self._power
            self._squares += residual.square().flatten(0, -2).sum(dim=0).cpu().numpy()

    def _scaled_source(self, place: Slices) -> np.ndarray:
        """Return the source times the squared spacing, ``(n or 1, rows, columns)``."""
        f = None if self._source is None else self._source.at(place)
        return np.zeros((1,) * (1 + len(place))) if f is None else self._grid.spacing**2 * f

    def relative(self, boundaries: Sequence[Boundary]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``|b - A u| / |b|`` of each problem, the norm, and whether it is ``|b|``; and begin anew.

        For data without any effect (``b = 0``, or next to it) the norm is 1.
        """
        boundaries = [boundary.times(self._power) for boundary in boundaries]
        if self._source is None:
            squares = self._ranks.sum(self._squares)
            norms = self._system.right_hand_side_norms(boundaries)
        else:
            sums = self._ranks.sum(np.stack([self._squares, self._squares_of_b(boundaries)]))
            squares, norms = sums[0], np.sqrt(sums[1])
        self._squares = np.zeros(self._problems)
        self._places = []
        driven = np.asarray(norms > _LEAST)
        norms = np.where(driven, norms, 1.0)
        return np.sqrt(squares) / norms, norms / self._power, driven

    def _squares_of_b(self, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the sum of the squares of ``b`` over the nodes of all strips, ``(n,)``."""
        terms = self._system.edge_terms(boundaries)
        total = np.zeros(self._problems)
        for place in self._places:
            for piece in in_rows(place, _PIECE):
                shape = (self._problems, *(part.stop - part.start for part in piece))
                b = np.broadcast_to(self._power * self._scaled_source(piece), shape).copy()
                for there, values in terms:
                    _add_common(b, piece, values, there)
                b = b.reshape(self._problems, -1)
                total += np.einsum("ni,ni->n", b, b)
        return total


def _add_common(b: np.ndarray, piece: Slices, values: np.ndarray, place: Slices) -> None:
    """Add values ``(rows, columns, n)`` of a place where it meets a piece ``(n, rows, columns)``."""
    both = common(piece, place)
    if all(p.stop > p.start for p in both):
        b[:, *within(both, piece)] += np.moveaxis(values[within(both, place)], -1, 0)


class NodeResidual:
    """Adds up the squares of ``T v - v`` over strips of the field, for each problem.

    ``v``: what the field is filled from.
    """

    def __init__(self, ranks: Ranks, v: Interface):
        self._ranks = ranks
        self._v = v
        self._squares = np.zeros(v.problems)

    def add(self, strip: Strip) -> None:
        """Take the owned centres of tiles in a strip into account: lattice nodes with odd indices."""
        block, s = self._v.block, self._v.block.lattice.spacing
        filled, lines, nodes = [], [], []
        for axis, place in enumerate(strip.place):
            low = max(-(-place.start // s), block.start[axis])
            low += 1 - low % 2
            high = max(low, min(-(-place.stop // s), block.stop[axis]))
            filled.append(slice(low * s - place.start, max(0, high * s - place.start), 2 * s))
            lines.append(slice(low - block.first[axis], high - block.first[axis], 2))
            nodes.append(slice(low * s - block.origin[axis], high * s - block.origin[axis], 2 * s))
        difference = strip.owned[:, *filled] - self._v.lines[0][:, lines[0], *nodes[1:]]
        self._squares += difference.double().square().flatten(1).sum(dim=1).cpu().numpy()

    def root_mean_square(self) -> np.ndarray:
        """Return the root mean square of ``T v - v`` over the centres of the tiles."""
        centres = math.prod(cells // 2 for cells in self._v.block.lattice.cells)
        return np.sqrt(self._ranks.sum(self._squares) / centres)
