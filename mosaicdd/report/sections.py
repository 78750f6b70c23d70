"""What of a field is drawn, and how it is called: a rectangle itself, of a box planes through it.

Of a box only those planes are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.axes import at, coordinates, letters, others
from mosaicdd.problems.shapes.shape import Shape, has_values
from mosaicdd.report.stored import StoredSolution
from mosaicdd.unsupported import Unsupported

Plane = tuple[str, float]
"""A plane through a box: the letter of the axis that it is constant in, and where, in units of domain length."""


@dataclass(frozen=True)
class Section:
    """The nodes of a solution's field in a plane; of a rectangle all.

    Parameters
    ----------
    axis
        That the plane is constant in; None of a rectangle.
    index
        Which of the field's nodes along it.
    """

    solution: StoredSolution
    axis: int | None = None
    index: int = 0

    @property
    def along(self) -> tuple[int, ...]:
        """The axes of the picture: that of its rows, then that of its columns."""
        return (0, 1) if self.axis is None else others(self.axis, 3)

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of these."""
        names = letters(len(self.solution.grid.shape))
        return tuple(names[axis] for axis in self.along)

    @property
    def title(self) -> str:
        """Where the plane is; nothing of a rectangle."""
        return "" if self.axis is None else self._named(self._place)

    @property
    def _place(self) -> float:
        return float(self.solution.coordinates(self.axis or 0)[self.index])

    def _named(self, place: float) -> str:
        return f"{letters(3)[self.axis or 0]} = {place:.4g}"

    def field(self) -> np.ndarray:
        """Return the values of the field, ``(rows, columns)``."""
        if self.axis is None:
            return np.asarray(self.solution.field)
        return self.solution.plane(self.axis, self.index)

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return those of values at all nodes of the field."""
        return values if self.axis is None else values[at(self.axis, 3, self.index)]

    def level(self, shape: Shape) -> np.ndarray:
        """Return the level of a shape at its nodes."""
        level = shape.level(self.solution.grid, self._nodes)
        return level if self.axis is None else level.squeeze(self.axis)

    def has_values(self) -> np.ndarray:
        """Return at which of its nodes the field has values."""
        values, solution = self.field(), self.solution
        wide = values if self.axis is None else np.expand_dims(values, self.axis)
        there = has_values(solution.shape, solution.grid, self._nodes, wide)
        return there.reshape(values.shape)

    @property
    def _nodes(self) -> tuple[slice, ...]:
        """Of the grid."""
        place, axis = self.solution.window.place, self.axis
        if axis is None:
            return place
        first = place[axis].start + self.index
        return (*place[:axis], slice(first, first + 1), *place[axis + 1 :])

    def ends(self) -> tuple[tuple[float, float], ...]:
        """Return the low and the high end, of the rows and of the columns."""
        extent = self.solution.window.extent(self.solution.grid)
        return tuple(extent[axis] for axis in self.along)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Its left, right, bottom and top end, as matplotlib has them."""
        (bottom, top), (left, right) = self.ends()
        return left, right, bottom, top

    def nearest(self, nodes: np.ndarray) -> tuple[np.ndarray, str]:
        """Return values that are given at lattice nodes in the plane of these that is nearest, inside the domain.

        ``(rows, columns)``, and where that is.
        """
        if self.axis is None:
            return nodes, ""
        low, high = self.solution.map_extent(nodes.shape)[self.axis]
        places = np.linspace(low, high, nodes.shape[self.axis])
        beside = len(places) > 2 and not self.solution.periodic[self.axis]
        inner = places[1:-1] if beside else places
        place = inner[np.argmin(abs(inner - self._place))]
        return nodes[at(self.axis, 3, int(np.argmin(abs(places - place))))], self._named(place)


def sections_of(solution: StoredSolution, planes: Sequence[Plane] = ()) -> list[Section]:
    """Return what is drawn of a solution.

    Parameters
    ----------
    planes
        Through a box, each by the nearest nodes; by default those in the middle along z, y and x.

    Raises
    ------
    ValueError
        If a plane is along no axis of the box, or beside the field.
    Unsupported
        If there are planes of a rectangle.
    """
    axes = len(solution.grid.shape)
    if axes == 2:
        if planes:
            raise Unsupported(
                "a plane is of a box, and the solution is of a rectangle: leave it out"
            )
        return [Section(solution)]
    if not planes:
        return [Section(solution, axis, n // 2) for axis, n in enumerate(solution.window.shape)]
    return [_section(solution, *plane) for plane in planes]


def _section(solution: StoredSolution, letter: str, place: float) -> Section:
    names = letters(3)
    if letter not in names:
        raise ValueError(f"a plane is along {coordinates(3)}, as z=0.5, got {letter}={place:.10g}")
    axis, half = names.index(letter), solution.grid.steps[names.index(letter)] / 2
    nodes = solution.coordinates(axis)
    if not nodes[0] - half <= place <= nodes[-1] + half:
        raise ValueError(
            f"the plane {letter}={place:.10g} is beside the field, which goes from {nodes[0]:.10g} to {nodes[-1]:.10g}"
        )
    return Section(solution, axis, int(np.argmin(abs(nodes - place))))


def sizes(shape: Sequence[int]) -> str:
    """Say how many there are along each axis, that along x first."""
    return " x ".join(map(str, shape[::-1]))


def heading(solution: StoredSolution) -> str:
    """Say what was solved."""
    known = "".join(f", {name} = {value:g}" for name, value in solution.numbers.items())
    pde = solution.attributes.get("pde", "solution")
    parts = [f"{pde}{known}, {sizes(solution.grid.shape)} cells"]
    if solution.window.shape != solution.grid.nodes:
        parts.append(f"window of {sizes(solution.window.shape)} nodes")
    if solution.problems > 1:
        parts.append(f"problem {solution.number} (0 to {solution.problems - 1})")
    return ", ".join(parts)
