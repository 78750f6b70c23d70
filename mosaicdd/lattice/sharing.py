"""Which parts of a block's interface a neighbouring block shares.

Directions are ``(dy, dx)`` with entries -1, 0, 1. Sent is what the owned subdomains computed within
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

from mosaicdd.lattice.block import Block, Piece

Direction = tuple[int, ...]

DIRECTIONS: tuple[Direction, ...] = tuple(
    (dy, dx) for dy, dx in itertools.product((-1, 0, 1), repeat=2) if (dy, dx) != (0, 0)
)


def interface_sent(block: Block, direction: Direction) -> list[Piece]:
    """List the parts of the interface to send to the neighbour in a direction."""
    s, k = block.lattice.spacing, block.halo

    def lines(low: int, high: int) -> dict[int, slice]:
        return {-1: slice(low, low + k), 0: slice(low, high), 1: slice(high - k, high)}

    def nodes(low: int, high: int) -> dict[int, slice]:
        between = slice((low - 1) * s + 1, high * s)
        below = slice(between.start, (low - 1 + k) * s + 1)
        return {-1: below, 0: between, 1: slice((high - k) * s, between.stop)}

    return _pieces(block, direction, lines, nodes)


def interface_received(block: Block, direction: Direction) -> list[Piece]:
    """List the parts of the interface to which the neighbour in a direction contributes."""
    s, k = block.lattice.spacing, block.halo

    def lines(low: int, high: int) -> dict[int, slice]:
        return {-1: slice(low - k, low), 0: slice(low, high), 1: slice(high, high + k)}

    def nodes(low: int, high: int) -> dict[int, slice]:
        below = slice((low - k) * s, low * s)
        above = slice((high - 1) * s + 1, (high - 1 + k) * s + 1)
        return {-1: below, 0: slice((low - 1) * s + 1, high * s), 1: above}

    return _pieces(block, direction, lines, nodes)


def _pieces(block: Block, direction: Direction, lines: Callable, nodes: Callable) -> list[Piece]:
    """List a part of both families of lines.

    Parameters
    ----------
    lines, nodes
        From the owned centre lines, ``low <= i < high`` within the region: which lines, and which
        nodes along lines, belong to a neighbour below (-1), beside (0) and above (1).
    """
    parts = []
    for axis in (0, 1):
        low = block.start[axis] - block.first[axis]
        high = block.stop[axis] - block.first[axis]
        parts.append((lines(low, high)[direction[axis]], nodes(low, high)[direction[axis]]))
    return [(axis, (parts[axis][0], parts[1 - axis][1])) for axis in (0, 1)]
