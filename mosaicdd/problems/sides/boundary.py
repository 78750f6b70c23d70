"""Dirichlet data on all edges of the domain.

Values on all edges of a rectangle, of one or several problems: given, or made for a grid, as by a text.

The text is that by which a command line asks for boundary data: ``gp:...``, ``expr:...`` or a file.
"""

import copy
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.ndimage

from mosaicdd.axes import Slices, letters, times
from mosaicdd.grid.grid import Grid, perimeter_faces
from mosaicdd.problems.fields.evaluated import evaluate, expression_in_time, require_finite
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.given import real_array, same_values
from mosaicdd.problems.fields.random_media import sample_closed_curve
from mosaicdd.problems.shapes.outline import Side, name_of_side, side_names, sides
from mosaicdd.settings import read_settings
from mosaicdd.unsupported import Unsupported

Place = tuple[slice | int, ...]


def on_side(side: Side) -> Place:
    """Return the index of a side in a field."""
    axis, end = side
    return (*[slice(None)] * axis, -end)


def edges_of(part: Slices, nodes: tuple[int, ...]) -> Iterator[tuple[Side, Slices, Place]]:
    """Yield the grid's sides on a part, their nodes, and their index in it."""
    for axis, (along, count) in enumerate(zip(part, nodes, strict=True)):
        for end, ends in enumerate((along.start == 0, along.stop == count)):
            if ends:
                yield (axis, end), (*part[:axis], *part[axis + 1 :]), on_side((axis, end))


@functools.cache
def corners(axes: int = 2) -> tuple[tuple[Side, Place, Side, Place], ...]:
    """Return pairs of adjacent sides, each with the index of the common corner or edge."""
    return tuple(
        ((a, low), on_side((b - 1, high)), (b, high), on_side((a, low)))
        for a, b in itertools.combinations(range(axes), 2)
        for low, high in itertools.product((0, 1), repeat=2)
    )


def _between_nodes(values: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """Return node values at places in cells, linear between nodes along each axis."""
    if len(places) == 1:  # much faster than the general way
        return np.interp(places[0], np.arange(len(values)), values)
    if not places:
        return values
    every = np.stack(np.broadcast_arrays(*places)).astype(float)
    return scipy.ndimage.map_coordinates(values, every, order=1, mode="nearest")


@dataclass(frozen=True, eq=False)
class Boundary:
    """Values on the four edges of a rectangle; corners stand in two edges.

    `ValueError` if opposite edges differ in length, a value is not finite, or two edges disagree in their common
    corner.
    ``edges``: by the side (see `Side`): ``(nx + 1,)`` left to right, or ``(ny + 1,)`` bottom to top. Of a box, six
    arrays ``(ny + 1, nx + 1)``, ``(nz + 1, nx + 1)`` or ``(nz + 1, ny + 1)``.
    """

    edges: Mapping[Side, np.ndarray]

    def __post_init__(self) -> None:
        axes, edges = len(self.edges) // 2, {}
        for side in sides(axes):
            name = f"boundary edge {name_of_side(side, axes)}"
            edge = edges[side] = real_array(self.edges[side], name)
            if edge.ndim != axes - 1 or min(edge.shape) < 2:
                raise ValueError(f"{name} must be one row of values, got {edge.shape}")
            require_finite(edge, name)
        object.__setattr__(self, "edges", edges)
        for axis in range(axes):
            low, high = edges[axis, 0].shape, edges[axis, 1].shape
            if low != high:
                low_side, high_side = (name_of_side((axis, end), axes) for end in (0, 1))
                raise ValueError(
                    f"boundary edges {low_side} ({times(low)} nodes) and {high_side} ({times(high)}) differ"
                )
        self._check_corners()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Boundary) and same_values(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash(self.shape)

    def _check_corners(self) -> None:
        axes = len(self.edges) // 2
        scale = max(np.abs(edge).max() for edge in self.edges.values())
        for side, i, other, j in corners(axes):
            a, b = self.edges[side][i], self.edges[other][j]
            if (abs(a - b) > 1e-12 * scale).any():
                a, b = np.ravel(a), np.ravel(b)
                worst = np.abs(a - b).argmax()
                raise ValueError(
                    f"boundary edges {name_of_side(side, axes)} and {name_of_side(other, axes)} must be "
                    f"equal in their common corner, got {a[worst]:.17g} and {b[worst]:.17g}"
                )

    @classmethod
    def of_names(cls, **edges: np.ndarray) -> "Boundary":
        """Return the values on edges by their names, ``bottom``, ``top``, ``left`` and ``right``."""
        return cls({side: edges[name] for name, side in side_names(len(edges) // 2).items()})

    @classmethod
    def zeros(cls, grid: Grid) -> "Boundary":
        """Return zeros on the edges of a grid."""
        return cls.of_field(np.broadcast_to(0.0, grid.nodes))

    @property
    def named(self) -> dict[str, np.ndarray]:
        """The edges by their names."""
        axes = len(self.edges) // 2
        return {name_of_side(side, axes): edge for side, edge in self.edges.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells per axis, ``(ny, nx)``."""
        first, *along = self.edges[1, 0].shape[0], *self.edges[0, 0].shape
        return tuple(nodes - 1 for nodes in (first, *along))

    def each(self, of: Callable[[np.ndarray], np.ndarray]) -> "Boundary":
        """Apply a function to each edge."""
        return Boundary({side: of(edge) for side, edge in self.edges.items()})

    def times(self, factor: float) -> "Boundary":
        """Return the values multiplied by a factor."""
        return self if factor == 1.0 else self.each(lambda edge: factor * edge)

    def every(self, apart: int) -> "Boundary":
        """Return the values at nodes ``apart`` cells apart, a divisor of the edges' cells."""
        return self.each(lambda edge: edge[(slice(None, None, apart),) * edge.ndim])

    def impose(self, field: np.ndarray, part: Slices | None = None) -> np.ndarray:
        """Write the values to the edges of a field, or of a part; return the field."""
        nodes = tuple(cells + 1 for cells in self.shape)
        for side, along, place in edges_of(part or tuple(map(slice, [0, 0, 0], nodes)), nodes):
            field[place] = self.edges[side][along]
        return field

    def at(self, *places: np.ndarray) -> np.ndarray:
        """Evaluate the transfinite interpolation of the edges (Coons, 1967; in space Gordon, 1971).

        What is linear between opposite edges, added up over the axes, less what then counts twice: what is linear
        between corners, and so on.
        ``places``: along each axis, in the order of arrays, in cells; they broadcast.
        """
        total: np.ndarray | float = 0.0
        for ends in itertools.product((None, 0, 1), repeat=len(places)):
            fixed = [axis for axis, end in enumerate(ends) if end is not None]
            if not fixed:
                continue
            weight: np.ndarray | float = -((-1.0) ** len(fixed))
            for axis in fixed:
                share = places[axis] / self.shape[axis]
                weight = weight * (share if ends[axis] else 1 - share)
            place = [slice(None) if end is None else -end for end in ends]
            first = place.pop(fixed[0])
            edge = self.edges[fixed[0], int(first == -1)][tuple(place)]
            free = [place for place, end in zip(places, ends, strict=True) if end is None]
            total = total + weight * _between_nodes(edge, free)
        return np.asarray(total)

    def require_shape(self, grid: Grid) -> None:
        """Check that the values belong to ``grid``; else raise `ValueError` with both sizes."""
        if self.shape != grid.shape:
            nodes, needed = (
                " and ".join(str(cells + 1) for cells in reversed(shape))
                for shape in (self.shape, grid.shape)
            )
            raise ValueError(
                f"the boundary data are for {times(self.shape)} cells (edges of {nodes} nodes), the "
                f"problem has {times(grid.shape)} (edges of {needed} nodes)"
            )

    @classmethod
    def of_field(cls, field: np.ndarray) -> "Boundary":
        """Take the edge of a field, ``(ny + 1, nx + 1)``."""
        return cls({side: field[on_side(side)] for side in sides(field.ndim)})

    @classmethod
    def of_perimeter(cls, values: np.ndarray, grid: Grid) -> "Boundary":
        """Take values ``(2 (ny + nx),)`` in the order of a perimeter, see `perimeter_faces`."""
        edges, nodes, begin = {}, grid.nodes, 0
        for axis, end, spans, backwards in perimeter_faces(grid.shape):
            edge = edges[axis, end] = np.full((*nodes[:axis], *nodes[axis + 1 :]), np.nan)
            face = edge[tuple(slice(first, first + count) for first, count in spans)]
            part = values[begin : begin + face.size].reshape(face.shape)
            face[...] = np.flip(part) if backwards else part
            begin += face.size
        for side, here, other, there in corners(len(grid.shape)):  # one of both faces has them
            edges[side][here] = np.fmax(edges[side][here], edges[other][there])
            edges[other][there] = edges[side][here]
        return cls(edges)

    @classmethod
    def of_expression(cls, text: str | Expression, grid: Grid) -> "Boundary":
        """Evaluate an expression in ``x`` and ``y``, or its text, on the edge.

        `ValueError` if the expression is not allowed or not finite on the edge.
        """
        axes = grid.places([slice(0, n) for n in grid.nodes])
        edges = {}
        for axis, end in sides(len(axes)):
            at = np.ix_(*axes[:axis], *axes[axis + 1 :])
            places = (*at[:axis], axes[axis][-end], *at[axis:])
            edges[axis, end] = evaluate(text, places, "the boundary")
        return cls(edges)

    @classmethod
    def of_gaussian_process(
        cls,
        grid: Grid,
        *,
        seed: int = 0,
        length: float | None = None,
        amplitude: float = 1.0,
        noise: float = 0.0,
    ) -> "Boundary":
        """Sample a Gaussian process along the closed edge.

        ``length``: length scale in units of domain length; by default 1/16 of the perimeter.

        `Unsupported` if the grid is in space, where the edge is no curve.
        """
        if len(grid.shape) != 2:
            raise Unsupported(
                f"gp is a random curve around a rectangle, and {times(grid.shape)} cells are a box: give "
                "values as 'expr:...', a number, or of each side"
            )
        ny, nx = grid.shape
        nodes, rng = 2 * (ny + nx), np.random.default_rng(seed)
        perimeter = nodes * grid.spacing  # of cells that are no squares in units of their mean side
        scale = perimeter / 16 if length is None else length
        return cls.of_perimeter(
            sample_closed_curve(rng, nodes, perimeter, scale, amplitude, noise), grid
        )


class EdgeData:
    """Values on all edges of one or several problems; derived classes make them for a grid.

    `TypeError` if ``values`` are no `Boundary`, of each problem.
    """

    made: ClassVar[bool] = False
    """Whether values are made when the grid is known."""

    def __init__(self, values: Sequence[Boundary]):
        if not values or not all(isinstance(boundary, Boundary) for boundary in values):
            raise TypeError("sides must be conditions, or Boundary values of all edges")
        self._values = list(values)
        self._which = range(len(values))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and same_values(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash(self._which)

    @property
    def problems(self) -> int:
        """The number of problems."""
        return len(self._which)

    def some(self, which: range) -> Self:
        """Return the values of some of the problems."""
        other = copy.copy(self)
        other._which = self._which[which.start : which.stop]
        return other

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid."""
        return self._on(grid)[self._which.start : self._which.stop]

    def _on(self, grid: Grid) -> list[Boundary]:
        """Return the values of all problems, whichever are chosen."""
        return self._values


def edge_data(values: Any) -> EdgeData | None:
    """Return a `Boundary`, or one of each problem, as `EdgeData`; None for other kinds."""
    if isinstance(values, Boundary):
        values = [values]
    if isinstance(values, Sequence) and not isinstance(values, str):
        return EdgeData(values)
    return values if isinstance(values, EdgeData) else None


def is_file(spec: str) -> bool:
    """Say whether ``spec`` names a file."""
    return not spec.startswith(("gp:", "expr:")) and spec != "gp"


_SEEDS = re.compile(r"(?:^|(?<=,))seed=([^,]*?)\.\.([^,]*)(?:,|$)")
_MOST_SEEDS = 10**6
_GP_SETTINGS = {
    "seed": (int, 0.0),
    "length": (float, 1e-12),
    "amplitude": (float, 0.0),
    "noise": (float, 0.0),
}


class BoundarySpec(EdgeData):
    """Boundary data by a text, ``gp:seed=0,length=1.5`` or ``expr:sin(2*pi*x)``.

    ``gp:seed=0..63`` are 64 problems, one for each seed from the first to the last.

    `ValueError` if the text is malformed or a value is out of range.

    Parameters
    ----------
    text
        What is evaluated when the grid is known; on many ranks every one evaluates it.
    t
        The time, which may stand in an expression then.
    """

    made: ClassVar[bool] = True

    def __init__(self, text: str, t: float | None = None):
        self.text = text
        self._t = t
        self._expression = text.startswith("expr:")
        self._settings: dict[str, float] = {}
        self._seeds: Sequence[int] = [0]
        if not self._expression:
            self._settings, self._seeds = _gp(text.partition(":")[2])
        self._which = range(len(self._seeds))

    @property
    def formula(self) -> str | None:
        """The text of the expression; None of a Gaussian process."""
        return self.text if self._expression else None

    def at_time(self, t: float, axes: int) -> Self:
        """Return the data at a time; themselves if constant in time."""
        changes = self._expression and self._formula(t, axes).uses("t")
        return type(self)(self.text, t) if changes else self

    def _formula(self, t: float | None, axes: int) -> Expression:
        text, variables = self.text.removeprefix("expr:"), (*reversed(letters(axes)), "pi")
        return Expression(text, variables) if t is None else expression_in_time(text, variables, t)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid.

        `ValueError` if an expression is not allowed or not finite on the edge.
        """
        if self._expression:
            return [Boundary.of_expression(self._formula(self._t, len(grid.shape)), grid)]
        seeds = self._seeds[self._which.start : self._which.stop]
        return [Boundary.of_gaussian_process(grid, seed=s, **self._settings) for s in seeds]


def _gp(text: str) -> tuple[dict[str, float], Sequence[int]]:
    """Return the settings of a Gaussian process, and its seeds."""
    seeds = _SEEDS.search(text)
    settings = read_settings("gp", _SEEDS.sub("", text, count=1), _GP_SETTINGS)
    if seeds is None:
        return settings, [int(settings.pop("seed", 0))]
    if "seed" in settings:
        raise ValueError("gp:seed is given twice")
    first, last = seeds.groups()
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise ValueError(
            f"gp:seed must be a number or a range as 0..63, from low to high, got '{first}..{last}'"
        )
    which = range(int(first), int(last) + 1)
    if which.stop > _MOST_SEEDS:
        raise ValueError(f"gp:seed={first}..{last}: at most {_MOST_SEEDS} in a range")
    return settings, which


def joined_edges(edges: dict[str, np.ndarray], grid: Grid) -> Boundary:
    """Join values on edges, ``(M,)``, by the names of sides; corners get the mean."""
    axes, names = len(grid.shape), side_names(len(grid.shape))
    values = {
        names[name]: edge.reshape(tuple(np.delete(grid.nodes, names[name][0])))
        for name, edge in edges.items()
    }
    total = {side: edge.copy() for side, edge in values.items()}
    counts = {side: np.ones(edge.shape) for side, edge in values.items()}
    for first, on_first, second, on_second in corners(axes):
        total[first][on_first] += values[second][on_second]
        total[second][on_second] += values[first][on_first]
        counts[first][on_first] += 1
        counts[second][on_second] += 1
    return Boundary({side: edge / counts[side] for side, edge in total.items()})
