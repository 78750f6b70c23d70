"""Which parts of a block's interface a neighbouring block shares.

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
from collections.abc import Callable

from mosaicdd.lattice.axes import family
from mosaicdd.lattice.block import Block, InterfacePart

Direction = tuple[int, ...]


def directions(axes: int) -> list[Direction]:
    """List the directions to all neighbours; the opposite of each stands as far from the end."""
    return [way for way in itertools.product((-1, 0, 1), repeat=axes) if any(way)]


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
