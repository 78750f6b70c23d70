"""Restriction and prolongation between the interface of a block and its subdomains.

A batch of subdomains is a pair of slices, ``rows`` and ``columns``, into the subdomains of a
block's region, of all ``n`` problems that are solved at once; steps of 2 select a phase. It has ``B``
subdomains, problem by problem. All is views, copies and sums: nothing is indexed by lists.
"""

from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface

Batch = Slices

# The sides of a perimeter, counter-clockwise: the axis in which the side is constant, its distance
# in lattice lines from the lower-left corner, and whether it is run through backwards.
_SIDES = ((0, 0, False), (1, 2, False), (0, 2, True), (1, 0, True))

_AROUND = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))  # the perimeter if m = 2


def length(part: slice) -> int:
    """Count the elements of a slice with explicit bounds."""
    return len(range(part.start, part.stop, part.step or 1))


def batch_shape(batch: Batch) -> tuple[int, ...]:
    """Return the rows and columns of a batch."""
    return length(batch[0]), length(batch[1])


def batches(part: Batch, largest: int, step: int = 1) -> Iterator[Batch]:
    """Cut every ``step``-th subdomain of a part of the region into batches of at most ``largest``.

    Rows before columns; a part without subdomains gives no batch.
    """
    every = [range(p.start, p.stop, step) for p in part]
    if not all(every):
        return
    across = max(1, min(largest, len(every[1])))
    down = max(1, largest // across)
    for row in range(0, len(every[0]), down):
        rows = every[0][row : row + down]
        for column in range(0, len(every[1]), across):
            columns = every[1][column : column + across]
            yield tuple(slice(part[0], part[-1] + 1, step) for part in (rows, columns))


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
            torch.as_tensor(block.lattice.hats(axis, block.first[axis] + 1, block.last[axis])).to(
                device=device, dtype=dtype
            )
            for axis in (0, 1)
        )

    def restrict(self, interface: Interface, batch: Batch, out: torch.Tensor) -> None:
        """Gather the perimeters of a batch into ``out``, ``(B, P)``."""
        if self.m == 2:
            self._restrict_nodes(interface, batch, out)
            return
        perimeters = out.view(-1, *batch_shape(batch), 4, self.m)
        for side, (axis, distance, backwards) in enumerate(_SIDES):
            lines = interface.lines[axis][..., 1:] if backwards else interface.lines[axis]
            across, along = batch[axis], batch[1 - axis]
            across = slice(across.start + distance, across.stop + distance, across.step)
            values = lines[:, across].unfold(2, self.m, self.s)[:, :, along]
            if axis == 1:
                values = values.transpose(1, 2)
            target = perimeters[..., side, :]
            if not backwards:
                target.copy_(values)
            elif values.is_cuda:
                target.copy_(values.flip(-1))
            else:  # without a copy on the way: torch knows no negative strides, numpy does
                np.copyto(target.numpy(), values.numpy()[..., ::-1])

    def _restrict_nodes(self, interface: Interface, batch: Batch, out: torch.Tensor) -> None:
        """Gather where all nodes are lattice nodes: the eight around each, in one pass."""
        y, x = batch
        nodes = interface.lines[0]
        around = [
            nodes[:, y.start + dy : y.stop + dy : y.step, x.start + dx : x.stop + dx : x.step]
            for dy, dx in _AROUND
        ]
        torch.stack(around, dim=-1, out=out.view(*around[0].shape, len(around)))

    def weigh(self, values: torch.Tensor, batch: Batch) -> None:
        """Multiply centre lines ``(B, 2 (m - 1))`` by the partition of unity, in place."""
        rows, columns = batch
        halves = values.view(-1, *batch_shape(batch), 2, self.m - 1)
        halves[..., 0, :] *= self.hats[1][columns]
        halves[..., 1, :] *= self.hats[0][rows][:, None]

    def weigh_at_edges(self, values: torch.Tensor, batch: Batch) -> None:
        """Correct centre lines weighted as far from the edges of the domain, in place.

        Beside an edge the weights are 1 where elsewhere they are those of the hat.
        """
        halves = values.view(-1, *batch_shape(batch), 2, self.m - 1)
        for axis, part in enumerate(batch):
            low, high = self.block.at_edge(axis)
            count = self.block.region_subdomains[axis]
            across = halves[..., 1 - axis, :]  # the lines that run along this axis
            ends = ((low and part.start == 0, 0), (high and part.stop == count, -1))
            for at, end in ends:
                if at:
                    beside = across.select(axis + 1, end % across.shape[axis + 1])
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
        halves = values.view(-1, *batch_shape(batch), 2, self.m - 1)
        for axis, lines in enumerate(interface.lines):
            source = halves[..., axis, :]
            if axis == 1:
                source = source.transpose(1, 2)
            across, along = batch[axis], batch[1 - axis]
            centres = lines[:, across.start + 1 : across.stop + 1 : across.step, 1:]
            windows = centres.unfold(2, self.m - 1, self.s)[:, :, along]
            apart = 1 if (along.step or 1) > 1 else 2
            for first in range(apart):
                yield windows[:, :, first::apart], source[:, :, first::apart]
