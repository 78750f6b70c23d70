"""The interface: the values that the iteration works on, on lattice lines only.

Of a field of ``N^2`` values it holds ``O(N^2 / s)``: a family of lines for each axis, ``lines[0]``
constant in y, of shape ``(n, lines_y, nx + 1)``, and ``lines[1]`` constant in x, of shape ``(n,
lines_x, ny + 1)``, for ``n`` problems on the same lattice; all in one flat tensor, so that a Krylov
method can treat it as a vector. A lattice node stands in all families, with the same value. In space
the families are planes, ``lines[1]`` of shape ``(n, lines_y, nz + 1, nx + 1)``.

Which parts of a block's interface a neighbouring block shares.

Directions have an entry -1, 0 or 1 per axis, not all 0. Sent is what the owned subdomains computed within
the neighbour's region; the neighbour adds it to its own. With a halo of one lattice cell, blocks
share one cell, so a message holds one line and the ends, one cell long, of the lines across it: ``2
N`` values for a block side of ``N`` cells. Each cell more adds as much again.

```
   block A owns the centre lines ..a, block B the centre lines b.. ; regions end at the others' line

   ---+------a------b           A sends to B: its line a, and its part of the lines a--b
             a------b------+--- B sends to A: its line b, and its part of the lines a--b
```
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.axes import Slices, family, others
from mosaicdd.parallel.halo import Direction
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Block, InterfacePart
from mosaicdd.tensors import Tensors


def interface_sent(block: Block, direction: Direction) -> list[InterfacePart]:
    """List the parts of the interface to send to the neighbour in a direction."""
    s, k = block.lattice.spacing, block.halo

    def lines(low: int, high: int) -> dict[int, slice]:
        return {-1: slice(low, low + k), 0: slice(low, high), 1: slice(high - k, high)}

    def nodes(low: int, high: int) -> dict[int, slice]:
        between = slice((low - 1) * s + 1, high * s)
        below = slice(between.start, (low - 1 + k) * s + 1)
        return {-1: below, 0: between, 1: slice((high - k) * s, between.stop)}

    return _parts(block, direction, lines, nodes)


def interface_received(block: Block, direction: Direction) -> list[InterfacePart]:
    """List the parts of the interface to which the neighbour in a direction contributes."""
    s, k = block.lattice.spacing, block.halo

    def lines(low: int, high: int) -> dict[int, slice]:
        return {-1: slice(low - k, low), 0: slice(low, high), 1: slice(high, high + k)}

    def nodes(low: int, high: int) -> dict[int, slice]:
        below = slice((low - k) * s, low * s)
        above = slice((high - 1) * s + 1, (high - 1 + k) * s + 1)
        return {-1: below, 0: slice((low - 1) * s + 1, high * s), 1: above}

    return _parts(block, direction, lines, nodes)


def _parts(
    block: Block, direction: Direction, lines: Callable, nodes: Callable
) -> list[InterfacePart]:
    """List a part of each family of lines.

    ``lines`` and ``nodes``: from the owned centre lines, ``low <= i < high`` within the region: which lines, and
    which nodes along lines, belong to a neighbour below (-1), beside (0) and above (1).
    """
    ends = [(a - c, b - c) for a, b, c in zip(block.start, block.stop, block.first, strict=True)]
    across = [lines(*end)[way] for end, way in zip(ends, direction, strict=True)]
    along = [nodes(*end)[way] for end, way in zip(ends, direction, strict=True)]
    families = [family(axis, len(ends)) for axis in range(len(ends))]
    return [
        (axis, (across[axis], *(along[k] for k in along_axes))) for axis, *along_axes in families
    ]


class Interface:
    """The interface values of a block.

    Parameters
    ----------
    problems
        Problems that are solved at once.
    flat
        Contiguous storage, by default zeros; lines are views of it.

    Attributes
    ----------
    rings
        How many rings of subdomains, the owned ones the first, have right values on their perimeters: all in the
        region, fewer after iterations without an exchange, 0 while contributions of other blocks travel.
    """

    def __init__(
        self,
        block: Block,
        *,
        problems: int = 1,
        flat: torch.Tensor | None = None,
        **tensors: Unpack[Tensors],
    ):
        shapes = [block.line_shape(axis) for axis in range(len(block.cells))]
        sizes = list(map(math.prod, shapes))
        if flat is None:
            flat = torch.zeros(problems * sum(sizes), **tensors)
        self.block = block
        self.problems = problems
        self.flat = flat
        self.rings = block.halo
        every, ends = flat.view(problems, sum(sizes)), itertools.accumulate(sizes)
        self.lines = tuple(
            every[:, end - size : end].view(problems, *shape)
            for end, size, shape in zip(ends, sizes, shapes, strict=True)
        )

    @property
    def tensors(self) -> Tensors:
        """Device and type of the values."""
        return {"device": self.flat.device, "dtype": self.flat.dtype}

    def require(self, rings: int = 1) -> None:
        """Raise `RuntimeError` unless so many rings of subdomains have right values on their perimeters."""
        if self.rings < rings:
            raise RuntimeError(
                f"values around {rings} rings of subdomains are read, and {self.rings} rings are right: "
                "finish the iteration first"
            )

    def like(self, flat: torch.Tensor | None = None) -> "Interface":
        """Return another interface of the same block and problems, by default of zeros."""
        return Interface(self.block, problems=self.problems, flat=flat, **self.tensors)

    def of_problem(self, number: int) -> "Interface":
        """Return the values of one of the problems, a view."""
        flat = self.flat.view(self.problems, -1)[number]
        single = Interface(self.block, flat=flat, **self.tensors)
        single.rings = self.rings
        return single

    def become(self, other: "Interface") -> None:
        """Take over the storage of another interface of the same block and problems."""
        self.flat, self.lines, self.rings = other.flat, other.lines, other.rings

    def part(self, block: Block) -> "Interface":
        """Return a copy of the values in the region of a smaller block; they must be complete."""
        self.require(self.block.halo)
        part = Interface(block, problems=self.problems, **self.tensors)
        for axis, (own, lines) in enumerate(zip(part.lines, self.lines, strict=True)):
            starts = [block.first[axis] - self.block.first[axis]]
            for other in others(axis, len(block.cells)):
                starts.append(block.origin[other] - self.block.origin[other])
            counts = zip(starts, own.shape[1:], strict=True)
            own.copy_(lines[:, *(slice(start, start + count) for start, count in counts)])
        return part

    def like_boundary(self) -> "Interface":
        """Return another interface with the values on the edge of the domain, zero elsewhere."""
        other = self.like()
        other.copy_boundary(self)
        return other

    def copy_boundary(self, other: "Interface") -> None:
        """Take the values on the edge of the domain from another interface."""
        for axis, part in self.block.boundary_parts():
            self.lines[axis][:, *part] = other.lines[axis][:, *part]

    def impose(self, boundaries: Sequence[Boundary]) -> None:
        """Write the boundary data of each problem to its values on the edge of the domain."""
        block = self.block
        for axis in range(len(self.lines)):
            lines, nodes = self.in_order(axis), list(block.nodes)
            nodes[axis] = slice(nodes[axis].start, nodes[axis].stop, block.lattice.spacing)
            for edge in family(axis, len(nodes)):
                along = tuple(nodes[other] for other in others(edge, len(nodes)))
                for end, at in enumerate(block.at_edge(edge)):
                    if at:
                        there = lines.select(1 + edge, -end)
                        for own, boundary in zip(there, boundaries, strict=True):
                            own.copy_(torch.from_numpy(boundary.edges[edge, end][along]))

    def in_order(self, axis: int) -> torch.Tensor:
        """Return the lines constant in an axis with the axes in the order of fields, a view.

        Of fields ``(n, rows, columns)`` in the plane: ``(n, lines_y, columns)`` and ``(n, rows, lines_x)``.
        """
        return self.lines[axis].movedim(1, 1 + axis)

    def take(self, fields: Iterable[torch.Tensor]) -> None:
        """Take the values on the lines from those at all nodes of the region, ``(rows, columns)`` of each problem."""
        s = self.block.lattice.spacing
        for number, field in enumerate(fields):
            for axis, lines in enumerate(self.lines):
                lines[number].copy_(_every(field[None], axis, s)[0].movedim(axis, 0))

    def times(self, factors: np.ndarray) -> "Interface":
        """Return the values of each problem multiplied, ``(n,)``; these, if all factors are 1."""
        if (factors == 1.0).all():
            return self
        every = self.flat.view(self.problems, -1)
        return self.like((every * torch.from_numpy(factors).to(every)[:, None]).view_as(self.flat))

    def owned_parts(self) -> list[torch.Tensor]:
        """Return views of the values that this block owns: every node of the interface once.

        Over all blocks each interface node inside the domain is owned once. Of the copies of a lattice
        node, the one in the first family counts, the lines constant in y, so the lines constant in x
        come as ``(n, lines, lattice cells, s - 1)``.
        """
        self.require()
        return [self._once(axis, self.block.owned(axis)) for axis in range(len(self.lines))]

    def settled_parts(self) -> list[torch.Tensor]:
        """Return those of `owned_parts` to which no other block contributes: right while contributions travel."""
        return [self._once(axis, self.block.settled(axis)) for axis in range(len(self.lines))]

    def late_parts(self) -> list[torch.Tensor]:
        """Return the others of `owned_parts`."""
        self.require()
        axes = range(len(self.lines))
        return [self._once(axis, part) for axis in axes for part in self.block.late(axis)]

    def _once(self, axis: int, place: Slices) -> torch.Tensor:
        """Return a view of lines constant in an axis, without lattice nodes that earlier families hold."""
        s = self.block.lattice.spacing
        part = self.lines[axis][:, place[0]]
        for dim, (other, nodes) in enumerate(
            zip(others(axis, len(self.lines)), place[1:], strict=True), start=2
        ):
            if other < axis:
                between = part.narrow(dim, 1, part.shape[dim] - 1).unfold(dim, s - 1, s)
                first, last = nodes.start // s, -(-(nodes.stop - 1) // s)  # lattice cells
                part = between.narrow(dim, first, last - first)
            else:
                part = part.narrow(dim, nodes.start, nodes.stop - nodes.start)
        return part

    def ownership(self) -> "Interface":
        """Return ones at the values that this block owns and zeros elsewhere."""
        owned = self.like()
        for part in owned.owned_parts():
            part.fill_(1.0)
        return owned

    def nodes(self) -> torch.Tensor:
        """Return the values at the owned lattice nodes, a view ``(n, *block.subdomains)``."""
        return self.lines[0][:, *self.block.owned_lattice_nodes()]

    def match_copies(self) -> None:
        """Give all copies of each lattice node the value of the first family."""
        s = self.block.lattice.spacing
        for axis in range(1, len(self.lines)):
            for before in range(axis):
                counts = _every(self.in_order(before), axis, s)
                _every(self.in_order(axis), before, s).copy_(counts)


def _every(values: torch.Tensor, axis: int, spacing: int) -> torch.Tensor:
    """Return values ``(n, ..)`` at every so many nodes along an axis."""
    return values[(slice(None),) * (1 + axis) + (slice(None, None, spacing),)]
