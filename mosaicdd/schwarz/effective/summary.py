"""What is known of a medium without solving: whether it is one, its means, and its phases."""

import math
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import Slices
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.effective.voxels import Voxels

_RATIO = 1e30  # between conductances that float32 holds, with room for what is made of them


@dataclass(frozen=True)
class Summary:
    """Of a medium, over all ranks.

    Parameters
    ----------
    conducting
        Voxels that conduct.
    arithmetic, harmonic
        Means of the conductivities along each axis; the latter is 0 where some voxel does not conduct.
    largest
        Of the conductances of whole voxels.
    phases
        The conductivities, where all axes have the same two or the same one, ascending; else none.
    """

    voxels: int
    conducting: int
    arithmetic: tuple[float, ...]
    harmonic: tuple[float, ...]
    largest: float
    phases: tuple[float, ...]
    axes: int

    @classmethod
    def of(cls, ranks: Ranks, voxels: Voxels, own: Slices) -> "Summary":
        """Return that of a medium; all ranks together, each for its own voxels.

        Raises
        ------
        ValueError
            On all ranks, if a conductivity is not finite or negative, or they differ too much, or some voxel conducts along
            some axes only.
        """
        here = ranks.agree(lambda: _Sums(voxels, own))
        sums = ranks.sum(np.concatenate([[here.conducting], here.total, here.inverse]))
        least, largest = -ranks.largest(-here.least), ranks.largest(here.largest)
        if largest > _RATIO * least:
            raise ValueError(
                f"conductances of voxels are from {least:g} to {largest:g}, and up to {_RATIO:g} times "
                "the least are solved: let what conducts less be 0"
            )
        phases: set[float] | None = set()
        for of_rank in ranks.allgather(here.phases):
            phases = None if phases is None or of_rank is None else phases | of_rank
        few = phases is not None and len(phases) <= 2 and len(voxels.arrays) == 1
        count = math.prod(voxels.shape)
        conducting, total, inverse = sums[0], *np.split(sums[1:], 2)
        full = int(conducting) == count
        return cls(
            count,
            int(conducting),
            tuple((total / count).tolist()),
            tuple((count / inverse if full else 0 * inverse).tolist()),
            largest,
            tuple(sorted(phases or ())) if few else (),
            voxels.axes,
        )

    @property
    def volume_fraction(self) -> float:
        """Share of the voxels that conduct."""
        return self.conducting / self.voxels

    @property
    def one_conducts(self) -> bool:
        """Whether all that conducts has the same conductivity."""
        return len([k for k in self.phases if k]) == 1

    @property
    def hashin_shtrikman(self) -> tuple[float, float] | None:
        """The bounds of an isotropic mixture; None where there are not two phases."""
        if len(self.phases) != 2:
            return None
        low, high = self.phases
        fraction = (self.arithmetic[0] - low) / (high - low)
        return hashin_shtrikman(fraction, high, low, self.axes)


class _Sums:
    """What one rank adds up over its voxels: of each axis, the sums of conductivities and of their inverses."""

    def __init__(self, voxels: Voxels, own: Slices):
        self.conducting, self.total, self.inverse = 0, np.zeros(voxels.axes), np.zeros(voxels.axes)
        self.least, self.largest = math.inf, 0.0
        self.phases: set[float] | None = set()
        for values in voxels.chunks(own):
            there = values[0] > 0
            self.conducting += int(np.count_nonzero(there))
            for k, axes in values_and_axes(values):
                require_conductivities(k)
                if not np.array_equal(k > 0, there):
                    raise ValueError(
                        "a voxel conducts along all axes or along none: let what hardly conducts along one have a "
                        "small conductivity there, above 0"
                    )
                conducting = k[there]
                weights = [voxels.weights[axis] for axis in axes]
                self.total[axes] += float(conducting.sum())
                self.inverse[axes] += float((1 / conducting).sum())
                if conducting.size:
                    low, high = float(conducting.min()), float(conducting.max())
                    self.least = min(self.least, low * min(weights))
                    self.largest = max(self.largest, high * max(weights))
                self._note_phases(k)

    def _note_phases(self, k: np.ndarray) -> None:
        low, high = float(k.min()), float(k.max())
        two = bool(((k == low) | (k == high)).all())
        if self.phases is not None:
            self.phases = self.phases | {low, high} if two else None


def values_and_axes(values: tuple[np.ndarray, ...]) -> list[tuple[np.ndarray, list[int]]]:
    """Return the different arrays of one per axis, and of which axes they are."""
    axes: dict[int, list[int]] = {}
    for axis, k in enumerate(values):
        axes.setdefault(id(k), []).append(axis)
    return [(values[of[0]], of) for of in axes.values()]


def require_conductivities(k: np.ndarray) -> None:
    """Check conductivities.

    Raises
    ------
    ValueError
        If they are not finite or negative.
    """
    least = float(k.min())
    if least >= 0 and math.isfinite(float(k.max())):
        return
    wrong = k[~((k >= 0) & np.isfinite(k))]
    raise ValueError(
        f"conductivities must be finite and not negative, got {wrong[0]:g} and {len(wrong) - 1} more such: let voxels "
        "that do not conduct be 0"
    )


def hashin_shtrikman(fraction: float, k: float, other: float, axes: int) -> tuple[float, float]:
    """Return the bounds of an isotropic mixture of two phases (Hashin and Shtrikman, 1962).

    Parameters
    ----------
    fraction
        Share of the volume that the first phase, of conductivity ``k``, has.
    axes
        2 or 3.

    Returns
    -------
    float, float
        The lower and the upper one.
    """

    def around(matrix: float, inclusion: float, share: float) -> float:
        if share == 0 or matrix == 0 or inclusion == matrix:
            return matrix
        return matrix + share / (1 / (inclusion - matrix) + (1 - share) / (axes * matrix))

    if fraction == 1:
        return k, k
    both = around(k, other, 1 - fraction), around(other, k, fraction)
    return min(both), max(both)
