"""The discrete equation of a problem, whatever holds on its outline, as sums over grid edges.

Around every node lies a control volume: the quarters that its cells have of it. With the conductances
``k`` of the faces between two volumes, of which only what lies in the domain counts, the node's equation
is, times the squared spacing,

```
   sum k (u - u_neighbour) + h^2 V c u + h L alpha u  =  h^2 V f + h L g
```

where ``V`` is the part of a cell that the volume has, and ``L`` the length of the outline in it, in
cells, with ``a du/dn + alpha u = g`` there. Unknowns are the *active* nodes. Nodes with given values, and
those outside, stand in the same arrays, decoupled and with a unit diagonal: a given value acts through
the *ties* of its node, conductances that are put on the diagonals and right-hand sides of its neighbours.
So whoever eliminates, factorises or multiplies sees conductances between nodes of a rectangle, and
nothing of shapes and conditions.

Parts of the grid are slices with bounds per axis, which may reach beyond it: there is nothing outside,
or along a periodic axis the grid again; or parts of a lattice that comes round after more nodes (`PeriodicPadding`).
"""

import dataclasses
from functools import partial

import numpy as np

from mosaicdd.axes import ends_of, grown, sizes
from mosaicdd.discretisation.crossings import BoundaryTerms, EliminatedCouplings, require_fluxes
from mosaicdd.discretisation.cut_cells import nonzero
from mosaicdd.discretisation.embedded_boundary import EmbeddedBoundary, covered, embedded_boundary
from mosaicdd.discretisation.node_equations import Equations, LinearEquations
from mosaicdd.discretisation.periodic import glued, glued_nodes, grid_cells, places_of
from mosaicdd.discretisation.squares_of_nodes import NodeSquares
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, Periods
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.sampling import sample_near
from mosaicdd.problems.shapes.voxels import VoxelMask
from mosaicdd.problems.sides.parts import require_reached
from mosaicdd.problems.sides.side_values import BoundaryData, joined_values
from mosaicdd.problems.sides.sides import mean_slope, slope_at
from mosaicdd.unsupported import Unsupported


class Discretisation(LinearEquations):
    """The equations that problems of one medium, domain and kind of sides have in common.

    `ValueError` if conditions do not fit the domain, or a part of it, or all of it with a velocity, has no given
    value.

    Parameters
    ----------
    problem
        Whose sources and values on the outline do not count.
    medium
        Its coefficients.

    Attributes
    ----------
    outline
        Of a shape; None of a rectangle.
    known
        The nodes whose values are given, or if there are none the one that is left out, ``(K, 2)``.
    floating
        Whether solutions are known up to a constant.
    exchange
        ``alpha`` times the lengths of natural pieces of the sides, ``(M,)``, in cells.
    """

    def __init__(self, problem: Problem, medium: Medium, grid: Grid):
        super().__init__(problem.conditions.periods(grid))
        self.grid, self.medium = grid, medium
        self._pieces = problem.pieces(grid)
        shape, sides = problem.domain.shape, problem.conditions
        self.outline = embedded_boundary(problem, grid)
        if self.outline is not None and shape is not None and not shape.staircase:
            require_reached(sides.parts, self._pieces, self.outline.names)
        values = self.values(problem)
        self.known = values.known
        self._natural, self.exchange = values.natural, values.exchange
        if self.outline is not None:
            pin = None
            if self.outline.natural or not sides.plain:
                fixed = fixed_nodes(problem, medium, grid, values)
                if fixed is not None:
                    pin = self.outline.floating_part(fixed)
            self.floating = pin is not None
        else:
            pin = (0,) * len(grid.shape)
            self.floating = not (len(values.known) or values.exchange.any())
            if self.floating:
                reacting = medium.reacting(grid)
                self.floating = reacting is not None and not len(reacting)
        require_fluxes(sides, self)
        if self.floating and not medium.self_adjoint:
            raise ValueError(
                "no value is given on any side, and with a velocity it is not known which sources are "
                "possible then: give a value somewhere, an alpha > 0, or c > 0"
            )
        if self.floating:
            # Any node may have any value; the mean is put right at the end.
            self.known = np.array([pin])

    def values(self, problem: Problem) -> BoundaryData:
        """Return the values and fluxes on the sides in a problem of the same kind."""
        return problem.conditions.values(self.grid, self._pieces)

    def uniform_conductances(self) -> Conductances | None:
        """Return the conductances between 3 x 3 nodes of a plane, if all far from sides are alike."""
        medium, around = self.medium, self.outline is not None and any(self.periods)
        varies = any(field.number is None for field in medium.fields.values())
        if varies or around or medium.couples_corners or len(self.periods) != 2:
            return None
        return medium.conductances(self.grid, (slice(0, 3), slice(0, 3)))

    def in_squares(self, squares: NodeSquares) -> Equations:
        """Return the left-hand sides at all places of squares but the outermost; of uniform conductances."""
        return self._assembled(tuple(slice(1, count - 1) for count in squares.shape), squares)

    def _on_grid(self, part: Part) -> Equations:
        return self._assembled(part, None)

    def _assembled(self, part: Part, squares: NodeSquares | None) -> Equations:
        """Return the left-hand sides of a part of the grid, or of squares."""
        if squares is None:
            cells = grid_cells(part, self.grid.shape, self.periods)
            places = partial(places_of, part=part, periods=self.periods)
        else:
            cells, places = squares.cells(part), partial(squares.places, part=part)
        cover, volumes, cut = covered(self.outline, part, cells, squares)
        if squares is None and any(self.periods):
            whole, volumes = self.between(part)
        else:
            whole = self._within(part, cover, volumes)
        number = np.full(volumes.shape, -1)
        at, place = places(self.known)
        number[place] = at
        on_sides = number >= 0
        if cut is not None:
            number[cut.given] = -1  # an outline's own values count there
        held = number >= 0
        active = (volumes > 0) & ~held
        if cut is not None:
            active &= ~cut.given
        left = whole.among(active)
        tied = [(np.empty(0, int), np.empty(0, int), np.empty(0))]
        flat = np.arange(active.size).reshape(active.shape)
        for step, forth, back in whole.edges() if held.any() else ():
            first, last = ends_of(step)
            for nodes, neighbours, k in ((first, last, forth), (last, first, back)):
                beside = nonzero(active[nodes] & held[neighbours] & (k != 0))
                tied.append((flat[nodes][beside], number[neighbours][beside], k[beside]))
        reaction = left.reaction
        ties = EliminatedCouplings(*(np.concatenate(parts) for parts in zip(*tied, strict=True)))
        np.add.at(reaction.reshape(-1), ties.nodes, ties.conductances)
        which, place = places(self._natural)
        np.add.at(reaction, place, (self.grid.spacing * self.exchange)[which])
        outlines = None
        if cut is not None:
            outlines = cut.on_outlines(active, on_sides, whole)
            outlines.add_to_diagonal(reaction, self.grid.spacing)
            # A volume that an outline cuts off from all others.
            active &= left.diagonal() > 0
        reaction[~active] = 1.0
        return Equations(left, active, volumes, ties, outlines)

    def right_hand_side(
        self, problem: Problem, outline: BoundaryData, part: Part, equations: Equations
    ) -> np.ndarray:
        """Return the right-hand sides at the nodes of a part, ``(n, rows, columns)``.

        ``outline``: the problem's values on the sides; ``equations``: of the same part.
        """
        h = self.grid.spacing
        b = np.zeros((problem.problems, *equations.active.shape))
        if problem.source is not None:
            b += h**2 * self.loads(problem.source, part, equations.volumes)
        _add_at(b, *self._acting(part, h * outline.fluxes))
        slope = mean_slope(problem.conditions, self.grid, part)
        if slope is not None:
            require_fluxes(problem.conditions, self)
            b -= self.between(part)[0].of_all(slope)
        if not self.floating:
            ties, values = equations.ties, outline.values
            if slope is not None:
                values = values - slope_at(problem.conditions, self.grid, outline.known)
            _add_at(b, ties.nodes, ties.conductances * values[:, ties.known])
        if equations.outlines is not None and self.outline is not None:
            for acting, scale in ((equations.outlines.ties, 1.0), (equations.outlines.natural, h)):
                values = acting.values(problem.conditions, self.outline.names, self.grid)
                _add_at(b, acting.nodes, scale * acting.weights * values)
        counts = equations.active.copy()
        if self.floating:  # the node that is left out, as all are up to a constant
            counts[places_of(self.known, part, self.periods)[1]] = True
        driven = self.driven(problem, part, equations)
        nodes = slice(None) if driven is None else driven
        b.reshape(len(b), -1)[:, nodes] *= counts.ravel()[nodes]
        return b

    def between(self, part: Part) -> tuple[Conductances, np.ndarray]:
        """Return the conductances and volumes of a part of the grid that comes round."""

        def natural(piece: Part) -> tuple[Conductances, np.ndarray]:
            cover, volumes = self.cover(piece)
            return self._within(piece, cover, volumes), volumes

        return glued(part, self.periods, natural)

    def driven(self, problem: Problem, part: Part, equations: Equations) -> np.ndarray | None:
        """Return the flat nodes of a part, ascending, whose right-hand sides may not be zero.

        None of all nodes: with sources, or periodic axes.
        """
        if problem.source is not None or any(self.periods):
            return None
        nodes = [self._acting(part, self.exchange[None])[0], equations.ties.nodes]
        if equations.outlines is not None:
            nodes += [equations.outlines.ties.nodes, equations.outlines.natural.nodes]
        return np.unique(np.concatenate(nodes))

    def given(
        self, problem: Problem, outline: BoundaryData, part: Part, outlines: BoundaryTerms | None
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Return the nodes of a part with given values, ``(K,)`` per axis, and these, ``(n or 1, K)``.

        ``outlines``: of the same part.
        """
        at, place = places_of(outline.known, part, self.periods)
        values = outline.values[:, at]
        if outlines is None or self.outline is None:
            return place, values
        reported = outlines.reported[place]
        on = outlines.on
        on_outlines = np.unravel_index(on.nodes, sizes(part))
        more = on.values(problem.conditions, self.outline.names, self.grid)
        joined = (np.append(n[reported], m) for n, m in zip(place, on_outlines, strict=True))
        return tuple(joined), joined_values([values[:, reported], more])

    def on_sides(self, part: Part, values: np.ndarray) -> np.ndarray:
        """Return values on natural pieces of the sides ``(n or 1, M)`` as sums at nodes ``(n or 1, rows, columns)``."""
        total = np.zeros((len(values), *sizes(part)))
        _add_at(total, *self._acting(part, values))
        return total

    def cover(self, part: Part, periods: Periods | None = None) -> tuple[Apertures, np.ndarray]:
        """Return the apertures of the cells around the nodes of a part, and the nodes' volumes.

        ``periods``: of the rectangle, by default without what lies beyond its sides.
        """
        cells = grid_cells(part, self.grid.shape, periods)
        return covered(self.outline, part, cells)[:2]

    def _within(self, part: Part, cover: Apertures, volumes: np.ndarray) -> Conductances:
        """Return the conductances of what a domain has of a part, with reactions times volumes."""
        between = self.medium.conductances(self.grid, part, cover)
        return dataclasses.replace(between, reaction=between.reaction * volumes)

    def loads(self, source: Field, part: Part, volumes: np.ndarray) -> np.ndarray:
        """Return a source times the volumes of the nodes of a part, ``(n, rows, columns)``.

        ``volumes``: of the nodes. What the two of a pair of sides have of them is found anew.
        """

        def natural(piece: Part) -> np.ndarray:
            weights, cover = volumes, Apertures()
            if any(self.periods) or source.per_cell(self.grid):
                cover, weights = self.cover(piece)
            elif self.outline is not None:
                cover = Apertures(inside=self.outline.known(grown(piece)))
            cover = dataclasses.replace(cover, counts=None)  # a source counts wherever it is given
            return sample_near(source, self.grid, piece, cover, fill=0.0) * weights

        return glued_nodes(part, self.periods, natural)

    def _acting(self, part: Part, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return flat nodes of a part, ``(T,)``, and values on natural pieces ``(n, M)`` at them, ``(n, T)``."""
        at, place = places_of(self._natural, part, self.periods)
        return np.ravel_multi_index(place, sizes(part)), values[:, at]


def fixed_nodes(
    problem: Problem, medium: Medium, grid: Grid, values: BoundaryData | None = None
) -> np.ndarray | None:
    """Return the nodes with a value or an exchange on sides, or a reaction, ``(K, axes)``; None for all.

    ``values``: of the problem on the sides, if they are known.
    """
    reacting = medium.reacting(grid)
    if reacting is None:
        return None
    if values is None:
        values = problem.conditions.values(grid, problem.pieces(grid))
    return np.concatenate([values.known, values.natural[values.exchange > 0], reacting])


def _add_at(target: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> None:
    """Add values ``(n or 1, T)`` to flat nodes of ``(n, rows, columns)``."""
    for number, field in enumerate(target):
        np.add.at(field.reshape(-1), nodes, values[number % len(values)])


def without_floating(problem: Problem) -> Problem:
    """Return a problem without the floating parts of its domain.

    No value, exchange or reaction acts on these, so their level is not known. The share of the voxels that is left out is said by the domain's text, and is
    ``problem.domain.shape.left_out``. If nothing holds any part it is the problem itself.

    Raises
    ------
    Unsupported
        If the domain is a part of a rectangle.
    """
    domain, grid = problem.domain, problem.domain.grid()
    if domain.shape is None:
        return problem
    medium = medium_of(problem.operator)
    fixed = fixed_nodes(problem, medium, grid)
    if fixed is None:  # a reaction holds all
        return problem
    pieces = EmbeddedBoundary(domain.shape, grid, problem.conditions).floating_voxels(fixed)
    if pieces is None:
        raise Unsupported(
            "parts that float are left out of masks of voxels only, this is a part of a rectangle"
        )
    if len(pieces.loose) in (0, pieces.count):
        return problem
    inside = pieces.numbers > 0
    rest = inside & ~pieces.floating
    share = 1 - np.count_nonzero(rest) / np.count_nonzero(inside)
    held = dataclasses.replace(domain, shape=VoxelMask(rest, left_out=share))
    return dataclasses.replace(problem, domain=held)
