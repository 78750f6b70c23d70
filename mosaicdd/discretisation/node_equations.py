"""The equations of the nodes of a part of the grid, in arrays, and their weights in norms.

Nodes without an unknown stand in the same arrays, decoupled and with a unit diagonal.

A node's equation is ``sum k (u - u_neighbour) + d u = b``. Where ``d`` is large beside the conductances ``k``,
as of an exchange with a side, a given value just beside the node or a local reaction, it says ``u = b / d``.
But its numbers grow with ``d`` without bound, and beside such a ``b`` all other residuals would be small,
whatever they are. So it counts ``sum k / d``: as much as the equation of a node beside given values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import sizes, steps_across, steps_along
from mosaicdd.discretisation.crossings import (
    NO_TIES,
    BoundaryTerms,
    EliminatedCouplings,
    places_among,
)
from mosaicdd.discretisation.periodic import PeriodicPadding
from mosaicdd.discretisation.squares_of_nodes import ArrayInSquares
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part, Periods, overlap
from mosaicdd.problems.operators.conductances import Conductances, Step


@dataclass(frozen=True)
class Equations:
    """The left-hand side at the nodes ``(rows, columns)`` of a part of the grid."""

    # Between active nodes; the reaction holds all else that is on the diagonal
    conductances: Conductances
    active: np.ndarray  # ``(rows, columns)``
    # ``V``, ``(rows, columns)``; maybe an `ArrayInSquares`, as the conductances
    volumes: np.ndarray
    ties: EliminatedCouplings  # of the part's active nodes; right but for the nodes on its edge
    # Where the outline of a shape acts on the part; None of a rectangle
    outlines: BoundaryTerms | None = None

    def part(self, *place: slice) -> "Equations":
        """Return the equations of some of the nodes, by a slice per axis."""
        shape = self.active.shape
        places = tuple(places_among(n, p) for n, p in zip(shape, place, strict=True))
        active = self.active[place]
        return Equations(
            self.conductances.part(*place),
            active,
            self.volumes[place],
            self.ties.moved(places, active.shape),
            None if self.outlines is None else self.outlines.part(*place),
        )

    def stretched(self, by: PeriodicPadding) -> "Equations":
        """Return the equations on a padded lattice, from those on its grid."""
        conductances = by.conductances(self.conductances)
        active = by.values(self.active) > 0
        between = ~by.at_nodes
        active |= between & (conductances.diagonal() > 0)
        conductances.reaction[between & ~active] = 1.0
        outlines = self.outlines
        if outlines is not None:
            outlines = outlines.moved(by.places, by.values(outlines.reported) > 0)
        ties = self.ties.moved(by.places, active.shape)
        return Equations(conductances, active, by.values(self.volumes), ties, outlines)


class LinearEquations:
    """The linear equations at the nodes of a grid.

    ``periods``: after how many nodes each axis of the grid comes round; None where it does not.
    """

    def __init__(self, periods: Periods):
        self.periods = periods

    def equations(self, part: Part, periods: Periods | None = None) -> Equations:
        """Return the left-hand sides of a part of the grid; raise `ValueError` if coefficients are not sound.

        ``periods``: of a lattice with more nodes than the grid along periodic axes, of which it is a part then.
        """
        if periods in (None, self.periods):
            return self._on_grid(part)
        padding = PeriodicPadding(part, self.periods, periods)
        return self._on_grid(padding.part).stretched(padding)

    def _on_grid(self, part: Part) -> Equations:
        raise NotImplementedError


class LinearStep(LinearEquations):
    """The linear equations of a change of values on a rank's part of the grid; nothing changes on its sides.

    It is an operator, too, as it has conductances.

    Parameters
    ----------
    equations
        The derivative at the nodes of ``part``.
    self_adjoint
        Whether it is symmetric.
    periods
        After how many nodes each axis of the grid repeats; by default none does.
    """

    def __init__(
        self,
        equations: Equations,
        part: Part,
        *,
        self_adjoint: bool,
        periods: Periods | None = None,
    ):
        super().__init__(periods or (None,) * len(part))
        self._equations, self._part = equations, part
        self.self_adjoint = self_adjoint

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part."""
        return self.equations(part).conductances

    def _on_grid(self, part: Part) -> Equations:
        """Return the left-hand sides of a part; beyond the rank's nodes there are unit rows."""
        source, target = self._overlap(part)
        inside = self._equations.part(*source)
        shape = sizes(part)
        reaction, active, volumes = np.ones(shape), np.zeros(shape, bool), np.zeros(shape)
        reaction[target] = inside.conductances.reaction
        active[target], volumes[target] = inside.active, inside.volumes

        def placed(edges: tuple[np.ndarray, ...], steps: Sequence[Step]) -> tuple[np.ndarray, ...]:
            arrays = []
            for values, step in zip(edges, steps, strict=False):
                arrays.append(np.zeros([n - abs(s) for n, s in zip(shape, step, strict=True)]))
                ends = zip(target, step, strict=True)
                arrays[-1][tuple(slice(p.start, p.stop - abs(s)) for p, s in ends)] = values
            return tuple(arrays)

        between, axes = inside.conductances, len(part)
        along = steps_along(axes)
        against = () if between.symmetric else placed(between.against, along)
        across = placed(between.across, steps_across(axes))
        conductances = Conductances(placed(between.along, along), reaction, against, across)
        return Equations(conductances, active, volumes, NO_TIES)

    def _overlap(self, part: Part) -> tuple[Part, Part]:
        """Return the nodes that a part shares with this one, in both."""
        first = [p.start for p in self._part]
        moved = tuple(slice(p.start - a, p.stop - a) for p, a in zip(part, first, strict=True))
        return overlap(moved, tuple(self._equations.active.shape))


_ROWS_IN_CACHE = 64  # that are looked at at a time, for the cache


@dataclass(frozen=True)
class RowWeights:
    """The weights of the rows of a part of the grid in norms: 1 but at some nodes."""

    nodes: np.ndarray  # flat in the part, ascending, ``(T,)``
    weights: np.ndarray  # what they count, ``(T,)``

    @classmethod
    def of(cls, conductances: Conductances, active: np.ndarray | None = None) -> "RowWeights":
        """Return the weights of active nodes by their reactions; by default all are active."""
        nodes = _candidates(conductances)
        if active is not None:
            nodes = nodes[active.ravel()[nodes]]
        reactions = conductances.reaction[np.unravel_index(nodes, conductances.reaction.shape)]
        return cls.by(nodes, np.asarray(reactions), conductances)

    @classmethod
    def by(cls, nodes: np.ndarray, own: np.ndarray, conductances: Conductances) -> "RowWeights":
        """Return the weights of nodes with diagonals ``own``, ``(T,)``, beside conductances.

        A node that is coupled to no other counts as if it were as strongly as any.
        """
        around = conductances.around(nodes)
        # Of bilinear elements conductances may be negative, and at the edge of a part their sum.
        if not (around > 0).all():
            around = np.where(around > 0, around, around.max(initial=0.0) or np.inf)
        less = own > around
        return cls(nodes[less], around[less] / own[less])

    def at(self, nodes: np.ndarray) -> np.ndarray:
        """Return the weights of flat nodes, ascending."""
        weights = np.ones(len(nodes))
        _, at, listed = np.intersect1d(nodes, self.nodes, assume_unique=True, return_indices=True)
        weights[at] = self.weights[listed]
        return weights

    def every(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the weights of all nodes, ``(rows, columns)``; to be read only."""
        if not len(self.nodes):
            return np.broadcast_to(1.0, shape)
        weights = np.ones(shape)
        weights.reshape(-1)[self.nodes] = self.weights
        return weights


def _candidates(conductances: Conductances) -> np.ndarray:
    """Return the flat nodes whose reaction may exceed their conductances."""
    reaction = conductances.reaction
    if isinstance(reaction, ArrayInSquares):
        beside: list[Any] = list(conductances.along)
        if reaction.plain[-1] <= sum(2 * float(k.plain[-1]) for k in beside):
            return np.flatnonzero(reaction.differs())
    elif not reaction.any():
        return np.empty(0, int)
    places = [np.empty(0, int)]
    for first in range(0, len(reaction), _ROWS_IN_CACHE):
        rows = np.arange(first, min(first + _ROWS_IN_CACHE, len(reaction)))
        heavy = np.flatnonzero(2 * reaction[rows] > conductances.diagonal_of_rows(rows))
        places.append(first * math.prod(reaction.shape[1:]) + heavy)
    return np.concatenate(places)
