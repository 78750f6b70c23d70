"""The means, phases and connected parts of a medium of voxels, without solving.

Paths lead from face to face, or from a cell to the next one. Each rank labels its own box. Where boxes touch, voxels that conduct on both sides of the face
form patches, which both ranks see alike, as each has the medium: a patch joins one part of the one box and one of the other.
What is sent is a label per patch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.ndimage
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components

from mosaicdd.axes import Slices, at, within
from mosaicdd.homogenisation.voxels import Voxels
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.solvers.multigrid.level_partition import LevelBox

_RATIO = 1e30  # between conductances that float32 holds, with room for what is made of them


@dataclass(frozen=True)
class Summary:
    """The sums of a medium, over all ranks.

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
        """Return the summary of a medium; all ranks together, each for its own voxels.

        `ValueError` on all ranks, if a conductivity is not finite or negative, or they differ too much, or some
        voxel conducts along some axes only, or it is a picture of 0 and 255.
        """
        local, (low, high), local_phases = ranks.run_on_all(lambda: _sums(voxels, own))
        sums, least, largest = ranks.sum(local), -ranks.largest(-low), ranks.largest(high)
        if largest > _RATIO * least:
            raise ValueError(
                f"conductances of voxels are from {least:g} to {largest:g}, and up to {_RATIO:g} times "
                "the least are solved: let what conducts less be 0"
            )
        phases: set[float] | None = set()
        for of_rank in ranks.allgather(local_phases):
            phases = None if phases is None or of_rank is None else phases | of_rank
        few = phases is not None and len(phases) <= 2 and len(voxels.arrays) == 1
        if phases is not None and {255.0} <= phases <= {0.0, 255.0} and _of_bytes(voxels):
            raise ValueError(
                "the medium is true or false, got bytes of 0 and 255 as of a picture: give medium > 127, or in float64 what "
                "has a conductivity of 255"
            )
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


def _of_bytes(voxels: Voxels) -> bool:
    return all(values.dtype == np.uint8 for values in voxels.arrays)


def _sums(voxels: Voxels, own: Slices) -> tuple[np.ndarray, tuple[float, float], set[float] | None]:
    """Return sums over a rank's voxels, the least and the largest conductance, and the conductivities if there are two.

    The sums: the voxels that conduct, and along each axis of conductivities and of their inverses.
    """
    conducting, (total, inverse) = 0, np.zeros((2, voxels.axes))
    least, largest, phases = math.inf, 0.0, set[float]()
    two = True
    for values in voxels.chunks(own):
        conducts = values[0] > 0
        conducting += int(np.count_nonzero(conducts))
        for k, axes in values_and_axes(values):
            require_conductivities(k)
            if not np.array_equal(k > 0, conducts):
                raise ValueError(
                    "a voxel conducts along all axes or along none: let what hardly conducts along one have a "
                    "small conductivity there, above 0"
                )
            positive, weights = k[conducts], [voxels.weights[axis] for axis in axes]
            total[axes] += float(positive.sum())
            inverse[axes] += float((1 / positive).sum())
            if positive.size:
                least = min(least, float(positive.min()) * min(weights))
                largest = max(largest, float(positive.max()) * max(weights))
            low, high = float(k.min()), float(k.max())
            two = two and bool(((k == low) | (k == high)).all())
            phases |= {low, high}
    sums = np.concatenate([[conducting], total, inverse])
    return sums, (least, largest), phases if two else None


def values_and_axes(values: tuple[np.ndarray, ...]) -> list[tuple[np.ndarray, list[int]]]:
    """Return the different arrays of one per axis, and of which axes they are."""
    axes: dict[int, list[int]] = {}
    for axis, k in enumerate(values):
        axes.setdefault(id(k), []).append(axis)
    return [(values[of[0]], of) for of in axes.values()]


def require_conductivities(k: np.ndarray) -> None:
    """Check conductivities.

    `ValueError` if they are not finite or negative.
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


class Paths:
    """The connected parts of what conducts, through faces of voxels.

    ``own``: the voxels of this rank. ``part_of``: of this rank's voxels, the connected part of its box that they
    belong to, from 1 on; 0 where nothing conducts.
    """

    def __init__(self, ranks: Ranks, voxels: Voxels, own: Slices):
        self._ranks, self._voxels, self._own = ranks, voxels, own
        conducts = voxels.conducts(own)
        self.part_of = np.empty(conducts.shape, np.int32)
        count = scipy.ndimage.label(conducts, output=self.part_of)
        around = (voxels.periodic,) * voxels.axes
        below, above = (
            {
                axis: (neighbour, own[axis].stop == voxels.shape[axis], self._patches(axis, end))
                for axis in range(voxels.axes)
                if (neighbour := ranks.neighbour(at(axis, voxels.axes, way, 0), around)) is not None
            }
            for end, way in ((0, -1), (-1, 1))
        )
        everywhere = ranks.allgather((count, below, above))
        counts = [number for number, _, _ in everywhere]
        # A part's number in all is that in its box and how many there are in boxes before, with a 0 for each box.
        self._first = np.concatenate([[0], np.cumsum(np.array(counts) + 1)])
        edges: list[np.ndarray] = [np.zeros((2 + voxels.axes, 0), np.int64)]
        for rank, (_, _, faces) in enumerate(everywhere):
            for axis, (high, wraps, labels) in faces.items():
                beyond = everywhere[high][1][axis][2]
                round_ = np.zeros((voxels.axes, len(labels)), np.int64)
                round_[axis] = wraps
                ends = labels + self._first[rank], beyond + self._first[high]
                edges.append(np.concatenate([ends, round_]))
        (ones, others), rounds = np.split(np.concatenate(edges, axis=1), [2])
        shape = (self._first[-1],) * 2
        joined = scipy.sparse.coo_array((np.ones(len(ones)), (ones, others)), shape=shape)
        self._whole = connected_components(joined, directed=False)[1]
        self._goes_round = None
        if voxels.periodic:
            self._goes_round = self._whole_rounds(ones, others, rounds.T)

    def _patches(self, axis: int, end: int) -> np.ndarray:
        """Return the parts of the patches at an end of the box, in the order of the patches."""
        layer, beyond = self._layer(axis, end), list(self._own)
        edge = self._own[axis].start - 1 if end == 0 else self._own[axis].stop
        beyond[axis] = slice(edge, edge + 1)
        outside = self._voxels.conducts(tuple(beyond)).squeeze(axis)
        patch, count = scipy.ndimage.label((layer > 0) & outside)
        labels = np.zeros(count + 1, np.int64)
        labels[patch] = layer
        return labels[1:]

    def _whole_rounds(self, ones: np.ndarray, others: np.ndarray, rounds: np.ndarray) -> np.ndarray:
        """Return the axes along which connected parts lead to their repetitions, ``(parts, axes)``.

        ``ones``, ``others``, ``rounds``: which parts of boxes are joined, and how many cells further along each
        axis the second one is, ``(E, axes)``.
        """
        beside: dict[int, list[int]] = {}
        for edge, ends in enumerate(zip(ones.tolist(), others.tolist(), strict=True)):
            for label in ends:
                beside.setdefault(label, []).append(edge)
        cell = np.zeros((len(self._whole), rounds.shape[1]), np.int64)  # of each part, on one way
        visited: set[int] = set()
        for begin in beside:
            if begin in visited:
                continue
            visited.add(begin)
            front = [begin]
            while front:
                label = front.pop()
                for edge in beside[label]:
                    forth = ones[edge] == label
                    beyond = int(others[edge] if forth else ones[edge])
                    if beyond not in visited:
                        visited.add(beyond)
                        cell[beyond] = cell[label] + (rounds[edge] if forth else -rounds[edge])
                        front.append(beyond)
        goes_round = np.zeros((self._whole.max() + 1, rounds.shape[1]), bool)
        another = cell[ones] + rounds != cell[others]
        np.logical_or.at(goes_round, self._whole[ones], another)
        return goes_round

    def _layer(self, axis: int, end: int) -> np.ndarray:
        return self.part_of[at(axis, self.part_of.ndim, end)]

    def along(self, axis: int, where: Slices | None = None) -> np.ndarray:
        """Say through which of this rank's voxels, or some, flow passes along an axis; all ranks together.

        Those that are connected to both faces across it, of a cell to their own repetitions along it.
        """
        mine = self._first[self._ranks.rank]
        reached = self._reached(axis)
        count = self._first[self._ranks.rank + 1] - mine
        connected = reached[self._whole[mine : mine + count]]
        connected[0] = False
        parts = self.part_of if where is None else self.part_of[within(where, self._own)]
        return connected[parts]

    def first_voxels(self, axis: int) -> np.ndarray:
        """Return the first voxel of each connected part in `along`, ``(T, axes)``; all ranks together."""
        shape, own = self._voxels.shape, self._own
        mine, after = self._first[self._ranks.rank : self._ranks.rank + 2]
        everywhere = math.prod(shape)
        of_label = np.full(after - mine, everywhere, np.int64)
        numbers = np.ravel_multi_index(
            np.ix_(*(np.arange(p.start, p.stop) for p in own[1:])), shape[1:]
        ).ravel()[::-1]
        for row in range(len(self.part_of) - 1, -1, -1):  # the last that is written counts
            labels = self.part_of[row].ravel()[::-1]
            of_label[labels] = (own[0].start + row) * math.prod(shape[1:]) + numbers
        of_label[0] = everywhere
        first = np.full(self._whole.max() + 1, everywhere)
        of_all = np.concatenate(self._ranks.allgather(of_label))
        np.minimum.at(first, self._whole, of_all)
        return np.stack(np.unravel_index(first[self._reached(axis)], shape), axis=1)

    def _reached(self, axis: int) -> np.ndarray:
        """Say through which connected parts flow passes along an axis."""
        return (
            self._from_face_to_face(axis) if self._goes_round is None else self._goes_round[:, axis]
        )

    def _from_face_to_face(self, axis: int) -> np.ndarray:
        """Say which connected parts touch both faces across an axis."""
        own, mine = self._own[axis], self._first[self._ranks.rank]
        at_faces = [
            np.unique(self._layer(axis, end)) + mine if touches_face else np.zeros(0, int)
            for end, touches_face in (
                (0, own.start == 0),
                (-1, own.stop == self._voxels.shape[axis]),
            )
        ]
        reached = np.ones(self._whole.max() + 1, bool)
        for parts in zip(*self._ranks.allgather(at_faces), strict=True):
            of_face = np.setdiff1d(np.concatenate(parts), self._first[:-1])
            touches = np.zeros_like(reached)
            touches[self._whole[of_face]] = True
            reached &= touches
        return reached


def with_copies(blocks: LevelBox, own: np.ndarray) -> np.ndarray:
    """Return a mask of a rank's voxels with the copies around them; all ranks together."""
    nodes = blocks.nodes
    vector = nodes.new()
    start: Sequence[int] = [first for first, _ in blocks.owned]
    nodes.take(torch.from_numpy(own.astype(np.float32)), vector, start)
    copies = blocks.exchange(vector)
    if copies is not None:
        copies.refresh(vector)
    box = [last - first + 1 for first, last in nodes.box]
    return nodes.give(vector, torch.empty(box)).numpy() > 0
