"""The outline of a shape on a grid: its level at the nodes, and its conditions.

The discrete equation in a part of the grid near it is that of `CutCells`.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import scipy.ndimage

from mosaicdd.axes import (
    all_of,
    contains,
    ends,
    grown,
    in_rows,
    letters,
    others,
    sizes,
    spelled,
    within,
)
from mosaicdd.discretisation.crossings import RobinCoefficients
from mosaicdd.discretisation.cut_cells import CutCells, without_slivers
from mosaicdd.discretisation.periodic import grid_cells
from mosaicdd.discretisation.squares_of_nodes import NodeSquares
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import STRIP, evaluate
from mosaicdd.problems.fields.fields import Part, overlaps
from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import (
    Apertures,
    Segments,
    cells_touching,
    cut_cells,
    staircase,
)
from mosaicdd.problems.shapes.outline import name_of_side
from mosaicdd.problems.shapes.shape import Level, Shape, labelled
from mosaicdd.problems.shapes.voxels import Faces, Pieces, around, exposed
from mosaicdd.problems.sides.conditions import Scattered
from mosaicdd.problems.sides.parts import require_outlines
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import concerning

_FAR = 2  # cells from an outline at which a point is not on it
_SAME = 1e-3  # of a cell, by which an outline may differ on two periodic sides


class EmbeddedBoundary:
    """The outline of a shape, and what kind of condition holds on it.

    `ValueError` if a name is unknown, a flux is given on a staircase, a part of a mask of cells that is one cell wide
    has a natural outline, or the outline is not the same on two periodic sides.
    ``sides``: whose values do not count; ``each``: whether all outlines have names, though no condition asks for that.

    ``names``: of the outlines.
    """

    def __init__(self, shape: Shape, grid: Grid, sides: Sides, *, each: bool = False):
        self._periods = sides.periods(grid)
        self._shape, self._grid = shape.on(self._periods), grid
        shape.require_shape(grid)
        if shape.voxels is None:  # voxels may end at one of two periodic sides, in faces
            _require_periodic(shape, grid, sides.periodic)
        self.names: tuple[str, ...] = ("outline",)
        self._numbers: np.ndarray | None = None
        self._known: tuple[Part, np.ndarray] | None = None
        if each or sides.named:
            self.names, self._numbers = shape.outlines(grid, self._periods)
            require_outlines(sides.parts, self.names)
        self._parts = [part for part in sides.parts if part.where]
        self.names = (*self.names, *map(str, self._parts))
        parts = [sides.outline(name) for name in self.names]
        if self._parts and shape.voxels is None:
            self._numbers = self._chosen_nodes()
        self._exchange = RobinCoefficients(sides, self.names, grid)
        fixed = [part is None or part.condition.fixed for part in parts]
        self._given = np.array(fixed)
        for part in parts if shape.staircase else ():
            zero = part is not None and is_number(part.values) and float(part.values) == 0.0
            if part is None or part.condition.fixed:
                continue
            if not (zero and part.condition.natural):
                with concerning("sides"):
                    raise ValueError(
                        f"the side {part}: the length of a mask's outline is not known, so it may have "
                        "values or be insulated, as neumann:0; for fluxes give the domain as a signed "
                        "distance or as polygons"
                    )

        self._require_no_loss()
        for name, part in zip(self.names, parts, strict=True):
            for values in () if part is None else (part.values, part.alpha):
                if isinstance(values, Scattered):
                    crossings = grid.at(self._crossed(name))[:, ::-1]
                    values.require_near(_FAR * max(grid.steps), crossings)

    def _chosen_nodes(self) -> np.ndarray:
        """Return the numbers of the outlines of all nodes, with parts chosen."""
        places = np.indices(self._grid.nodes).reshape(len(self._grid.nodes), -1).T
        base = np.zeros(len(places), int) if self._numbers is None else self._numbers.ravel()
        return self._chosen(base, places).reshape(self._grid.nodes)

    def _require_no_loss(self) -> None:
        """Check that a mask loses no cell whose sources, or heat, would count."""
        if (
            not isinstance(self._shape, Level)
            or not len(self._shape.lost_cells)
            or not self.natural
        ):
            return
        cells = self._shape.lost_cells
        whole = all_of(self._grid.nodes)
        lost = cells[~self._given[self._outline_of(whole)[tuple(cells.T)]]]
        if len(lost):
            row, column = lost[0]
            raise ValueError(
                f"the mask has {len(lost)} cells without a node inside, in parts that are one cell wide beside a "
                f"natural outline, the first at ({row}, {column}) (row, column): what is given there would not "
                "count; make them 2 cells wide or remove them, or take a finer grid"
            )

    @property
    def natural(self) -> bool:
        """Whether there is a natural outline."""
        return not self._given.all()

    def level(self, part: Part) -> np.ndarray:
        """Return the level at the nodes of a part, to be read only; beyond the grid it is 1.

        It is kept for further calls, for parts within this one.
        """
        if self._known is None or not contains(self._known[0], part):
            level = np.ones(sizes(part))
            for nodes, where in overlaps(part, self._grid.nodes, self._periods):
                values, first = level[where], nodes[0].start
                for rows in in_rows(nodes, STRIP):
                    strip = slice(rows[0].start - first, rows[0].stop - first)
                    values[strip] = self._shape.level(self._grid, rows)
            self._known = part, level
        kept_part, level = self._known
        return level[within(part, kept_part)]

    def known(self, part: Part) -> np.ndarray:
        """Return at which nodes of a part it is known what is given there."""
        return self._shape.inside(self.level(part))

    def reported(self, level: np.ndarray) -> np.ndarray:
        """Say which nodes have values in a field: those inside, and on an outline that is no staircase."""
        return level < 0 if self._shape.staircase else level <= 0

    def _crossed(self, name: str) -> np.ndarray:
        """Return the crossings of an outline with grid edges, ``(M, axes)``, (y, x) in cells."""
        whole = all_of(self._grid.nodes)
        level, numbers = self.level(whole), self._outline_of(whole)
        crossings = [np.empty((0, level.ndim))]
        for axis in range(level.ndim):
            low, high = ends(axis, level.ndim)
            nodes = np.nonzero((level[low] < 0) != (level[high] < 0))
            p, q = level[low][nodes], level[high][nodes]
            at = np.stack(nodes, axis=1).astype(float)
            at[:, axis] += p / (p - q)
            on_outline = np.maximum(numbers[low][nodes], numbers[high][nodes]) == self.names.index(
                name
            )
            crossings.append(at[on_outline])
        return np.concatenate(crossings)

    @property
    def free(self) -> bool:
        """Whether no outline gives or exchanges values."""
        exchange = self._exchange
        if self._given.any() or exchange.certain.any():
            return False
        for number in np.flatnonzero(exchange.possible).tolist():
            crossings = self._crossed(self.names[number])
            if exchange.acts(np.full(len(crossings), number), crossings).any():
                return False
        return True

    def _holding(self, outlines: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Say whether outlines, ``(T,)``, hold values at places ``(T, axes)`` in cells."""
        return self._given[outlines] | self._exchange.acts(outlines, cells)

    def floating_part(self, fixed: np.ndarray) -> tuple[int, ...] | None:
        """Return a node of the domain if no value is given anywhere; None if one is.

        ``fixed``: nodes on the sides of the rectangle that have values, or exchange, ``(K, 2)``.

        `ValueError` if the domain has several parts, and one is without a value.
        """
        if (self._given | self._exchange.certain).all() and len(fixed):
            return None  # a part has an outline, or all sides
        pieces = self.floating_voxels(fixed)
        if pieces is not None:
            return pieces.pin(self._grid)
        whole = all_of(self._grid.nodes)
        level, numbers = self.level(whole), self._outline_of(whole)
        parts, count = labelled(level < 0, self._periods)
        near = scipy.ndimage.binary_dilation(level < 0) & (level >= 0)
        beside = np.argwhere(near)
        near[near] = self._holding(numbers[near], beside)
        held = np.concatenate([parts[scipy.ndimage.binary_dilation(near)], parts[tuple(fixed.T)]])
        loose = np.setdiff1d(np.arange(1, count + 1), held)
        if not len(loose):
            return None
        if count == 1:
            return tuple(map(int, np.unravel_index(np.argmin(level), level.shape)))
        size, first = int((parts == loose[0]).sum()), np.argwhere(parts == loose[0])[0]
        raise ValueError(
            f"part {loose[0]} of the {count} parts of the domain, {size} nodes from "
            f"({spelled(self._grid.at(first)[::-1].tolist())}) on, has no given value and no exchange, so its level is not known; "
            f"{len(loose)} parts are like that: give a value on their outlines, or leave them out"
        )

    def _outline_of(self, part: Part, squares: NodeSquares | None = None) -> np.ndarray:
        """Return the numbers of the outlines of the nodes of a part of the grid, or of squares."""
        numbers = np.zeros(sizes(part), int)
        if self._numbers is not None and squares is not None:
            return squares.numbers_at(self._numbers)[part]
        if self._numbers is not None:
            for nodes, where in overlaps(part, self._numbers.shape, self._periods):
                numbers[where] = self._numbers[nodes]
        return numbers

    def cut(self, part: Part, cells: np.ndarray, squares: NodeSquares | None = None) -> CutCells:
        """Return the cut cells of a part of the grid, or of squares with levels.

        ``cells``: which cells around its nodes there are, ``(rows + 1, columns + 1)``.
        """
        ring = grown(part)
        first, inner = np.array([p.start for p in part]), (slice(1, -1),) * len(part)
        level = self.level(ring) if squares is None else squares.level[ring]

        def places(nodes: np.ndarray) -> np.ndarray:
            return nodes + first if squares is None else squares.nodes(nodes + first)

        segments: Segments | None = None
        voxels = self._shape.cells(part)
        if voxels is not None:
            cover = dataclasses.replace(Apertures.of_cells(voxels & cells), cells=voxels)
            faces = exposed(voxels, cells, part, self._grid)
            fixed, numbers, segments = self._on_faces(faces, part)
            if not cells.all() and any(self._periods):  # a copy has the values of its node
                faces = exposed(voxels, np.ones(cells.shape, bool), part, self._grid)
                fixed, numbers, _ = self._on_faces(faces, part)
        else:
            outlines = self._outline_of(ring, squares)
            outside = (level >= 0) & self._given[outlines]
            # Outlines with given values do not cut volumes. What is far outside has none, also where they end.
            natural = np.where(outside, -1.0, level)
            touched = cells & cells_touching(level < 0)
            if not self.natural:
                cover = Apertures.of_cells(cells)
            elif self._shape.staircase:
                cover = staircase(natural, touched)
            else:
                cover, segments = cut_cells(
                    natural,
                    touched,
                    outlines,
                    self._grid.aspect,
                    joined=self._shape.of_cells,
                )
            fixed, numbers = outside[inner], outlines[inner]
        volumes, inside = without_slivers(cover.volumes), self._shape.inside(level)
        counts = (volumes > 0) & ~fixed
        cover = dataclasses.replace(cover, inside=inside, counts=counts)
        level = level[inner]
        reported = self.reported(level)
        return CutCells(
            cover,
            volumes,
            level,
            fixed,
            numbers,
            segments,
            reported,
            self._grid,
            places,
            self._exchange.alphas,
        )

    def _on_faces(self, faces: Faces, part: Part) -> tuple[np.ndarray, np.ndarray, Segments]:
        """Return the nodes of a part with given values, their outlines, and natural faces."""
        outlines = self._numbers_of(faces, part)
        holds = self._given[outlines]
        numbers = np.full(sizes(part), len(self.names))
        np.minimum.at(numbers, tuple(faces.nodes[holds].T), outlines[holds])  # the first of several
        fixed = numbers < len(self.names)
        quarters = faces.quarters[~holds] - [p.start - 1 for p in part]
        segments = Segments(
            faces.nodes[~holds] + 1,
            quarters,
            faces.areas[~holds],
            np.zeros(len(quarters)),
            outlines[~holds],
        )
        return fixed, np.where(fixed, numbers, 0), segments

    def _numbers_of(self, faces: Faces, part: Part) -> np.ndarray:
        """Return the numbers of the outlines that faces belong to."""
        numbers = np.zeros(len(faces.nodes), int)
        if self._numbers is not None:
            numbers = around(self._numbers, part, self._periods)[tuple(faces.voxels.T)]
        return self._chosen(numbers, faces.middles)

    def _chosen(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the numbers of outlines, or of their parts that hold at places ``(T, axes)`` in cells.

        The first one that does.
        """
        first = len(self.names) - len(self._parts)
        wrapped = [
            along if period is None else along % period
            for along, period in zip(places.T, self._periods, strict=True)
        ]
        coordinates = tuple(self._grid.at(np.stack(wrapped, axis=1)).T)
        chosen = numbers.copy()
        for number, part in reversed(list(enumerate(self._parts, start=first))):
            holds = evaluate(part.where, coordinates, f"the side {part}") != 0
            if part.name != "outline":
                holds &= numbers == self.names.index(part.name)
            chosen[holds] = number
        return chosen

    def floating_voxels(self, fixed: np.ndarray) -> Pieces | None:
        """Return the connected parts of voxels, and which of them float; None of another domain.

        ``fixed``: see `floating_part`.
        """
        voxels = self._shape.voxels
        if voxels is None:
            return None
        held = [fixed]
        if (self._given | self._exchange.possible).any():
            whole = all_of(self._grid.nodes)
            ring = around(voxels, whole, self._periods)
            cells = grid_cells(whole, self._grid.shape, self._periods)
            faces = exposed(ring, cells, whole, self._grid)
            outlines = self._numbers_of(faces, whole)
            held.append(faces.nodes[self._holding(outlines, faces.middles)])
        return Pieces.of(voxels, self._periods, np.concatenate(held))


def _require_periodic(shape: Shape, grid: Grid, periodic: tuple[bool, ...]) -> None:
    """Check that a shape goes on at the opposite one of periodic sides; else say where first it does not."""
    for axis, wraps in enumerate(periodic):
        if not wraps:
            continue
        # Each side with the line beside it.
        lines = []
        for first in (0, grid.shape[axis] - 1):
            part = [slice(0, nodes) for nodes in grid.nodes]
            part[axis] = slice(first, first + 2)
            lines += [*np.moveaxis(shape.level(grid, tuple(part)), axis, 0)]
        low, high = lines[0], lines[-1]
        inside = np.stack(lines) < 0
        crossed = inside.any(0) & ~inside.all(0)
        wrong = (low < 0) != (high < 0)
        wrong |= crossed & (abs(low - high) > _SAME * np.ptp(lines, axis=0))
        if wrong.any():
            axes = len(grid.shape)
            both = " and ".join(name_of_side((axis, end), axes) for end in (0, 1))
            node = np.insert(np.argwhere(wrong)[0], axis, 0)
            place = ", ".join(
                f"{letters(axes)[along]} = {grid.at(node)[along]:.10g}"
                for along in others(axis, axes)[::-1]
            )
            raise ValueError(
                f"the sides {both} are periodic, but the outline of the domain is not the same on both, "
                f"first at {place}: let it go on at the other side"
            )


def embedded_boundary(
    problem: Problem, grid: Grid, *, each: bool = False
) -> EmbeddedBoundary | None:
    """Return the outline of a problem's domain, as `EmbeddedBoundary` has it; None of a rectangle or box."""
    shape = problem.domain.shape
    return None if shape is None else EmbeddedBoundary(shape, grid, problem.conditions, each=each)


def covered(
    outline: EmbeddedBoundary | None,
    part: Part,
    cells: np.ndarray,
    squares: NodeSquares | None = None,
) -> tuple[Apertures, np.ndarray, CutCells | None]:
    """Return the apertures of the cells around the nodes of a part, the nodes' volumes, and the cut cells.

    ``outline``: of the domain, None of a rectangle; ``cells``, ``squares``: as of `EmbeddedBoundary.cut`.
    """
    if outline is None:
        cover = Apertures.of_cells(cells)
        return cover, cover.volumes, None
    cut = outline.cut(part, cells, squares)
    return cut.cover, cut.volumes, cut


def covered_cells(problem: Problem, grid: Grid) -> Callable[[Part], Apertures]:
    """Return a function of parts: the apertures of the cells around the nodes; none beyond periodic sides.

    An outline is looked at when it is first asked for.
    """
    outline = functools.cache(lambda: embedded_boundary(problem, grid))
    return lambda part: covered(outline(), part, grid_cells(part, grid.shape))[0]
