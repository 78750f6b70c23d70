"""Which parts of a block's arrays a neighbouring block shares.

Directions are ``(dy, dx)`` with entries -1, 0, 1. Sent is what the block computed; a neighbour
adds it to its own. Blocks share one lattice cell, so a message holds one line and the ends, one
lattice cell long, of the lines across it: ``2 N`` values for a block side of ``N`` cells.

```
   block A owns the centre lines ..a, block B the centre lines b.. ; regions end at the others' line

   ---+------a------b           A sends to B: its line a, and its part of the lines a--b
             a------b------+--- B sends to A: its line b, and its part of the lines a--b
```
"""

import itertools

from mosaicdd.lattice.block import Block, Piece

Direction = tuple[int, int]

DIRECTIONS: tuple[Direction, ...] = tuple(
    d for d in itertools.product((-1, 0, 1), repeat=2) if d != (0, 0)
)


def interface_sent(block: Block, direction: Direction) -> list[Piece]:
    """List the parts of the interface to send to the neighbour in a direction."""
    s = block.lattice.spacing
    lines = {-1: slice(1, 2), 0: slice(1, -1), 1: slice(-2, -1)}
    nodes = {-1: slice(1, s + 1), 0: slice(1, -1), 1: slice(-s - 1, -1)}
    return _interface_pieces(direction, lines, nodes)


def interface_received(block: Block, direction: Direction) -> list[Piece]:
    """List the parts of the interface to which the neighbour in a direction contributes."""
    s = block.lattice.spacing
    lines = {-1: slice(0, 1), 0: slice(1, -1), 1: slice(-1, None)}
    nodes = {-1: slice(0, s), 0: slice(1, -1), 1: slice(-s, None)}
    return _interface_pieces(direction, lines, nodes)


def _interface_pieces(direction: Direction, lines: dict, nodes: dict) -> list[Piece]:
    return [(axis, (lines[direction[axis]], nodes[direction[1 - axis]])) for axis in (0, 1)]


def field_sent(block: Block, direction: Direction) -> list[Piece]:
    """List the parts of the filled region that a lower neighbour owns, and to which we add."""
    if max(direction) > 0:
        return []
    part = {-1: slice(1, block.lattice.spacing), 0: slice(1, -1)}
    return [(0, tuple(part[d] for d in direction))]


def field_received(block: Block, direction: Direction) -> list[Piece]:
    """List the owned parts of the filled region to which a higher neighbour adds."""
    if min(direction) < 0:
        return []
    part = {1: slice(-block.lattice.spacing, -1), 0: slice(1, -1)}
    return [(0, tuple(part[d] for d in direction))]


def ghost_sent(block: Block, direction: Direction) -> list[Piece]:
    """List the owned row of field nodes next to the neighbour in a direction."""
    return _field_rows(block, direction, {-1: (0, 1), 1: (-1, 0)})


def ghost_received(block: Block, direction: Direction) -> list[Piece]:
    """List the row of field nodes beyond the owned ones, which the neighbour owns."""
    return _field_rows(block, direction, {-1: (-1, 0), 1: (0, 1)})


def _field_rows(block: Block, direction: Direction, offsets: dict) -> list[Piece]:
    """Take one row at the low (-1) or high (1) end of the owned nodes; all of them for 0."""
    parts = []
    for owned, d in zip(block.owned_nodes()[0], direction, strict=True):
        if d == 0:
            parts.append(owned)
        else:
            end = owned.start if d < 0 else owned.stop
            first, last = offsets[d]
            parts.append(slice(end + first, end + last))
    return [(0, tuple(parts))]
