"""The equations of the nodes of a part of the grid, in arrays, as a `Discretisation` makes them.

Nodes without an unknown stand in the same arrays, decoupled and with a unit diagonal.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mosaicdd.discretisation.crossings import BoundaryTerms, EliminatedCouplings, places_among
from mosaicdd.discretisation.stretched import PeriodicPadding, periodic_padding
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.operators.conductances import Conductances


def on_lattice(
    part: Part, rounds: Periods, periods: Periods, on_grid: Callable[[Part], "Equations"]
) -> "Equations":
    """Return the equations of a part of a lattice from those of parts of its grid."""
    stretch = periodic_padding(part, rounds, periods)
    return on_grid(part) if stretch is None else on_grid(stretch.part).stretched(stretch)


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
        """Return those of some of the nodes, by a slice per axis."""
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
        """Return those at the nodes of a part of a lattice, from those at the nodes that it lies at."""
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
