"""The part of a box that some of its voxels are; its outline runs along their faces.

The nodes on a face belong to the domain: they have unknowns where the outline is natural, and given values else. So
nothing is too thin, and voxels that touch in an edge or a corner alone are connected there, as by finite elements
on voxels.
"""

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from mosaicdd.axes import ends, times
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.fields.given import as_mask
from mosaicdd.problems.shapes.apertures import Apertures, cells_touching
from mosaicdd.problems.shapes.outline import OutlinePiece
from mosaicdd.problems.shapes.shape import Shape, labelled, named_pieces
from mosaicdd.tensors import read_only


@dataclass(frozen=True, eq=False)
class VoxelMask(Shape):
    """The part of a box that some voxels are, ``(nz, ny, nx)``, true inside.

    `ValueError` if the mask is not true or false, or true nowhere.

    Parameters
    ----------
    voxels
        The mask; an array of numbers must hold 0 and 1 alone. Memory that others may write to is copied.
    left_out
        The share of the voxels given that was left out as it floats, for messages.
    periods
        Of the sides between which it goes on at the other one; by default of none.
    """

    voxels: np.ndarray
    left_out: float = 0.0
    periods: Periods = (None, None, None)
    staircase = False

    def __post_init__(self) -> None:
        mask = as_mask(self.voxels, "the mask")
        if mask.ndim != 3:
            raise ValueError(f"a mask of voxels has three axes, (z, y, x), got {mask.ndim}")
        if not mask.any():
            raise ValueError("the mask is true nowhere: there is no domain")
        if mask.flags.writeable:
            mask = read_only(mask.copy())
        object.__setattr__(self, "voxels", mask)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoxelMask) and np.array_equal(self.voxels, other.voxels)

    def __hash__(self) -> int:
        return hash(self.voxels.shape)

    def __str__(self) -> str:
        share = f"mask of voxels, {self.voxels.mean():.2%} inside"
        return f"{share}, {self.left_out:.2%} left out" if self.left_out else share

    def require_shape(self, grid: Grid) -> None:
        """Check that there is a voxel for each cell of a grid; else raise `ValueError`."""
        if self.voxels.shape != grid.shape:
            raise ValueError(
                f"the mask has {times(self.voxels.shape)} voxels, the domain {times(grid.shape)} cells"
            )

    def on(self, periods: Periods) -> "VoxelMask":
        """Return the same between periodic sides, beyond which it goes on at the other one."""
        return dataclasses.replace(self, periods=periods)

    def inside(self, level: np.ndarray) -> np.ndarray:
        """Mark the nodes where coefficients are known: also on the outline, beside thin parts."""
        return level <= 0

    def cells(self, part: Part) -> np.ndarray:
        """Return the mask of voxels inside around the nodes of a part, one more per axis.

        Beyond a side that is not periodic they are as those beside it.
        """
        return around(self.voxels, part, self.periods)

    def level(self, grid: Grid, part: Part) -> np.ndarray:
        """Return -1 at the nodes of a part with voxels inside alone around them, 0 on the outline, 1 outside."""
        cells = self.cells(part)
        beside, other = cells_touching(cells), cells_touching(~cells)
        return np.where(beside & ~other, -1.0, np.where(beside, 0.0, 1.0))

    def outlines(self, grid: Grid, periods: Periods) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the outlines, and their numbers at the voxels outside.

        The numbers ``(nz, ny, nx)`` of voxels inside are 0.
        """
        return named_pieces(*pieces_of(~self.voxels, periods), periods)

    def clip_side(self, piece: OutlinePiece, grid: Grid) -> OutlinePiece:
        """Return the part of a side that the voxels have."""
        if piece.side is None:
            return piece
        axis, end = piece.side
        shares = Apertures.of_cells(self.voxels.take(-end, axis)).shares
        return dataclasses.replace(piece, shares=shares, inside=shares.sum(axis=0) > 0)


def around(values: np.ndarray, part: Part, periods: Periods) -> np.ndarray:
    """Return values of voxels around the nodes of a part; beyond the box those of the nearest ones."""
    for axis, (p, period) in enumerate(zip(part, periods, strict=True)):
        places = np.arange(p.start - 1, p.stop)
        values = values.take(places, axis, mode="clip" if period is None else "wrap")
    return values


@dataclass(frozen=True)
class Faces:
    """The corners, among the nodes of a part, of faces between voxels inside and outside."""

    # Corner by corner, ``(T, ..)``: its node in the part; the middle of its quarter and that of the face, in cells from
    # the first node of the grid; the voxel outside, from the first one around the part
    nodes: np.ndarray
    quarters: np.ndarray
    middles: np.ndarray
    voxels: np.ndarray
    areas: np.ndarray  # of the quarters, in powers of the spacing


def exposed(inside: np.ndarray, there: np.ndarray, part: Part, grid: Grid) -> Faces:
    """Return the faces at the nodes of a part.

    Parameters
    ----------
    inside
        Which voxels around the nodes are, as `VoxelMask.cells`.
    there
        Which of them there are at all. A face belongs to the voxel inside; beyond a side that is not periodic all are as
        those beside it, so that a face of the box belongs to its side.
    """
    axes, start = inside.ndim, np.array([p.start for p in part])
    shape, lists = [p.stop - p.start for p in part], []
    for axis in range(axes):
        low, high = ends(axis, axes)
        at = np.argwhere(
            (inside[low] & there[low] & ~inside[high]) | (inside[high] & there[high] & ~inside[low])
        )
        across = np.arange(axes) != axis
        outside = at.copy()
        outside[:, axis] += inside[tuple(at.T)]
        middles = at + start - 0.5 * across
        for corner in itertools.product((0, 1), repeat=axes - 1):
            step = np.zeros(axes, int)
            step[across] = corner
            nodes = at - across + step
            own = ((nodes >= 0) & (nodes < shape)).all(axis=1)
            quarters = middles + (step - 0.5) * 0.5 * across
            areas = np.full(own.sum(), grid.face(axis) / 2 ** (axes - 1))
            lists.append([nodes[own], quarters[own], middles[own], outside[own], areas])
    return Faces(*map(np.concatenate, zip(*lists, strict=True)))


@dataclass(frozen=True)
class Pieces:
    """The parts of a domain, connected by nodes: by faces, edges and corners of voxels.

    Attributes
    ----------
    numbers
        Of the voxels, from 1 on; 0 outside.
    loose
        The numbers of those that no value, exchange or reaction acts on: they float.
    """

    numbers: np.ndarray
    count: int
    loose: np.ndarray

    @classmethod
    def of(cls, voxels: np.ndarray, periods: Periods, held: np.ndarray) -> "Pieces":
        """Return the pieces of a mask; ``held``: nodes with a value, exchange or reaction, ``(K, 3)``."""
        numbers, count = pieces_of(voxels, periods)
        touched = [np.zeros(1, int)]
        for step in itertools.product((-1, 0), repeat=voxels.ndim):
            at, there = held + step, np.ones(len(held), bool)
            for axis, (size, period) in enumerate(zip(voxels.shape, periods, strict=True)):
                if period is None:
                    there &= (at[:, axis] >= 0) & (at[:, axis] < size)
                else:
                    at[:, axis] %= size
            touched.append(np.unique(numbers[tuple(at[there].T)]))
        return cls(numbers, count, np.setdiff1d(np.arange(1, count + 1), np.concatenate(touched)))

    @property
    def floating(self) -> np.ndarray:
        """The mask of voxels that float."""
        return np.isin(self.numbers, self.loose)

    def pin(self, grid: Grid) -> tuple[int, ...] | None:
        """Return a node of the domain if nothing holds all of it; None if each part is held.

        `ValueError` if one of several is not.
        """
        if not len(self.loose):
            return None
        first = tuple(np.argwhere(self.numbers == self.loose[0])[0].tolist())
        if self.count == 1:
            return first
        inside = np.count_nonzero(self.numbers)
        sizes = np.bincount(self.numbers.ravel())[self.loose]
        place = ", ".join(f"{along:.10g}" for along in grid.at(first)[::-1])
        raise ValueError(
            f"part {self.loose[0]} of the {self.count} parts of the domain, {sizes[0]} voxels from ({place}) on, has "
            f"no given value and no exchange, so its level is not known; {len(self.loose)} parts are like that, "
            f"{sizes.sum() / inside:.2%} of its voxels: give a value on their outlines, or leave them out by "
            "mosaicdd.without_floating(problem), or --leave-out-floating"
        )


def pieces_of(voxels: np.ndarray, periods: Periods) -> tuple[np.ndarray, int]:
    """Label the connected pieces of voxels from 1 on, by edges and corners, too; 0 elsewhere."""
    wide = np.pad(voxels, [(0, int(period is not None)) for period in periods], mode="wrap")
    numbers, count = labelled(
        wide, periods, np.ones((3,) * voxels.ndim)
    )  # the last layer is the first
    return numbers[tuple(slice(0, n) for n in voxels.shape)], count
