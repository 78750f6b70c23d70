"""Restriction and prolongation between the interface of a block and its subdomains.

A batch of subdomains is a slice per axis, ``rows`` and ``columns``, into the subdomains of a block's
region, of all ``n`` problems that are solved at once; steps of 2 select a phase. It has ``B``
subdomains, problem by problem. All is views, copies and sums: nothing is indexed by lists.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, others
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.perimeter import perimeter_faces, perimeter_nodes
from mosaicdd.tensors import Tensors

Batch = Slices

_ALL = (slice(None),)
_APART = (slice(0, None, 2), slice(1, None, 2))  # neighbours overlap, their neighbours do not


def length(part: slice) -> int:
    """Count the elements of a slice with explicit bounds."""
    return len(range(part.start, part.stop, part.step or 1))


def batch_shape(batch: Batch) -> tuple[int, ...]:
    """Return the rows and columns of a batch."""
    return tuple(map(length, batch))


def batches(part: Batch, largest: int, step: int = 1) -> Iterator[Batch]:
    """Cut every ``step``-th subdomain of a part of the region into batches of at most ``largest``.

    Rows before columns; a part without subdomains gives no batch.
    """
    every = [range(p.start, p.stop, step) for p in part]
    if not all(every):
        return
    runs = []
    for along in reversed(every):
        most = max(1, min(largest, len(along)))
        largest //= most
        runs.append([along[first : first + most] for first in range(0, len(along), most)])
    for members in itertools.product(*reversed(runs)):
        yield tuple(slice(along[0], along[-1] + 1, step) for along in members)


class Transfer:
    """Gather perimeters from an interface and put centre lines back.

    ``block``: whose interface is worked on.
    """

    def __init__(self, block: Block, **tensors: Unpack[Tensors]):
        self.block = block
        self.m = block.lattice.subdomain.cells
        self.s = block.lattice.spacing
        self._hat = torch.as_tensor(block.lattice.hat).to(**tensors)
        self.hats = tuple(  # per axis: (subdomains, m - 1)
            torch.as_tensor(block.lattice.hats(axis, first + 1, last)).to(**tensors)
            for axis, (first, last) in enumerate(zip(block.first, block.last, strict=True))
        )
        axes = len(block.cells)
        self._faces, first = [], 0
        for face in perimeter_faces((self.m,) * axes):
            windows = _Windows(block, face.axis, 2 * face.end, face.spans)
            self._faces.append((windows, first, face.backwards))
            first += math.prod(windows.counts)
        along = [(1, self.m - 1)] * (axes - 1)
        self._middle = [_Windows(block, axis, 1, along) for axis in range(axes)]
        self._around = perimeter_nodes((2,) * axes).tolist()  # the perimeter if m = 2
        self._others = [others(axis, axes) for axis in range(axes)]

    def restrict(self, interface: Interface, batch: Batch, out: torch.Tensor) -> None:
        """Gather the perimeters of a batch into ``out``, ``(B, P)``; they must be right."""
        interface.require(self.block.rings_around(batch))
        if self.m == 2:
            self._restrict_nodes(interface, batch, out)
            return
        shape = (interface.problems, *batch_shape(batch))
        begin, outer = out.storage_offset(), out.view(*shape, -1).stride()[:-1]
        for windows, first, backwards in self._faces:
            values = windows.of(interface, batch, shape)
            target = torch.as_strided(out, values.shape, (*outer, *windows.inner), begin + first)
            if not backwards:
                target.copy_(values)
            elif values.is_cuda:
                target.copy_(values.flip(-1))
            else:  # without a copy on the way: torch knows no negative strides, numpy does
                np.copyto(target.numpy(), values.numpy()[..., ::-1])

    def _restrict_nodes(self, interface: Interface, batch: Batch, out: torch.Tensor) -> None:
        """Gather where all nodes are lattice nodes: those around each, in one pass."""
        nodes = interface.lines[0]
        around = [nodes[:, *map(_moved, batch, step)] for step in self._around]
        torch.stack(around, dim=-1, out=out.view(*around[0].shape, len(around)))

    def weigh(self, values: torch.Tensor, batch: Batch) -> None:
        """Multiply centre lines ``(B, 2 (m - 1))`` by the partition of unity, in place."""
        for axis, lines in enumerate(self._centres(values, batch)):
            for place, other in enumerate(self._others[axis], start=len(batch)):
                hats = self.hats[other][batch[other]]
                shape = [1] * (lines.dim() - 1)
                shape[other], shape[place] = hats.shape
                lines.mul_(hats.view(shape))

    def weigh_at_edges(self, values: torch.Tensor, batch: Batch) -> None:
        """Correct centre lines weighted as far from the edges of the domain, in place.

        Beside an edge the weights are 1 where elsewhere they are those of the hat.
        """
        centres = self._centres(values, batch)
        for axis, part in enumerate(batch):
            low, high = self.block.at_edge(axis)
            low = low and part.start == 0
            high = high and part.stop == self.block.region_subdomains[axis]
            for across in self._others[axis]:  # the lines that run along this axis
                place = self._others[across].index(axis) - len(self._others[across])
                lines = centres[across].movedim(place, -1)
                if low:
                    lines.select(1 + axis, 0)[..., : self.s - 1].div_(self._hat[: self.s - 1])
                if high:
                    lines.select(1 + axis, -1)[..., self.s :].div_(self._hat[self.s :])

    def add(
        self, values: torch.Tensor, batch: Batch, interface: Interface, factor: float = 1.0
    ) -> None:
        """Add centre lines ``(B, 2 (m - 1))`` of a batch to the interface; they may overlap."""
        for target, source in self._targets(values, batch, interface):
            target.add_(source, alpha=factor)

    def take(self, interface: Interface, batch: Batch, out: torch.Tensor) -> None:
        """Copy the centre lines of a batch to ``out``, ``(B, 2 (m - 1))``."""
        for lines, values in self._targets(out, batch, interface):
            values.copy_(lines)

    def put(self, values: torch.Tensor, batch: Batch, interface: Interface) -> None:
        """Overwrite the centre lines of a batch whose subdomains do not overlap."""
        for target, source in self._targets(values, batch, interface):
            target.copy_(source)

    def _targets(
        self, values: torch.Tensor, batch: Batch, interface: Interface
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Pair views of the interface that do not overlap with the values that belong there."""
        for axis, source in enumerate(self._centres(values, batch)):
            windows = self._middle[axis].of(interface, batch, source.shape[: 1 + len(batch)])
            apart = [
                _ALL if other == axis or (part.step or 1) > 1 else _APART
                for other, part in enumerate(batch)
            ]
            for members in itertools.product(*apart):
                yield windows[:, *members], source[:, *members]

    def _centres(self, values: torch.Tensor, batch: Batch) -> Sequence[torch.Tensor]:
        """Return views of centre lines by the axis that they are constant in, ``(n, *batch, m - 1)``."""
        along = [self.m - 1] * (len(batch) - 1)
        lines = values.view(-1, *batch_shape(batch), len(batch), *along)
        return [lines.select(1 + len(batch), axis) for axis in range(len(batch))]


class _Windows:
    """The same nodes of each subdomain, on its line 0, 1 or 2 of those that are constant in an axis.

    ``spans``: along each other axis, the first node and the number of nodes.
    """

    def __init__(self, block: Block, axis: int, line: int, spans: Sequence[tuple[int, int]]):
        self._axis = axis
        self._strides = across, *along = _strides(block.line_shape(axis))
        self._first = line * across
        self._first += sum(first * stride for (first, _), stride in zip(spans, along, strict=True))
        self._steps = [block.lattice.spacing * stride for stride in along]
        self._steps.insert(axis, across)
        self.counts = [count for _, count in spans]
        self.inner = _strides(self.counts)

    def of(self, interface: Interface, batch: Batch, shape: Sequence[int]) -> torch.Tensor:
        """Return those of a batch of a shape ``(n, *batch)``, a view ``(n, *batch, *nodes)``.

        Made in one step: slices of windows of slices take a fifth of the time that it takes to copy the values.

        `ValueError` if the lines of the interface lie otherwise.
        """
        lines = interface.lines[self._axis]
        if lines.stride()[1:] != self._strides:
            raise ValueError("the interface is that of another block")
        first, between = lines.storage_offset() + self._first, []
        for part, step in zip(batch, self._steps, strict=True):
            first += part.start * step
            between.append(step * (part.step or 1))
        strides = (lines.stride(0), *between, *self._strides[1:])
        return torch.as_strided(lines, (*shape, *self.counts), strides, first)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return those of a contiguous array, in values."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by, part.step)
