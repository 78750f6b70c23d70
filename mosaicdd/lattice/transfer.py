"""Restriction and prolongation between the interface of a block and its subdomains.

A batch of subdomains is a slice per axis, ``rows`` and ``columns``, into the subdomains of a block's
region, of all ``n`` problems that are solved at once; steps of 2 select a phase. It has ``B``
subdomains, problem by problem. All is views, copies and sums: nothing is indexed by lists.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, others
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.perimeter import perimeter_faces, perimeter_nodes

Batch = Slices


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

    Parameters
    ----------
    block
        Whose interface is worked on.
    """

    def __init__(self, block: Block, *, device: torch.device, dtype: torch.dtype):
        self.block = block
        self.m = block.lattice.subdomain.cells
        self.s = block.lattice.spacing
        self._hat = torch.as_tensor(block.lattice.hat).to(device=device, dtype=dtype)
        self.hats = tuple(  # per axis: (subdomains, m - 1)
            torch.as_tensor(block.lattice.hats(axis, first + 1, last)).to(
                device=device, dtype=dtype
            )
            for axis, (first, last) in enumerate(zip(block.first, block.last, strict=True))
        )
        axes = len(block.cells)
        self._faces = perimeter_faces((self.m,) * axes)
        self._sizes = [math.prod(count for _, count in face.spans) for face in self._faces]
        self._around = perimeter_nodes((2,) * axes).tolist()  # the perimeter if m = 2
        self._others = [others(axis, axes) for axis in range(axes)]

    def restrict(self, interface: Interface, batch: Batch, out: torch.Tensor) -> None:
        """Gather the perimeters of a batch into ``out``, ``(B, P)``."""
        if self.m == 2:
            self._restrict_nodes(interface, batch, out)
            return
        perimeters = out.view(-1, *batch_shape(batch), out.shape[1]).split(self._sizes, -1)
        for target, (axis, end, spans, backwards) in zip(perimeters, self._faces, strict=True):
            values = interface.lines[axis][:, _moved(batch[axis], 2 * end)]
            for place, (other, (first, count)) in enumerate(
                zip(self._others[axis], spans, strict=True), start=2
            ):
                nodes = values.narrow(place, first, values.shape[place] - first)
                values = _part(nodes.unfold(place, count, self.s), place, batch[other])
            values = values.movedim(1, 1 + axis)
            target = target.view(values.shape)
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
                lines *= hats.view(shape)

    def weigh_at_edges(self, values: torch.Tensor, batch: Batch) -> None:
        """Correct centre lines weighted as far from the edges of the domain, in place.

        Beside an edge the weights are 1 where elsewhere they are those of the hat.
        """
        centres = self._centres(values, batch)
        for axis, part in enumerate(batch):
            low, high = self.block.at_edge(axis)
            count = self.block.region_subdomains[axis]
            ends = ((low and part.start == 0, 0), (high and part.stop == count, -1))
            for across in self._others[axis]:  # the lines that run along this axis
                place = self._others[across].index(axis) - len(self._others[across])
                for at, end in ends:
                    if at:
                        beside = centres[across].select(axis + 1, end).movedim(place, -1)
                        outer = slice(0, self.s - 1) if end == 0 else slice(self.s, None)
                        beside[..., outer] /= self._hat[outer]

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
            windows = interface.lines[axis][:, _moved(batch[axis], 1)]
            source = source.movedim(1 + axis, 1)
            apart = []
            for place, other in enumerate(self._others[axis], start=2):
                nodes = windows.narrow(place, 1, windows.shape[place] - 1)
                windows = _part(nodes.unfold(place, self.m - 1, self.s), place, batch[other])
                apart.append(1 if (batch[other].step or 1) > 1 else 2)
            for first in itertools.product(*map(range, apart)):
                every = map(slice, first, [None] * len(first), apart)
                chosen = (slice(None), slice(None), *every)
                yield windows[chosen], source[chosen]

    def _centres(self, values: torch.Tensor, batch: Batch) -> Sequence[torch.Tensor]:
        """Return views of centre lines by the axis that they are constant in, ``(n, *batch, m - 1)``."""
        along = [self.m - 1] * (len(batch) - 1)
        lines = values.view(-1, *batch_shape(batch), len(batch), *along)
        return lines.unbind(1 + len(batch))


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by, part.step)


def _part(values: torch.Tensor, axis: int, part: slice) -> torch.Tensor:
    """Return the part of an array along one axis."""
    return values[(slice(None),) * axis + (part,)]
