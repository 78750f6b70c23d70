"""Cut cells: the discrete equation in a part of the grid near the outline of a shape.

Where a value is given on the outline, a node outside is no unknown: a grid edge from a node inside to
it ends at the outline, after a part ``theta`` of a cell, so its conductance grows to ``k / theta`` and
ties the node to the value there. That is symmetric but for a velocity, and of second order in the
largest error (Gibou, Fedkiw, Cheng and Kang, 2002, doi:10.1006/jcph.2001.6977).

Where the outline is natural, nodes whose control volumes have a part in the domain are unknowns, with
what the domain has of volumes and faces (`apertures`); what flows through the outline in a volume is
the flux times its length. A Robin condition takes the node's value to the outline along the normal,
which is of second order, too (Papac, Gibou and Ratsch, 2010, doi:10.1016/j.jcp.2009.09.036).

On the staircase of a mask both are of first order; there it may be insulated, but its length is not
known, so nothing can flow.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mosaicdd.axes import ends
from mosaicdd.discretisation.crossings import BoundaryIntersections, BoundaryTerms, NaturalFacets
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.shapes.apertures import Apertures, Segments

_NEAREST = 1e-4  # of a cell, from which a value acts at least: ties must not drown the residual
_SMALLEST = 1e-9  # part of a cell that an unknown has at least


@dataclass(frozen=True)
class CutCells:
    """The control volumes of a part of the grid, cut by the outline of a shape."""

    cover: (
        Apertures  # what the domain has of the cells around the nodes, and where coefficients count
    )
    volumes: np.ndarray  # parts of a cell, without slivers
    level: np.ndarray  # of the shape
    given: np.ndarray  # nodes outside of an outline with given values, or on it
    numbers: np.ndarray  # of the outlines of these nodes
    segments: Segments | None  # of natural outlines
    reported: np.ndarray  # nodes with values in a field
    grid: Grid  # whose cells need be no squares
    # Places in cells ``(T, axes)`` of nodes of the part ``(T, axes)``
    places: Callable[[np.ndarray], np.ndarray]
    # Coefficients of exchange, ``(T,)``, of outlines by their numbers, at points ``(T, axes)``
    alphas: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def on_outlines(
        self,
        active: np.ndarray,
        known: np.ndarray,
        between: Conductances,
    ) -> BoundaryTerms:
        """Return the boundary terms of active nodes.

        Parameters
        ----------
        known
            At which nodes sides give values.
        between
            The conductances between the nodes, inside or not.
        """
        on = self._on(active)
        reported = self.reported & ~self.given & (active | (self.level < 0))
        reported |= known & self.reported
        reported.reshape(-1)[on.nodes] = True
        natural = self._natural_pieces(active)
        diffusion = np.empty(0)
        if len(natural.nodes):
            diffusion = self.diffusion(between).reshape(-1)[natural.nodes]
        cut = self.cut_edges(active)
        tied = BoundaryIntersections.joined(
            [BoundaryIntersections.none(active.ndim), *(edges.crossings for edges in cut)]
        )
        return BoundaryTerms(
            replace(tied, weights=tie_conductances(cut, between)),
            replace(
                natural, weights=natural.lengths / natural.damping(self.grid.spacing, diffusion)
            ),
            on,
            reported,
        )

    def cut_edges(self, active: np.ndarray) -> "list[CutEdges]":
        """Return the edges along each axis from active nodes to nodes beyond given values."""
        edges, flat = [], np.arange(active.size).reshape(active.shape)
        for axis in range(active.ndim) if self.given.any() else ():
            low, high = ends(axis, active.ndim)
            for against, (inner_end, outer_end) in enumerate(((low, high), (high, low))):
                place = nonzero(
                    active[inner_end] & self.given[outer_end] & (self.cover.edge_faces[axis] > 0)
                )
                p, q = self.level[inner_end][place], self.level[outer_end][place]
                theta = np.where(p < 0, p / np.where(p < q, p - q, 1.0), 1.0).clip(_NEAREST)
                nodes = flat[inner_end][place]
                inner, outer = (self._places(n, active) for n in (nodes, flat[outer_end][place]))
                points = inner + theta[:, None] * (outer - inner)
                crossings = BoundaryIntersections(
                    nodes, points, 1 / theta, self.numbers[outer_end][place]
                )
                edges.append(CutEdges(axis, bool(against), place, crossings))
        return edges

    def _on(self, active: np.ndarray) -> BoundaryIntersections:
        """Return the nodes on an outline with given values: around active ones, or of whole cells all."""
        nodes = np.flatnonzero(self.given & self.reported)
        if self.cover.cells is None:
            at, around = np.unravel_index(nodes, active.shape), np.pad(active, 1)
            steps = itertools.product(range(3), repeat=active.ndim)
            places = (tuple(n + d for n, d in zip(at, step, strict=True)) for step in steps)
            nodes = nodes[np.logical_or.reduce([around[place] for place in places])]
        numbers = self.numbers.reshape(-1)[nodes]
        return BoundaryIntersections(
            nodes, self._places(nodes, active), np.ones(len(nodes)), numbers
        )

    def _natural_pieces(self, active: np.ndarray) -> NaturalFacets:
        """Return the facets of natural outlines in the volumes of active nodes."""
        segments = self.segments
        if segments is None:
            return NaturalFacets.none(active.ndim)
        nodes = segments.nodes - 1
        inside = np.asarray(((nodes >= 0) & (nodes < active.shape)).all(axis=1))
        inside[inside] = active[tuple(nodes[inside].T)]
        nodes, outlines = nodes[inside], segments.outlines[inside]
        points, lengths = (
            segments.middles[inside] - 1 + self.places(nodes) - nodes,
            segments.lengths[inside],
        )
        return NaturalFacets(
            np.ravel_multi_index(tuple(nodes.T), active.shape),
            points,
            lengths,
            outlines,
            lengths,
            segments.distances[inside],
            self.alphas(outlines, points),
        )

    def diffusion(self, between: Conductances, of: Any = np) -> Any:
        """Return ``a`` at the nodes: their conductances over their faces, 1 where there are none.

        ``between``: of numpy's or torch's arrays, as the module ``of``.
        """
        total, faces = of.zeros(self.level.shape, dtype=float), np.zeros(self.level.shape)
        aspect = self.grid.aspect or (1.0,) * faces.ndim
        for axis, (forth, back) in enumerate(zip(between.along, between.against, strict=True)):
            for end in ends(axis, faces.ndim):
                total[end] += aspect[axis] ** 2 * (forth + back) / 2
                faces[end] += self.cover.edge_faces[axis]
        has_faces = of.asarray(faces > 0)
        return of.where(has_faces, total, 1.0) / of.where(has_faces, of.asarray(faces), 1.0)

    def _places(self, nodes: np.ndarray, active: np.ndarray) -> np.ndarray:
        """Return the places of flat nodes, ``(T, axes)``, (y, x) in cells."""
        indices = np.stack(np.unravel_index(nodes, active.shape), axis=1)
        return self.places(indices).astype(float)


@dataclass(frozen=True)
class CutEdges:
    """Edges along an axis that end at given values on an outline."""

    axis: int
    against: bool  # whether from their last nodes
    place: tuple[np.ndarray, ...]  # in arrays of the edges along the axis
    crossings: BoundaryIntersections  # where they end; what divides their length as weights


def tie_conductances(cut: Sequence[CutEdges], between: Conductances, of: Any = np) -> Any:
    """Return the conductances of cut edges, ``(T,)``, in arrays of the module ``of``."""
    ways = between.along, between.against
    grown = [
        ways[edges.against][edges.axis][edges.place] * of.asarray(edges.crossings.weights)
        for edges in cut
    ]
    return of.concatenate(grown) if grown else of.zeros(0, dtype=float)


def without_slivers(volumes: np.ndarray) -> np.ndarray:
    """Return the parts of cells that volumes have, zero of slivers."""
    return np.where(volumes > _SMALLEST, volumes, 0.0)


def nonzero(there: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the indices of what is true, as `numpy.nonzero`: quicker where that is little."""
    return np.unravel_index(np.flatnonzero(there), there.shape)
