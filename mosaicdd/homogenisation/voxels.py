"""A medium of voxels: its conductivities, and what flows between the voxels' middles for a difference of one.

Fluxes are of two points: half a voxel and half of its neighbour in series, the harmonic mean of their conductivities. They are
divided by the largest of all and kept in float32, exact in masks and right to 6e-8 else.
"""

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import Slices, at, ends, in_order, in_rows, letters, sizes, times, within
from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.given import (
    of_colours,
    real_array,
    require_spacing,
    spacing_of,
    usable,
)
from mosaicdd.problems.operators.conductances import Conductances

_AT_ONCE = 2**22  # voxels whose numbers are in float64 at a time


@dataclass(frozen=True)
class Voxels:
    """Conductivities per voxel, on every rank for all of them.

    Parameters
    ----------
    along
        Of each axis, the conductivities along it: the same array in an isotropic medium.
    spacing
        Sides of a voxel, per axis, in units of length.
    periodic
        Whether the medium is a cell that repeats itself along all axes. Of an odd number of voxels two cells are taken, as
        colours and coarse nodes take turns all round.
    """

    along: tuple[np.ndarray, ...]
    spacing: tuple[float, ...]
    periodic: bool = False

    @classmethod
    def of(
        cls,
        medium: Any,
        spacing: float | Sequence[float] | Mapping[str, float] | None,
        periodic: bool = False,
    ) -> "Voxels":
        """Return a medium as it was given; values are checked by `summary`.

        ``spacing``: by default how far apart coordinates are, where it has any, else 1.

        `ValueError` or `TypeError` if it has not two or three axes, or no voxel, or its conductivities along axes not
        the same shape; or is a picture in colours; or a spacing is not positive, or not that of its coordinates.
        """
        by_axis = medium if isinstance(medium, Mapping) else None
        first = medium if by_axis is None else next(iter(by_axis.values()), None)
        axes = np.ndim(usable(first, "the medium"))
        if axes not in (2, 3):
            raise ValueError(
                f"a medium has a conductivity per voxel, (ny, nx) or (nz, ny, nx), got {axes} axes"
            )
        per_axis = (medium,) * axes if by_axis is None else in_order(by_axis, axes)
        arrays: dict[int, np.ndarray] = {}
        steps: list[tuple[float, ...] | None] = []
        for values in per_axis:
            if id(values) not in arrays:
                ordered = usable(values, "the medium")
                steps.append(spacing_of(ordered, axes, "the medium") if spacing is None else None)
                arrays[id(values)] = np.asanyarray(ordered)
        along = tuple(arrays[id(values)] for values in per_axis)
        shapes = {values.shape for values in along}
        if len(shapes) > 1:
            sizes = ", ".join(times(shape) for shape in sorted(shapes))
            raise ValueError(f"conductivities along axes must be of the same voxels, got {sizes}")
        if 0 in along[0].shape:
            raise ValueError(f"a medium has a voxel at least, got {times(along[0].shape)}")
        if axes == 3 and (hint := of_colours(along[0])):
            raise ValueError(f"a medium has a conductivity per voxel, (nz, ny, nx){hint}")
        if spacing is None:
            spacing = next((apart for apart in steps if apart is not None), 1.0)
        sides = _sides(spacing, axes)
        for values in {id(values): values for values in per_axis}.values():
            if hasattr(values, "coords"):
                grid = Grid.of_cells(along[0].shape, sides)
                require_spacing(usable(values, "the medium"), grid, "the medium")
        return cls(along, sides, periodic)

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels per axis."""
        return tuple(n + n % 2 * n * self.periodic for n in self.cell)

    @property
    def cell(self) -> tuple[int, ...]:
        """Voxels per axis of the medium as it was given."""
        return self.along[0].shape

    @property
    def axes(self) -> int:
        """The number of axes."""
        return len(self.along)

    @property
    def names(self) -> str:
        """The letters of the axes."""
        return letters(self.axes)

    @property
    def weights(self) -> tuple[float, ...]:
        """Conductance of a whole voxel of conductivity 1 along each axis."""
        return tuple(math.prod(self.spacing) / side**2 for side in self.spacing)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Lengths of the medium along the axes."""
        return tuple(n * side for n, side in zip(self.shape, self.spacing, strict=True))

    @property
    def arrays(self) -> list[np.ndarray]:
        """The different ones."""
        return list({id(values): values for values in self.along}.values())

    def values(self, axis: int, part: Slices) -> np.ndarray:
        """Return conductivities along an axis in a part, in float64."""
        return real_array(self._taken(self.along[axis], part), "the medium")

    def conducts(self, part: Slices) -> np.ndarray:
        """Say which voxels of a part conduct."""
        conducting = np.empty(sizes(part), bool)
        for rows in in_rows(part, _AT_ONCE):
            np.greater(self._taken(self.along[0], rows), 0, out=conducting[within(rows, part)])
        return conducting

    def chunks(self, part: Slices) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the conductivities along all axes in a part, some planes at a time."""
        for rows in in_rows(part, _AT_ONCE):
            by_array = {id(k): real_array(self._taken(k, rows), "the medium") for k in self.arrays}
            yield tuple(by_array[id(k)] for k in self.along)

    def half(self, axis: int, part: Slices) -> np.ndarray:
        """Return the conductances of half voxels along an axis in a part."""
        return 2 * self.weights[axis] * self.values(axis, part)

    def network(
        self,
        ranks: Ranks,
        part: Slices,
        there: np.ndarray | None,
        axis: int,
        about: float,
        held: np.ndarray,
    ) -> tuple[Conductances, float]:
        """Return the conductances between voxels in a part; but of a cell with values given on the two faces across an axis.

        Parameters
        ----------
        there
            Which voxels of the part are not left out; by default none is.
        about
            What the largest conductance is like, so that float32 holds what is divided by it.
        held
            The voxels of a cell where the value is 0, one of each part that nothing else holds, ``(T, axes)``. They are joined to
            it by some conductance: as nothing is left over in the part, nothing flows there.

        Returns
        -------
        Conductances, float
            Divided by the largest of all ranks; this one.
        """
        along = [self._between(other, part, there, about) for other in range(self.axes)]
        excess = np.zeros(sizes(part), np.float32)
        for face in () if self.periodic else self.faces(axis, part):
            through_face = self.half(axis, face) / about
            if there is not None:
                through_face *= there[within(face, part)]
            excess[within(face, part)] += through_face
        for voxel in held:
            along_axes = zip(part, voxel, self.shape, strict=True)
            copies = [np.arange(p.start - n, p.stop - n) % count == 0 for p, n, count in along_axes]
            place = tuple(slice(n, n + 1) for n in voxel)
            excess[np.ix_(*copies)] = self.half(axis, place) / about
        largest = ranks.largest(max(float(values.max(initial=0.0)) for values in (*along, excess)))
        for values in (*along, excess):
            values /= np.float32(largest)
        return Conductances(tuple(along), excess), about * float(np.float32(largest))

    def faces(self, axis: int, part: Slices) -> list[Slices]:
        """Return the layers of a part at the two faces across an axis."""
        count = self.shape[axis]
        layers = [slice(0, 1), slice(count - 1, count)]
        return [
            (*part[:axis], layer, *part[axis + 1 :])
            if part[axis].start <= layer.start and layer.stop <= part[axis].stop
            else (*part[:axis], slice(part[axis].start, part[axis].start), *part[axis + 1 :])
            for layer in layers
        ]

    def _taken(self, values: np.ndarray, part: Slices) -> np.ndarray:
        """Return values in a part, which of a cell may be anywhere."""
        if not self.periodic:
            return values[part]
        along_axes = zip(part, values.shape, strict=True)
        return values[np.ix_(*(np.arange(p.start, p.stop) % count for p, count in along_axes))]

    def _between(
        self, axis: int, part: Slices, there: np.ndarray | None, about: float
    ) -> np.ndarray:
        """Return the conductances along an axis between voxels, over ``about``, in float32."""
        shape = [p.stop - p.start - (axis == other) for other, p in enumerate(part)]
        all_of_it = np.empty(shape, np.float32)
        low, high = ends(axis, self.axes)
        firsts = tuple(slice(p.start, p.start + n) for p, n in zip(part, shape, strict=True))
        for firsts_here in in_rows(firsts, _AT_ONCE):
            reach = at(axis, self.axes, 1, 0)
            both = tuple(
                slice(p.start, p.stop + r) for p, r in zip(firsts_here, reach, strict=True)
            )
            with np.errstate(divide="ignore"):
                resistance = 0.5 / self.values(axis, both)
                total = self.weights[axis] / about / (resistance[low] + resistance[high])
            if there is not None:
                total *= there[within(both, part)][low]
            all_of_it[within(firsts_here, firsts)] = total
        return all_of_it


def _sides(spacing: Any, axes: int) -> tuple[float, ...]:
    """Return the sides of a voxel, per axis."""
    if isinstance(spacing, Mapping):
        spacing = in_order(spacing, axes)
    sides = (spacing,) * axes if isinstance(spacing, numbers.Real) else tuple(spacing)
    if len(sides) != axes:
        raise ValueError(
            f"a voxel has {axes} sides, ({', '.join(letters(axes))}), got {len(sides)} of spacing"
        )
    if not all(isinstance(side, numbers.Real) and 0 < float(side) < math.inf for side in sides):
        raise ValueError(f"spacing must be a positive number, or one per axis, got {spacing}")
    return tuple(map(float, sides))
