"""Restriction and prolongation between the interface of a block and its subdomains.

A batch of subdomains is a slice per axis, ``rows`` and ``columns``, into the subdomains of a block's
region, of all ``n`` problems that are solved at once; steps of 2 select a phase. It has ``B``
subdomains, problem by problem. All is views, copies and sums: nothing is indexed by lists.

The coarse nodes of a lattice: every ``s / q``-th node of its lines.

They are the interface of the same lattice on a grid ``s / q`` times coarser, so subdomains gather the
coarse values of their perimeters, ``8 q``, as they gather perimeters. With ``q = 1`` they are the
lattice nodes.

Unknowns, the coarse nodes inside the domain, are numbered in three parts: lattice nodes ``(K_y - 1,
K_x - 1)``; those between on lines constant in y, ``(K_y - 1, K_x, q - 1)``; and on lines constant in x,
``(K_x - 1, K_y, q - 1)``. With ``q = 1``, which serves any number of axes, the first alone has any.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.axes import Slices, others
from mosaicdd.grid.grid import perimeter_faces, perimeter_nodes
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.interface import Interface
from mosaicdd.tensors import Tensors


class Coarsening:
    """Coarse nodes of a lattice.

    ``points``: ``q``, coarse nodes per lattice cell along a line; it must divide ``s``.

    Attributes
    ----------
    step
        Distance of coarse nodes, in cells.
    lattice
        The same lattice on the coarse grid.
    shapes, size
        Of the three parts of the unknowns, and their number.
    """

    def __init__(self, lattice: Lattice, points: int):
        if points < 1 or lattice.spacing % points:
            raise ValueError(
                f"{points} coarse nodes per lattice cell must divide its {lattice.spacing} cells"
            )
        self.points = points
        self.step = lattice.spacing // points
        if points > 1 and len(lattice.cells) != 2:
            raise ValueError(
                f"{points} coarse nodes per lattice cell: more than 1 are for lattices of 2 axes, this "
                f"one has {len(lattice.cells)}"
            )
        cells = tuple(count * points for count in lattice.cells)
        grid = lattice.grid.coarser(cells, self.step)
        coarse = dataclasses.replace(lattice.subdomain, cells=2 * points)
        self.lattice = Lattice(grid, coarse)
        nodes = tuple(count - 1 for count in lattice.cells)
        self.shapes: list[tuple[int, ...]] = [nodes]
        if points > 1:
            y, x = lattice.cells
            self.shapes += [(y - 1, x, points - 1), (x - 1, y, points - 1)]
        self.size = sum(map(math.prod, self.shapes))

    def block(self, block: Block) -> Block:
        """Return a block of the fine lattice on the coarse one."""
        return Block(self.lattice, block.start, block.stop, block.halo)

    def parts(self, unknowns: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return views ``(n, *shape)`` of the parts of unknowns ``(n, size)``."""
        split = unknowns.split([math.prod(shape) for shape in self.shapes], dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(split, self.shapes, strict=True)]

    def touched(self, block: Block) -> np.ndarray:
        """Return the numbers of the unknowns that the sweep of a block's subdomains computes."""
        numbers = self.parts(torch.arange(self.size)[None])
        places = self._touched(block)
        chosen = [part[0][*place].reshape(-1) for part, place in zip(numbers, places, strict=True)]
        return torch.cat(chosen).numpy()

    def _touched(self, block: Block) -> list[tuple[slice, ...]]:
        """Return the touched unknowns in the three parts: cells between blocks are touched by both."""
        nodes = [slice(a - 1, b - 1) for a, b in zip(block.start, block.stop, strict=True)]
        cells = [slice(a - 1, b) for a, b in zip(block.start, block.stop, strict=True)]
        if self.points == 1:
            return [tuple(nodes)]
        return [tuple(nodes), (nodes[0], cells[1]), (nodes[1], cells[0])]

    def sample(
        self, v: Interface, out: torch.Tensor, *, minus: Interface | None = None, alone: bool
    ) -> None:
        """Write values at the touched coarse nodes of a block, ``(n, touched)``.

        Parameters
        ----------
        v
            On the fine lattice.
        minus
            Subtracted at the nodes that the block owns.
        alone
            Whether, at nodes that the block touches and does not own, ``v`` holds what its own
            subdomains contribute; otherwise zeros are written there.
        """
        block, q, s = v.block, self.points, v.block.lattice.spacing
        nodes = v.nodes() if minus is None else v.nodes() - minus.nodes()
        count = nodes[0].numel()
        out[:, :count] = nodes.flatten(1)
        if q == 1:
            return
        for axis in (0, 1):
            along = 1 - axis
            lines = slice(
                block.start[axis] - block.first[axis], block.stop[axis] - block.first[axis]
            )
            low = block.start[along] - 1 - block.first[along]
            cells = slice(low, block.stop[along] - block.first[along])
            owned = block.owned_cells(along).start - low  # cells before are another block's

            def between(
                w: Interface, axis: int = axis, lines: slice = lines, cells: slice = cells
            ) -> torch.Tensor:
                inner = w.lines[axis][:, lines, :-1].unflatten(2, (-1, s))
                return inner[:, :, cells, self.step :: self.step]

            values = between(v)
            part = out[:, count : count + values[0].numel()].view(values.shape)
            part.copy_(values)
            if minus is not None:
                part[:, :, owned:] -= between(minus)[:, :, owned:]
            if not alone:
                part[:, :, :owned].zero_()
            count += values[0].numel()

    def spread(self, unknowns: torch.Tensor, coarse: Interface) -> None:
        """Write unknowns ``(n, size)`` to the interface of a block of the coarse lattice."""
        block, q = coarse.block, self.points
        ends = list(zip(block.first, block.last, block.lattice.subdomains, strict=True))
        here = [slice(max(a, 1) - a, min(b, n) + 1 - a) for a, b, n in ends]  # among its lines
        whole = [slice(max(a, 1) - 1, min(b, n)) for a, b, n in ends]  # among the inner lines
        nodes, *between = self.parts(unknowns)
        inner = nodes[:, *whole]
        for axis, lines in enumerate(coarse.lines):
            places = (slice(p.start * q, (p.stop - 1) * q + 1, q) for p in here)
            part = tuple(here[axis] if axis == other else p for other, p in enumerate(places))
            coarse.in_order(axis)[:, *part] = inner
            if q > 1:
                along = 1 - axis
                cells = slice(block.first[along], block.last[along])
                target = lines[:, here[axis], :-1].unflatten(2, (-1, q))
                target[..., 1:] = between[axis][:, whole[axis], cells]


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
    """Nodes of each subdomain on line 0, 1 or 2 of the lattice lines constant in an axis, as views.

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
        """Return the nodes of a batch of a shape ``(n, *batch)``, a view ``(n, *batch, *nodes)``.

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
    """Return the strides of a contiguous array, in values."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by, part.step)
