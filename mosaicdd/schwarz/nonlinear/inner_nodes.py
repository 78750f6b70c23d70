"""The nodes inside a rectangle, over the ranks as the field is, and sine transforms on them."""

import numpy as np

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.sine_solve import SineSolve
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.field_share import FieldShare


class NodesInside:
    """Where the unknowns of a problem with values on all sides are.

    Parameters
    ----------
    place
        What this rank holds of a field.
    layout
        Of the field.

    Attributes
    ----------
    own, part
        Nodes of the grid: those inside that this rank owns, and with a node more all around.
    owned, held
        Layouts: of what is owned, and with a node of each neighbour's.
    inside, mine
        Where what is held lies in ``part``, and where what is owned lies in what is held.
    """

    def __init__(self, place: FieldShare, layout: Layout):
        self._place, self._ranks = place, place.ranks
        shape = tuple(n - 2 for n in layout.shape)
        shards = [shard for shard in layout.placements if isinstance(shard, Shard)]
        inner = []
        for shard in shards:  # without the first and the last node
            sizes = list(shard.sizes or ())
            sizes[0] -= 1
            sizes[-1] -= 1
            inner.append((shard.axis, tuple(sizes)))
        self.owned = Layout(shape, layout.mesh, tuple(Shard(*sizes) for sizes in inner))
        self.held = Layout(shape, layout.mesh, tuple(Halo(axis, 1, n) for axis, n in inner))
        self.own, held = (
            tuple(slice(p.start + 1, p.stop + 1) for p in of.place(self._ranks.rank))
            for of in (self.owned, self.held)
        )
        self.part: Slices = tuple(slice(p.start - 1, p.stop + 1) for p in self.own)
        self.inside, self.mine = within(held, self.part), within(self.own, held)
        self._widen = Redistribution(self.owned, self.held, self._ranks, np.float64)

    def of_wide(self, u: np.ndarray) -> np.ndarray:
        """Return a view of those that this rank owns of a wide array."""
        return self._place.at(self.own, u)

    def embedded(self, values: np.ndarray) -> np.ndarray:
        """Return values of those owned with zeros on the edge of the domain: owned nodes of the field."""
        field = np.zeros([p.stop - p.start for p in self._place.own])
        field[within(self.own, self._place.own)] = values
        return field

    def widened(self, values: np.ndarray) -> np.ndarray:
        """Return what is held of values of those owned."""
        return self._widen(np.ascontiguousarray(values))

    def sine_solve(self, reaction: float) -> SineSolve:
        """Plan the inverse of Laplace's operator and a reaction, both times the squared spacing."""

        def symbol(rows: slice, columns: slice) -> np.ndarray:
            y, x = (
                4 * np.sin(np.pi * np.arange(p.start + 1, p.stop + 1) / (2 * (n + 1))) ** 2
                for p, n in zip((rows, columns), self.owned.shape, strict=True)
            )
            return y[:, None] + (x + reaction)

        return SineSolve(self.owned, self.held, symbol, self._ranks)

    def harmonic(self, boundary: Boundary) -> np.ndarray:
        """Return the harmonic surface over values on the edges, zero there: owned nodes of the field."""
        u = boundary.impose(np.zeros([p.stop - p.start for p in self.part]), self.part)
        beside = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return self.embedded(self.sine_solve(0.0)(beside)[self.mine])
