"""The connected parts of a domain of voxels, and which of them nothing holds."""

import itertools
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.shapes.shape import labelled


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
        """Return those of a mask; ``held``: nodes that something acts on, ``(K, 3)``."""
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
        """Which voxels float."""
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
        place = ", ".join(
            f"{n * step:g}" for n, step in zip(first[::-1], grid.steps[::-1], strict=True)
        )
        raise ValueError(
            f"part {self.loose[0]} of the {self.count} parts of the domain, {sizes[0]} voxels from ({place}) on, has "
            f"no given value and no exchange, so its level is not known; {len(self.loose)} parts are like that, "
            f"{sizes.sum() / inside:.2%} of its voxels: give a value on their outlines, or leave them out by "
            "mosaicdd.without_floating(problem), or --leave-out-floating"
        )


def pieces_of(voxels: np.ndarray, periods: Periods) -> tuple[np.ndarray, int]:
    """Return numbers of the connected pieces of voxels, from 1 on, by edges and corners, too; 0 elsewhere."""
    wide = np.pad(voxels, [(0, int(period is not None)) for period in periods], mode="wrap")
    numbers, count = labelled(
        wide, periods, np.ones((3,) * voxels.ndim)
    )  # the last layer is the first
    return numbers[tuple(slice(0, n) for n in voxels.shape)], count
