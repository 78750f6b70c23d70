"""What the outline of a shape makes of the discrete equation in a part of the grid.

Where a value is given on the outline, a node outside is no unknown: a grid edge from a node inside to
it ends at the outline, after a part ``theta`` of a cell, so its conductance grows to ``k / theta`` and
ties the node to the value there. That is symmetric but for a velocity, and of second order in the largest error (Gibou,
Fedkiw, Cheng and Kang, 2002, doi:10.1006/jcph.2001.6977).

Where the outline is natural, nodes whose control volumes have a part in the domain are unknowns, with
what the domain has of volumes and faces (`apertures`); what flows through the outline in a volume is
the flux times its length. A Robin condition takes the node's value to the outline along the normal,
which is of second order, too (Papac, Gibou and Ratsch, 2010, doi:10.1016/j.jcp.2009.09.036).

On the staircase of a mask both are of first order; there it may be insulated, but its length is not
known, so nothing can flow.
"""

from collections.abc import Sequence

import numpy as np
import scipy.ndimage
import scipy.sparse
import scipy.sparse.csgraph

from mosaicdd.lattice.axes import pair
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.apertures import Cover, Segments, cut_cells, staircase
from mosaicdd.problems.conditions import Dirichlet, Neumann
from mosaicdd.problems.crossings import Crossings, NaturalPieces, OnOutlines
from mosaicdd.problems.fields import Part, is_number, overlaps
from mosaicdd.problems.periodic_shapes import require_periodic
from mosaicdd.problems.scattered import Scattered
from mosaicdd.problems.shape import Shape, labelled
from mosaicdd.problems.sides import Sides

_NEAREST = 1e-4  # of a cell, from which a value acts at least: ties must not drown the residual
_SMALLEST = 1e-9  # part of a cell that an unknown has at least
_FAR = 2  # cells from an outline at which a point is not on it


class CutOutline:
    """The outline of a shape, and what kind of condition holds on it.

    Parameters
    ----------
    sides
        Whose values do not count.

    Attributes
    ----------
    names
        Of the outlines.
    alphas
        Of their Robin conditions; 0 of others.

    Raises
    ------
    ValueError
        If a name is unknown, a flux is given on a staircase, or the outline is not the same on two
        periodic sides.
    """

    def __init__(self, shape: Shape, grid: Grid, sides: Sides):
        self._shape, self._grid = shape, grid
        self._periods = sides.periods(grid)
        shape.require_shape(grid)
        require_periodic(shape, grid, sides.periodic)
        self.names: tuple[str, ...] = ("outline",)
        self._numbers: np.ndarray | None = None
        self._known: tuple[Part, np.ndarray] | None = None
        if sides.named:
            self.names, self._numbers = shape.outlines(grid, self._periods)
            sides.require_outlines(self.names)
        parts = [sides.outline(name) for name in self.names]
        self.alphas = np.array([0.0 if part is None else part.alpha for part in parts])
        given = [part is None or isinstance(part.condition, Dirichlet) for part in parts]
        self._given = np.array(given)
        for part in parts if shape.staircase else ():
            zero = part is not None and is_number(part.values) and float(part.values) == 0.0
            if part is None or isinstance(part.condition, Dirichlet):
                continue
            if not (zero and isinstance(part.condition, Neumann)):
                raise ValueError(
                    f"the side {part}: the length of a mask's outline is not known, so it may have "
                    "values or be insulated, as neumann:0; for fluxes give the domain as a signed "
                    "distance or as polygons"
                )

        for name, part in zip(self.names, parts, strict=True):
            if part is not None and isinstance(part.values, Scattered):
                part.values.require_near(_FAR * grid.spacing, self._crossed(name))

    @property
    def natural(self) -> bool:
        """Whether an outline is natural."""
        return not self._given.all()

    def level(self, part: Part) -> np.ndarray:
        """Return the level at the nodes of a part, to be read only; beyond the grid it is 1.

        It is kept for further calls, for parts within this one.
        """
        if self._known is None or not _within(part, self._known[0]):
            level = np.ones([p.stop - p.start for p in part])
            for there, where in overlaps(part, self._grid.nodes, self._periods):
                level[where] = self._shape.level(self._grid, there)
            self._known = part, level
        known, level = self._known
        return level[
            *(slice(p.start - k.start, p.stop - k.start) for p, k in zip(part, known, strict=True))
        ]

    def reported(self, level: np.ndarray) -> np.ndarray:
        """Say which nodes have values in a field: those inside, and but for a mask those on the outline."""
        return level < 0 if self._shape.staircase else level <= 0

    def _crossed(self, name: str) -> np.ndarray:
        """Return where an outline crosses grid edges, ``(M, 2)``, (x, y), in units of domain length."""
        whole = pair(slice(0, nodes) for nodes in self._grid.nodes)
        level, numbers = self.level(whole), self._outline_of(whole)
        found = [np.empty((0, 2))]
        for axis in (0, 1):
            low, high = ends(axis)
            y, x = np.nonzero((level[low] < 0) != (level[high] < 0))
            p, q = level[low][y, x], level[high][y, x]
            at = np.stack([y, x], axis=1).astype(float)
            at[:, axis] += p / (p - q)
            own = np.maximum(numbers[low][y, x], numbers[high][y, x]) == self.names.index(name)
            found.append(at[own][:, ::-1] * self._grid.spacing)
        return np.concatenate(found)

    def floating_part(self, fixed: np.ndarray) -> tuple[int, int] | None:
        """Return a node of the domain if no value is given anywhere; None if one is.

        Parameters
        ----------
        fixed
            Nodes on the sides of the rectangle that have values, or exchange, ``(K, 2)``.

        Raises
        ------
        ValueError
            If the domain has several parts, and one is without a value.
        """
        holds = self._given | (self.alphas > 0)
        if holds.all() and len(fixed):
            return None  # a part has an outline, or all sides
        whole = pair(slice(0, nodes) for nodes in self._grid.nodes)
        level, numbers = self.level(whole), self._outline_of(whole)
        parts, count = labelled(level < 0, self._periods)
        holding = (level >= 0) & holds[numbers]
        held = np.concatenate(
            [parts[scipy.ndimage.binary_dilation(holding)], parts[tuple(fixed.T)]]
        )
        loose = np.setdiff1d(np.arange(1, count + 1), held)
        if not len(loose):
            return None
        if count == 1:
            y, x = np.unravel_index(np.argmin(level), level.shape)
            return int(y), int(x)
        y, x = np.argwhere(parts == loose[0])[0]
        size, h = int((parts == loose[0]).sum()), self._grid.spacing
        raise ValueError(
            f"part {loose[0]} of the {count} parts of the domain, {size} nodes from ({x * h:g}, "
            f"{y * h:g}) on, has no given value and no exchange, so its level is not known; "
            f"{len(loose)} parts are like that: give a value on their outlines, or leave them out"
        )

    def _outline_of(self, part: Part) -> np.ndarray:
        """Return the numbers of the outlines of the nodes of a part."""
        numbers = np.zeros([p.stop - p.start for p in part], int)
        if self._numbers is not None:
            for there, where in overlaps(part, self._grid.nodes, self._periods):
                numbers[where] = self._numbers[there]
        return numbers

    def cut(self, part: Part, cells: np.ndarray) -> "Cut":
        """Return what the outline makes of a part.

        Parameters
        ----------
        cells
            Which cells around its nodes there are, ``(rows + 1, columns + 1)``.
        """
        ring = pair(slice(p.start - 1, p.stop + 1) for p in part)
        level, numbers = self.level(ring), self._outline_of(ring)
        given = (level >= 0) & self._given[numbers]
        segments: Segments | None = None
        # Outlines with given values do not cut volumes.
        natural = np.where(given, -1.0, level)
        if not self.natural:
            cover = Cover.of_cells(cells)
        elif self._shape.staircase:
            cover = staircase(natural, cells)
        else:
            cover, segments = cut_cells(natural, cells)
        cover = Cover(cover.faces, cover.quarters, level < 0)
        return Cut(part, cover, level, given, numbers, segments, reported=self.reported(level))


class Cut:
    """What the outline of a shape makes of the nodes ``(rows, columns)`` of a part of the grid.

    Parameters are on these nodes with one more all around.

    Parameters
    ----------
    cover
        What the domain has of the cells around the nodes.
    level
        Of the shape.
    given
        Which nodes are outside of an outline with given values.
    numbers
        Of the outlines of nodes outside.
    segments
        Of natural outlines.
    reported
        Which nodes have values in a field.
    """

    def __init__(
        self,
        part: Part,
        cover: Cover,
        level: np.ndarray,
        given: np.ndarray,
        numbers: np.ndarray,
        segments: Segments | None,
        *,
        reported: np.ndarray,
    ):
        own = slice(1, -1), slice(1, -1)
        self.cover, volumes = cover, cover.volumes
        self.volumes = np.where(volumes > _SMALLEST, volumes, 0.0)
        self.level, self.given, self.reported = level[own], given[own], reported[own]
        self._numbers = numbers[own]
        self._natural = np.where((level >= 0) & ~given, numbers, -1)
        self._segments = segments
        self._origin = np.array([p.start for p in part])

    def on_outlines(
        self,
        active: np.ndarray,
        known: np.ndarray,
        conductances: Sequence[tuple[np.ndarray, np.ndarray]],
        exchange: np.ndarray,
    ) -> OnOutlines:
        """Return where outlines act on active nodes.

        Parameters
        ----------
        known
            At which nodes sides give values.
        conductances
            Between the nodes, inside or not, per axis: in the equations of their low and of their high ends.
        exchange
            ``alpha`` of each outline times the spacing.
        """
        on = self._on(active)
        reported = self.reported & ~self.given & (active | (self.level < 0))
        reported |= known & self.reported
        reported.reshape(-1)[on.nodes] = True
        natural = self._natural_pieces(active)
        diffusion = np.empty(0)
        if len(natural.nodes):
            diffusion = self._diffusion(conductances).reshape(-1)[natural.nodes]
        return OnOutlines(
            self._ties(active, conductances),
            natural.crossings(natural.damping(exchange[natural.outlines], diffusion)),
            on,
            reported,
            natural,
        )

    def _ties(
        self, active: np.ndarray, conductances: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> Crossings:
        """Return where given values act on active nodes."""
        found, flat = [Crossings.none()], np.arange(active.size).reshape(active.shape)
        for axis, (forth, back) in enumerate(conductances) if self.given.any() else ():
            low, high = ends(axis)
            for here, there, k in ((low, high, forth), (high, low, back)):
                at = nonzero(active[here] & self.given[there] & (k > 0))
                p, q = self.level[here][at], self.level[there][at]
                theta = np.where(p < 0, p / np.where(p < q, p - q, 1.0), 1.0).clip(_NEAREST)
                nodes = flat[here][at]
                one, other = (self._places(n, active) for n in (nodes, flat[there][at]))
                points = one + theta[:, None] * (other - one)
                found.append(Crossings(nodes, points, k[at] / theta, self._numbers[there][at]))
        return Crossings.joined(found)

    def _on(self, active: np.ndarray) -> Crossings:
        """Return the nodes beside active ones that lie on an outline with given values."""
        on = self.given & self.reported
        beside = np.zeros_like(on)
        for axis in (0, 1):
            low, high = ends(axis)
            beside[low] |= active[high]
            beside[high] |= active[low]
        nodes = np.flatnonzero(beside & on)
        numbers = self._numbers.reshape(-1)[nodes]
        return Crossings(nodes, self._places(nodes, active), np.ones(len(nodes)), numbers)

    def _natural_pieces(self, active: np.ndarray) -> NaturalPieces:
        """Return where natural outlines lie in the volumes of active nodes."""
        if self._segments is None:
            return NaturalPieces.none()
        one = self._segments
        nodes = one.nodes - 1
        some = np.asarray(((nodes >= 0) & (nodes < active.shape)).all(axis=1))
        some[some] = active[tuple(nodes[some].T)]
        at, (y, x) = tuple(nodes[some].T), one.cells[some].T
        corners = [self._natural[y + dy, x + dx] for dy in (0, 1) for dx in (0, 1)]
        return NaturalPieces(
            np.ravel_multi_index(at, active.shape),
            one.middles[some] - 1 + self._origin,
            np.maximum.reduce(corners).clip(min=0),
            one.lengths[some],
            one.distances[some],
        )

    def _diffusion(self, conductances: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return ``a`` at the nodes: their conductances over their faces, 1 where there are none."""
        total, faces = np.zeros(self.level.shape), np.zeros(self.level.shape)
        for axis, (forth, back) in enumerate(conductances):
            for end in ends(axis):
                total[end] += (forth + back) / 2
                faces[end] += self.cover.of_edges(axis)
        return np.where(faces > 0, total, 1.0) / np.where(faces > 0, faces, 1.0)

    def _places(self, nodes: np.ndarray, active: np.ndarray) -> np.ndarray:
        """Return where nodes are, ``(T, 2)``, (y, x) in cells."""
        places = np.stack(np.unravel_index(nodes, active.shape), axis=1) + self._origin
        return places.astype(float)


def _within(part: Part, other: Part) -> bool:
    """Say whether a part lies in another."""
    return all(q.start <= p.start and p.stop <= q.stop for p, q in zip(part, other, strict=True))


def nonzero(there: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return where something holds, as `numpy.nonzero`: much quicker where that is in few places."""
    return np.unravel_index(np.flatnonzero(there), there.shape)


def ends(axis: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Return the nodes at the low and at the high ends of the grid edges along an axis."""
    everything = slice(None)
    low, high = slice(None, -1), slice(1, None)
    return (
        ((low, everything), (high, everything))
        if axis == 0
        else (
            (everything, low),
            (everything, high),
        )
    )
