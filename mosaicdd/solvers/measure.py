"""The scale of residuals in a medium: the norm of the data that drive a solution.

The equations of a grid are ``A u = b``, and rows count ``W`` (`RowWeights`). Of ``b``, the image ``c A 1`` of a
constant is what sides, outlines and reactions ask for where nothing varies. However large, it says nothing of
how a solution varies, so residuals are relative to ``min_c |W (b - c A 1)|``: adding a number to all values
that are given, and times the reaction to the source, changes none.

Values given on the edge of a rectangle or box, at the nodes of a rank's region.

By which powers of two the data of a linear problem are multiplied, see `safe_norms`; by their largest numbers.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.axes import Slices, at, in_rows, moved, others
from mosaicdd.discretisation.node_equations import RowWeights
from mosaicdd.discretisation.squares_of_nodes import ArrayInSquares
from mosaicdd.discretisation.system import GridSource
from mosaicdd.grid.partition import Region
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.safe_norms import safe_power
from mosaicdd.problems.fields.evaluated import STRIP
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.jacobian import OutOfRangeError
from mosaicdd.problems.sides.boundary import Boundary


def powers_of(
    ranks: Ranks,
    boundaries: Sequence[Boundary],
    source: GridSource | None,
    owned: Slices,
    scale: float,
    dtype: str,
) -> np.ndarray:
    """Return the power of two that multiplies each problem's data, ``(n,)``; all ranks together.

    ``owned``: the nodes whose source this rank looks at; ``scale``: of the equations' numbers, times the squared spacing.
    """
    largest = [max(abs(edge).max() for edge in each.edges.values()) for each in boundaries]
    if source is not None:
        sources = source.grid.spacing**2 / scale * _largest(ranks, source, owned)
        largest = np.maximum(largest, sources).tolist()
    return np.array([safe_power(size, dtype) for size in largest])


def _largest(ranks: Ranks, source: GridSource, owned: Slices) -> np.ndarray:
    """Return the largest absolute value of each problem's source, ``(n or 1,)``."""
    field, grid = source.problem.source, source.grid
    if field is None or field.number is not None:
        return np.array([0.0 if field is None else abs(field.number or 0.0)])

    def here() -> np.ndarray:
        parts = [np.abs(field.sample(grid, strip)) for strip in in_rows(owned, STRIP)]
        each = [part.reshape(len(part), -1).max(axis=1, initial=0.0) for part in parts]
        return np.max(each, axis=0)

    return np.max(ranks.allgather(ranks.run_on_all(here)), axis=0)


@dataclass(frozen=True)
class EdgeValues:
    """Given values of problems on the edge of the grid, within a region.

    Parameters
    ----------
    problems
        How many there are.
    values
        By axis and end, where the region has given values: ``(n, nodes of the other axes)``.
    """

    problems: int
    values: dict[tuple[int, int], np.ndarray]

    @classmethod
    def of(cls, region: Region, boundaries: Sequence[Boundary] | None = None) -> "EdgeValues":
        """Return the values of each problem; without boundaries zeros of one problem."""
        values: dict[tuple[int, int], np.ndarray] = {}
        axes = len(region.shape)
        for axis in range(axes):
            along: Slices = tuple(region.nodes[other] for other in others(axis, axes))
            for end, reached in enumerate(region.at_edge(axis)):
                if reached and boundaries is None:
                    shape = [p.stop - p.start for p in along]
                    values[axis, end] = np.broadcast_to(0.0, (1, *shape))
                elif reached:
                    each = [boundary.edges[axis, end][along] for boundary in boundaries or ()]
                    values[axis, end] = np.stack(each)
        return cls(1 if boundaries is None else len(boundaries), values)

    def times(self, factors: np.ndarray) -> "EdgeValues":
        """Return the values of each problem multiplied, ``(n,)``."""
        scaled = {
            side: edge * factors.reshape(-1, *[1] * (edge.ndim - 1))
            for side, edge in self.values.items()
        }
        return EdgeValues(self.problems, scaled)

    def impose(self, values: np.ndarray, number: int) -> None:
        """Write the values of a problem to the edge of an array of the region, in place."""
        for (axis, end), edge in self.values.items():
            values[at(axis, values.ndim, -end)] = edge[number]


# Of ``|W b|``, the least that counts: what varies less is near the rounding of what is given, and is lost in
# the difference of squares that it is computed as.
_LEAST = 1e-6
_RATIO = 1e35  # between the numbers of equations
_RANGE = 1e-140, 1e140  # of numbers whose squares are added up, also of those that are much smaller
# Of the same, the least residual to ask for: some units in the last place of `|A| |u|`.
_ROUNDING = 1e-14
_LITTLE = 0.1  # of the same, beside which a solve begins with the constant


def require_range(largest: float) -> None:
    """Check that float64 holds the squares of the numbers in equations, by the largest; 0 where there are none.

    `OutOfRangeError` if it does not.
    """
    if largest and not _RANGE[0] < largest < _RANGE[1]:
        raise OutOfRangeError(
            f"the coefficients make numbers of {largest:g} in the equations, and {_RANGE[0]:g} to "
            f"{_RANGE[1]:g} are solved: multiply coefficients, sources, fluxes and alpha by one number"
        )


def require_ratio(least: float, largest: float) -> None:
    """Check that float32, in which preconditioners are, holds the ratios of the numbers on the diagonal.

    `OutOfRangeError` if it does not.
    """
    if not largest < _RATIO * least:
        ratio = largest / least if least else np.inf
        raise OutOfRangeError(
            f"the equations of nodes differ by a factor of {ratio:g}, and {_RATIO:g} is "
            "solved: in the place of an exchange or a reaction that large give the value itself"
        )


def driven(
    squares: np.ndarray, products: np.ndarray, of_constant: np.ndarray, *, rtol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least 2-norms ``|b - c A 1|`` over constants ``c``, and constants to begin with.

    Most begin with 0; those of which it leaves next to nothing with that constant.

    Parameters
    ----------
    squares, products
        Of each right-hand side: its square, and its product with the image of one.
    of_constant
        The square of that image.
    rtol
        What residuals are to be beside that: no less than rounding is asked for.
    """
    constants = products / np.where(of_constant > 0, of_constant, 1.0)
    least = max(_LEAST, _ROUNDING / rtol) if rtol > 0 else 1.0
    left = np.maximum(squares - products * constants, min(least, 1.0) ** 2 * squares)
    return np.sqrt(left), np.where(left < _LITTLE**2 * squares, constants, 0.0)


@dataclass(frozen=True)
class NodeSource:
    """A source at the nodes of a region, ``scale`` times ``values``: what was given need not be copied.

    Parameters
    ----------
    values
        ``(n, rows, columns)``; in space with an axis more.
    scale
        The squared spacing, where they are values of ``f``.
    """

    values: torch.Tensor
    scale: float = 1.0

    def times(self, factors: np.ndarray) -> "NodeSource":
        """Return the source of each problem multiplied, ``(n,)``."""
        every = torch.from_numpy(factors).view(-1, *[1] * (self.values.dim() - 1))
        return dataclasses.replace(self, values=self.values * every.to(self.values))


@dataclass(frozen=True)
class _Beside:
    """Inner nodes beside an edge of the grid: their places, which nodes of the edge they are coupled to, and how."""

    axis: int
    end: int  # 0 or -1
    along: Slices  # nodes of the edge
    nodes: np.ndarray
    k: np.ndarray


class ResidualScale:
    """Measures the right-hand sides of problems in one medium on the region of a rank; planned once.

    Parameters
    ----------
    conductances
        Between the nodes of the region.
    active
        Which of them are; None if all.

    Attributes
    ----------
    weights
        What the rows of the region count.
    inner
        The nodes of the region that this rank owns and that are not on the edge of the grid.
    ring
        Those of them that are coupled to the edge, flat in the region, ascending.
    """

    def __init__(
        self, region: Region, conductances: Conductances, active: np.ndarray | None = None
    ):
        self.weights = RowWeights.of(conductances, active)
        self.inner = region.inner
        self._place_edges(region, conductances)
        self._squares_of_ring = self.weights.at(self.ring) ** 2
        self._place_image(conductances.reaction, active)

    def _place_edges(self, region: Region, conductances: Conductances) -> None:
        """Find the inner nodes beside the edge of the grid, and their conductances to it."""
        shape = region.shape
        flat, beside = np.arange(math.prod(shape)).reshape(shape), list[_Beside]()
        for axis in range(len(shape)):
            for end, there in zip((0, -1), region.at_edge(axis), strict=True):
                if there:
                    row = self.inner[axis].start if end == 0 else self.inner[axis].stop - 1
                    place = [slice(0, nodes) for nodes in shape]
                    place[axis] = slice(0, 2) if end == 0 else slice(shape[axis] - 2, shape[axis])
                    part = conductances.part(*place)
                    along = tuple(self.inner[other] for other in others(axis, len(shape)))
                    nodes = np.moveaxis(flat, axis, 0)[row][along].ravel()
                    before = [
                        region.at_edge(other) if other < axis else (False, False)
                        for other in range(len(shape))
                    ]
                    straight = _Beside(axis, end, along, nodes, np.empty(0))
                    beside += _coupled(straight, part, before)
        # Corners are beside two edges.
        self.ring = np.unique(np.concatenate([np.empty(0, int), *(edge.nodes for edge in beside)]))
        self._edges = [
            dataclasses.replace(edge, nodes=np.searchsorted(self.ring, edge.nodes))
            for edge in beside
        ]

    def _place_image(self, reaction: np.ndarray, active: np.ndarray | None) -> None:
        """Find what the equations make of a constant: at some nodes, flat, or at all of the region."""
        shape, inner = reaction.shape, self.inner
        there, few = np.zeros(shape, bool), False
        if isinstance(reaction, ArrayInSquares) and not reaction.plain[-1]:
            there[inner], few = reaction.differs()[inner], True
        elif not np.asarray(reaction[inner]).any():
            few = True
        self._nodes = None
        if few:
            there.reshape(-1)[self.ring] = True
            self._nodes = nodes = np.flatnonzero(there)
            image = np.asarray(reaction[np.unravel_index(nodes, shape)])
            weights, ring = self.weights.at(nodes), np.searchsorted(nodes, self.ring)
            unknown = True if active is None else active.reshape(-1)[nodes]
        else:
            image, weights, ring = np.zeros(shape), self.weights.every(shape), self.ring
            image[inner] = reaction[inner]
            unknown = True if active is None else active
        image *= unknown
        for edge in self._edges:
            image.reshape(-1)[ring[edge.nodes]] += edge.k
        image *= weights
        self._squares_of_image = np.vdot(image, image)
        image *= weights
        self._image, self._image_of_ring = image, image.reshape(-1)[ring]

    def __call__(
        self, ranks: Ranks, edges: EdgeValues, source: NodeSource | None, rtol: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the measures of problems, and constants to begin with, ``(n,)``; all ranks together.

        Parameters
        ----------
        edges
            The given values on the edge of the grid.
        source
            At the nodes of the region; None for zero.
        rtol
            See `driven`.
        """
        added = self.added(edges)
        sums = np.zeros((3, edges.problems))
        sums[2] = self._squares_of_image
        with np.errstate(over="ignore", invalid="ignore"):  # of data that are too large
            counted = self._squares_of_ring * added
            if source is not None:
                values, scale = source.values.cpu().numpy(), source.scale
                sums[0] = scale**2 * self._squares(values)
                at_ring = values.reshape(len(values), -1)[:, self.ring]
                sums[0] += 2 * scale * (at_ring * counted).sum(1)
                sums[1] = scale * self._with_image(values)
            sums[0] += (added * counted).sum(1)
            sums[1] += added @ self._image_of_ring
            return driven(*ranks.sum(sums), rtol=rtol)

    def largest(self, ranks: Ranks, edges: EdgeValues, source: NodeSource | None) -> np.ndarray:
        """Return the largest absolute number of right-hand sides, as rows count, ``(n,)``; all ranks together."""
        added = self.added(edges)
        if source is not None:
            values = source.scale * source.values.cpu().numpy()
            added += values.reshape(len(values), -1)[:, self.ring]
            inner = np.abs(values * self.weights.every(values.shape[1:]))[:, *self.inner]
            mine = inner.reshape(len(values), -1).max(axis=1, initial=0.0)
        else:
            mine = np.zeros(edges.problems)
        ring = np.abs(added * np.sqrt(self._squares_of_ring)).max(axis=1, initial=0.0)
        return np.max(ranks.allgather(np.maximum(mine, ring)), axis=0)

    def added(self, edges: EdgeValues, problems: slice = slice(None)) -> np.ndarray:
        """Return the part of right-hand sides from values on the edge of the grid, at the nodes `ring`.

        ``problems``: which of them; by default all.
        """
        added = np.zeros((len(range(edges.problems)[problems]), len(self.ring)))
        for edge in self._edges:
            values = edges.values[edge.axis, -edge.end][problems, *edge.along]
            added[:, edge.nodes] += edge.k * values.reshape(len(added), -1)
        return added

    def _squares(self, source: np.ndarray) -> np.ndarray:
        """Return the sums of the squares of sources at the inner nodes, as they count, ``(n,)``."""
        if len(self.weights.nodes):
            source = source * self.weights.every(source.shape[1:])
        inner = source[:, *self.inner]
        axes = list(range(inner.ndim))
        return np.einsum(inner, axes, inner, axes, [0])

    def _with_image(self, source: np.ndarray) -> np.ndarray:
        """Return the products of sources with the image of a constant, ``(n,)``."""
        if self._nodes is not None:
            return source.reshape(len(source), -1)[:, self._nodes] @ self._image
        axes = list(range(source.ndim))
        return np.einsum(source, axes, self._image, axes[1:], [0])


def _coupled(
    straight: _Beside, part: Conductances, before: Sequence[tuple[bool, ...]]
) -> Iterator[_Beside]:
    """Yield the couplings of the nodes beside an edge to those on it, straight and across cells.

    Parameters
    ----------
    straight
        The nodes, with no couplings yet.
    part
        Between both rows of nodes.
    before
        Per axis, whether nodes of the edge at the ends of this axis belong to other edges, which have their couplings.
    """
    axis, end = straight.axis, straight.end
    for step, *both in part.edges():
        if not step[axis]:
            continue
        forwards = (step[axis] > 0) == (end != 0)
        k = np.moveaxis(np.asarray(both[not forwards]), axis, 0)[0]
        steps = [s if forwards else -s for other, s in enumerate(step) if other != axis]
        k = k[moved(straight.along, [min(s, 0) for s in steps])].copy()  # to keep no others
        there = moved(straight.along, steps)
        sizes = [n for other, n in enumerate(part.reaction.shape) if other != axis]
        ends = [where for other, where in enumerate(before) if other != axis]
        for other, (s, where, on, nodes) in enumerate(zip(steps, ends, there, sizes, strict=True)):
            if s < 0 and where[0] and on.start == 0:
                k[at(other, k.ndim, 0)] = 0.0
            if s > 0 and where[1] and on.stop == nodes:
                k[at(other, k.ndim, -1)] = 0.0
        yield dataclasses.replace(straight, along=there, k=k.ravel())
