"""A partition: which nodes of a grid each rank of a process grid owns.

Nodes are shared out in boxes, rectangles of nodes that a rank gets whole: single nodes, or those around the centres of
subdomains. Every node has one owner. Along a periodic axis the last node of the grid is a copy of the first; the last
rank owns it, too. Without ranks there is one part, the whole grid.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mosaicdd.axes import Slices
from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.layouts.layout import Layout, Shard
from mosaicdd.parallel.partition import Cuts, Dims, require_fitting, share
from mosaicdd.parallel.ranks import Ranks

Range = tuple[int, int]
"""The first and the last of some nodes."""


@dataclass(frozen=True)
class SampleNodes:
    """Nodes of a grid at which an array has values.

    Parameters
    ----------
    first
        The first one per axis; it may be beyond the grid.
    step
        Every so many nodes.
    counts
        How many per axis.
    """

    first: tuple[int, ...]
    step: int
    counts: tuple[int, ...]

    @classmethod
    def of_grid(cls, grid: Grid, periodic: Sequence[bool], step: int) -> "SampleNodes":
        """Return every so many nodes of a grid from its first one on, without copies."""
        ends = zip(grid.shape, periodic, strict=True)
        counts = tuple((cells - wraps) // step + 1 for cells, wraps in ends)
        return cls((0,) * len(grid.shape), step, counts)


@dataclass(frozen=True)
class NodeBoxes:
    """How the nodes of a grid are cut into boxes.

    Parameters
    ----------
    periodic
        Along which axes the last node is a copy of the first.
    edges
        Per axis, the first node of each box, ascending from 0, and the number of nodes.
    """

    grid: Grid
    periodic: tuple[bool, ...]
    edges: tuple[tuple[int, ...], ...]

    @classmethod
    def of_size(cls, grid: Grid, periodic: Sequence[bool], size: int = 1) -> "NodeBoxes":
        """Return boxes of so many nodes along each axis from node 0 on, the last ones larger where it does not divide."""
        edges = []
        for cells in grid.shape:
            count = max(1, cells // size)
            edges.append((*range(0, size * count, size), cells + 1))
        return cls(grid, tuple(periodic), tuple(edges))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Boxes per axis."""
        return tuple([len(edges) - 1 for edges in self.edges])

    @property
    def rounds(self) -> tuple[int | None, ...]:
        """After how many nodes each axis repeats; None where it does not."""
        axes = zip(self.grid.shape, self.periodic, strict=True)
        return tuple(cells if wraps else None for cells, wraps in axes)

    def along(self, dims: Dims, cuts: Cuts | None = None) -> list[list[slice]]:
        """Return per axis the nodes of the first ranks along it, copies included.

        ``cuts``: of the boxes; by default even ones.

        `ValueError` if an axis has fewer boxes than ranks, or not those that were cut.
        """
        if cuts is None:
            require_fitting(dims, self.counts)
            ends = [
                [share(count, dim, c) for c in range(dim)]
                for count, dim in zip(self.counts, dims, strict=True)
            ]
        elif cuts.counts != self.counts:
            raise ValueError(f"{cuts.counts} boxes were cut, not {self.counts}")
        else:
            ends = [list(itertools.pairwise(axis)) for axis in cuts.axes]
        return [
            [slice(edges[a], edges[b]) for a, b in along]
            for edges, along in zip(self.edges, ends, strict=True)
        ]

    def without_copies(self, along: Sequence[Sequence[slice]]) -> list[list[slice]]:
        """Return such nodes without those that are copies along periodic axes."""
        axes = zip(along, self.grid.nodes, self.periodic, strict=True)
        return [[slice(p.start, min(p.stop, n - wraps)) for p in parts] for parts, n, wraps in axes]

    def unknown_ranges(
        self, along: Sequence[Sequence[slice]], *, values_given: bool
    ) -> list[list[Range]]:
        """Return the first and the last unknown among such nodes.

        Along a periodic axis there is an even number of unknowns: where that of the nodes is odd, another one follows.

        ``values_given``: whether the nodes on the edge of the grid are no unknowns.
        """
        ranges, edge = [], int(values_given)
        axes = zip(self.without_copies(along), self.grid.shape, self.rounds, strict=True)
        for parts, cells, count in axes:
            ends = [(max(p.start, edge), min(p.stop - 1, cells - edge)) for p in parts]
            if count is not None:
                ends[-1] = ends[-1][0], count + count % 2 - 1
            ranges.append(ends)
        return ranges


class Partition:
    """The nodes of a grid over the ranks.

    Parameters
    ----------
    boxes
        What ranks get whole.
    ranks
        On dims that fit the boxes (`Ranks.fitted`).

    Attributes
    ----------
    along, unknowns_along
        Per axis, the nodes of the first ranks along it, with and without copies.
    owned, unknowns
        Nodes of this rank, with and without copies along periodic axes.

    Raises
    ------
    ValueError
        If an axis has fewer boxes than ranks.
    """

    def __init__(self, boxes: NodeBoxes, ranks: Ranks):
        self.boxes, self.ranks = boxes, ranks
        self.grid, self.periodic, self.rounds = boxes.grid, boxes.periodic, boxes.rounds
        self.along = boxes.along(ranks.dims, ranks.cuts)
        self.unknowns_along = boxes.without_copies(self.along)
        self.owned, self.unknowns = (
            tuple(parts[c] for parts, c in zip(axes, ranks.coords, strict=True))
            for axes in (self.along, self.unknowns_along)
        )

    @classmethod
    def alone(cls, grid: Grid, periodic: Sequence[bool]) -> "Partition":
        """Return that of this process alone."""
        boxes = NodeBoxes.of_size(grid, periodic)
        return cls(boxes, Ranks.alone().fitted(boxes.counts))

    @property
    def layout(self) -> Layout:
        """How a whole field lies over the ranks."""
        sizes = [tuple(p.stop - p.start for p in parts) for parts in self.along]
        shards = tuple(Shard(axis, counts) for axis, counts in enumerate(sizes))
        return Layout(self.grid.nodes, self.ranks.dims, shards)

    def samples(self, step: int) -> Slices:
        """Return which of every so many nodes this rank owns, counted among these from node 0 on."""
        return tuple(slice(-(-p.start // step), -(-p.stop // step)) for p in self.unknowns)

    def region(self, *, values_given: bool) -> "Region":
        """Return the nodes whose equations this rank has; see `Region`."""
        nodes, ends = [], []
        axes = zip(self.unknowns, self.grid.nodes, self.periodic, strict=True)
        for part, count, wraps in axes:
            with_values = values_given and not wraps
            low, high = part.start - 1, part.stop + 1
            nodes.append(slice(max(low, 0), min(high, count)) if with_values else slice(low, high))
            ends.append((0, count - 1) if with_values else None)
        return Region(self.grid, tuple(nodes), self.unknowns, tuple(ends), self.periodic)


@dataclass(frozen=True)
class Region:
    """The nodes that a rank owns, and one more all around.

    Parameters
    ----------
    nodes
        Of the grid. Where values on its edge are given it ends there; else nodes may be beyond it, where there is
        nothing, or along a periodic axis the grid again.
    owned
        Those that this rank owns, without copies.
    ends
        Per axis, the first and the last node of the grid where values are given there, else None.
    periodic
        Along which axes the grid is periodic.
    """

    grid: Grid
    nodes: Slices
    owned: Slices
    ends: tuple[Range | None, ...]
    periodic: tuple[bool, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Nodes per axis."""
        return tuple(p.stop - p.start for p in self.nodes)

    @property
    def origin(self) -> tuple[int, ...]:
        """The first node per axis."""
        return tuple(p.start for p in self.nodes)

    def at_edge(self, axis: int) -> tuple[bool, bool]:
        """Say whether the low and the high end of an axis have given values."""
        ends, part = self.ends[axis], self.nodes[axis]
        if ends is None:
            return False, False
        return part.start == ends[0], part.stop - 1 == ends[1]

    @cached_property
    def inner(self) -> Slices:
        """The owned nodes without those with given values on the edge of the grid, in the region."""
        inner = []
        for axis, (own, part) in enumerate(zip(self.owned, self.nodes, strict=True)):
            low, high = self.at_edge(axis)
            start, stop = own.start - part.start, own.stop - part.start
            size = part.stop - part.start
            inner.append(slice(max(start, int(low)), min(stop, size - int(high))))
        return tuple(inner)

    def flat_places(self, nodes: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the indices per axis in the whole grid of nodes that are flat in the region."""
        along = np.unravel_index(nodes, self.shape)
        return tuple(n + first for n, first in zip(along, self.origin, strict=True))
