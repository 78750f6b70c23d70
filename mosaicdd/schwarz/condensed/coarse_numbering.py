"""Which coarse values of a medium are unknowns, and their numbers over the whole lattice.

Unknowns are numbered by nested dissection of the lattice (George, 1973): those on the line that halves it come
after all others, and so on in both halves. Eliminated in this order a matrix fills in least.
"""

import math
from collections.abc import Sequence

import numpy as np

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.lattice import Lattice

_WHOLE = 6  # digits of places in squares that are not halved any more, of 4 by 4 lattice cells
_DIGITS = 31  # of two bits that a number of 64 bits holds, which is not negative


class Numbering:
    """Numbers of coarse values over the whole lattice.

    Parameters
    ----------
    rows, columns
        Which modes of the lattice edges inside are unknowns, on lines constant in y ``(K_y - 1, K_x, M)``, and
        in x; along a periodic axis all lines are inside, ``(K_y, K_x, M)``.
    nodes
        Which lattice nodes inside have a hat, ``(K_y - 1, K_x - 1)``; None for all.

    Attributes
    ----------
    modes
        ``M``.
    size
        How many values there are.
    order
        ``(size,)``, which unknown a value is, -1 for none.
    parts
        The numbers of the values: at lattice nodes, on edges of lines constant in y, and in x.
    unknowns
        The numbers of the unknowns, as they are eliminated.
    fronts
        Which front each unknown belongs to, ascending from 0: a line, or a small rectangle.
    levels
        Of each front, how often the domain was halved before.
    """

    def __init__(
        self, lattice: Lattice, rows: np.ndarray, columns: np.ndarray, nodes: np.ndarray | None
    ):
        chosen = (rows, columns)
        self.modes = rows.shape[2]
        (y, x), (down, across) = lattice.lines, lattice.cells
        shapes = (lattice.lines, (y, across, self.modes), (x, down, self.modes))
        sizes = [math.prod(shape) for shape in shapes]
        self.size = sum(sizes)
        parts = np.split(np.arange(self.size), np.cumsum(sizes)[:-1])
        self.parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        ends = zip(lattice.first_centre, lattice.cells, strict=True)
        inside = tuple(slice(first, stop) for first, stop in ends)
        hats = self.parts[0][inside]
        inner = [hats.ravel() if nodes is None else hats[nodes]]
        for part, lines, modes in zip(self.parts[1:], inside, chosen, strict=True):
            inner.append(part[lines][modes])
        unknowns = np.concatenate(inner)
        order, self.fronts, self.levels = _dissected(
            *(halves[unknowns] for halves in self._halves())
        )
        self.unknowns = unknowns[order]
        self.order = np.full(self.size, -1)
        self.order[self.unknowns] = np.arange(len(self.unknowns))

    def _halves(self) -> tuple[np.ndarray, ...]:
        """Return where all values stand along both axes, in halves of lattice cells from the first line."""
        nodes, rows, columns = (np.indices(part.shape) for part in self.parts)
        y = nodes[0], rows[0], columns[1] + 0.5
        x = nodes[1], rows[1] + 0.5, columns[0]
        return tuple(
            (2 * np.concatenate([part.ravel() for part in parts])).astype(int) for parts in (y, x)
        )

    def owned(self, block: Block) -> np.ndarray:
        """Return which unknowns a block owns, ascending."""
        parts = zip(self.parts, owned_parts(block), strict=True)
        order = self.order[np.concatenate([part[place].ravel() for part, place in parts])]
        return np.sort(order[order >= 0])

    def placed(self, block: Block, which: np.ndarray) -> np.ndarray:
        """Return where owned unknowns stand among the values of a block's region, part after part."""
        where, here = np.empty(self.size, int), self.between(block.first, block.last)
        ends = block.first, block.first, block.first[::-1]
        for part, place, low, places in zip(
            self.parts, owned_parts(block), ends, placed_parts(here), strict=True
        ):
            own = tuple(slice(p.start - a, p.stop - a) for p, a in zip(place, low, strict=True))
            where[part[place]] = places[own]
        return where[self.unknowns[which]]

    def between(self, first: tuple[int, ...], last: tuple[int, ...]) -> list[np.ndarray]:
        """Return the numbers of the values on and between lattice lines, as the parts are."""
        (y, x), (down, across) = (
            [np.arange(a, b + more) for a, b in zip(first, last, strict=True)] for more in (1, 0)
        )
        lines = (y, x), (y, across), (x, down)
        # Along a periodic axis they come round.
        return [
            part[np.ix_(rows % part.shape[0], columns % part.shape[1])]
            for part, (rows, columns) in zip(self.parts, lines, strict=True)
        ]


def _dissected(y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order places by nested dissection: halves of a square before the line between them, again and again.

    On its two sides and on the line are digits 0, 1 and 2 of a number, by which they are sorted, and of a
    second one where the lattice is long; first is a digit for the lines 0, which have unknowns where the
    lattice comes round.

    Returns
    -------
    ndarray, ndarray, ndarray
        The order; `Numbering.fronts`; `Numbering.levels`.
    """
    half = 1 << int(max(y.max(initial=1), x.max(initial=1))).bit_length() - 1
    placed = (y == 0) | (x == 0)
    words, count = [2 * placed.astype(np.int64)], 0
    levels = np.where(placed, 0, np.iinfo(int).max)  # how many digits say which line a place is on
    while half:
        for at in (y, x):
            inside = at & (2 * half - 1)
            digits = np.where(placed, 0, (inside > half) + 2 * (inside == half))
            count += 1
            if count % _DIGITS:
                words[-1] = 4 * words[-1] + digits
            else:
                words.append(digits)
            levels[~placed & (digits == 2)] = count
            placed |= digits == 2
        half //= 2
    order = np.lexsort(words[::-1]) if len(words) > 1 else np.argsort(words[0], kind="stable")
    most = max(count - _WHOLE, 0)
    known, begins = 1 + np.minimum(levels, most), np.zeros(len(order), bool)
    for first, word in zip(range(0, count + 1, _DIGITS), words, strict=True):
        held = min(_DIGITS, count + 1 - first)
        rest = 2 * (held - np.clip(known - first, 0, held))  # bits that do not count
        begins |= np.diff((word >> rest << rest)[order], prepend=-1) != 0
    levels = np.minimum(levels, most + 1)
    return order, np.cumsum(begins) - 1, levels[order[begins]]


def of_elements(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the values at the corners and on the edges of the elements between lattice lines.

    ``(E, 4 + 4 M)``, both counter-clockwise, from the lower-left corner and the lower edge.

    Parameters
    ----------
    parts
        The values there, as those of `Numbering.between`.
    """
    nodes, rows, columns = parts
    corners = (nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, 1:], nodes[1:, :-1])
    columns = columns.swapaxes(0, 1)
    edges = (rows[:-1], columns[:, 1:], rows[1:], columns[:, :-1])
    values = np.concatenate([*(corner[..., None] for corner in corners), *edges], axis=-1)
    return values.reshape(-1, values.shape[-1])


def placed_parts(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the places of values, counted through all parts, in the shapes of these."""
    ends = np.cumsum([part.size for part in parts])
    return [
        np.arange(end - part.size, end).reshape(part.shape)
        for end, part in zip(ends, parts, strict=True)
    ]


def owned_parts(block: Block) -> list[tuple[slice, ...]]:
    """Return the part of each kind that a block owns."""
    lines, cells = [], []
    for axis in (0, 1):
        part, first = block.owned_cells(axis), block.first[axis]
        lines.append(slice(block.start[axis], block.stop[axis]))
        cells.append(slice(part.start + first, part.stop + first))
    return [tuple(lines), (lines[0], cells[1]), (lines[1], cells[0])]
