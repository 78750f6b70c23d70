r"""What the nodes inside elements of shared operators do, as products with small dense matrices.

Large elements are dissected once. Values on the cross between four quarters are a product with all that
is known, the values ``g`` on the sides and the sources ``f`` inside; and those inside a quarter are one with
what is known in it, and with those on the cross. That is less than half the work of one product with
the inverse of all of an element:

```
   +---+---+     c = C (g, f)             on the cross
   | 2 | 3 |     u = Q_i (g, f)_i + R c   inside quarter i, (g, f)_i in it and on the sides beside it
   +---+---+
   | 0 | 1 |     The nodes are taken in this order: those of the quarters, one by one, then
   +---+---+     those on the middle row, then those on the middle column.
```

So are only large ones: small ones, and those of an odd number of cells, take that one product.

Shape letters: ``n`` problems, ``E`` elements of each, ``M`` some of all these, ``k`` kinds;
``N = (s + 1)^2`` nodes of an element, ``I = (s - 1)^2`` inner ones, ``S = 4 (s + 1)`` on the sides.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, even
from mosaicdd.local_solvers.elements.inner_nodes import ties_of
from mosaicdd.local_solvers.elements.own_elements import on_sides
from mosaicdd.local_solvers.elements.products import products
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.tensors import Tensors

_DISSECTED = 12  # cells a side from which on a few products cost less than one
_MADE = 16  # kinds at a time, for the cache
_WIDTH = 12  # of a product: the BLAS takes longer for 29 columns than for 36


class SharedInterior:
    """The inner nodes of elements of some kinds.

    Parameters
    ----------
    each
        The conductances of an element of each kind.

    Attributes
    ----------
    loads
        What sources at the inner nodes, row by row, add on the sides, ``(k, I, S)``.
    """

    def __init__(self, each: Conductances, **tensors: Unpack[Tensors]):
        kinds, count, _ = each.reaction.shape
        self._nodes, self._inner = _blocks(count)
        made = []
        for part in even(kinds, _MADE):
            some = each.each(itemgetter(part))
            made.append([one.to(**tensors) for one in _operators(some, self._nodes, self._inner)])
        self.loads, self._by_sides, *rest = (torch.cat(parts) for parts in zip(*made, strict=True))
        self._by_known = rest

    def known(self, squares: torch.Tensor) -> torch.Tensor:
        """Return what inner values follow from, in the order it is needed in, ``(n E, N)``.

        Parameters
        ----------
        squares
            Values on the sides and sources inside, ``(n, rows, columns, s + 1, s + 1)``.
        """
        count = squares.shape[-1]
        known = squares.new_empty(*squares.shape[:3], count**2)
        for values, part in self._parts(self._nodes, known, squares):
            part.copy_(values)
        return known.flatten(0, 2)

    def solve(self, number: int, known: torch.Tensor, out: torch.Tensor) -> None:
        """Write inner values ``(M, I)`` of elements of a kind, by what is `known` of each, ``(M, N)``."""
        if len(self._by_known) == 1:
            products(known, self._by_known[0][number], out=out)
            return
        to_cross, from_cross, in_quarters = (one[number] for one in self._by_known)
        cross = products(known, to_cross)
        products(cross[:, : len(from_cross)], from_cross, out=out)
        count, given, found = in_quarters.shape
        u, f = (
            one[:, : count * size].unflatten(1, (count, size)).transpose(0, 1)
            for one, size in ((out, found), (known, given))
        )
        u.add_(products(f, in_quarters))

    def solve_sides(self, number: int, known: torch.Tensor, out: torch.Tensor) -> None:
        """Write inner values ``(M, I)`` where there are no sources, by those on the sides, ``(M, S)``."""
        products(known, self._by_sides[number], out=out)

    def put(self, values: torch.Tensor, squares: torch.Tensor) -> None:
        """Write inner values ``(n E, I)`` to ``(n, rows, columns, s + 1, s + 1)``."""
        whole = values.unflatten(0, squares.shape[:3])
        for here, part in self._parts(self._inner, whole, squares):
            here.copy_(part)

    def _parts(
        self, blocks: list[Slices], rows: torch.Tensor, squares: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each block, of squares ``(.., s + 1, s + 1)`` and of rows where they follow each other."""
        start = 0
        for block in blocks:
            here = squares[..., *block]
            height, width = here.shape[-2:]
            stop = start + height * width
            yield here, rows[..., start:stop].unflatten(-1, (height, width))
            start = stop


def _blocks(count: int) -> tuple[list[Slices], list[Slices]]:
    """Return the blocks of an element's ``count`` by ``count`` nodes, and of the inner ones."""
    s = count - 1
    if s % 2 or s < _DISSECTED:
        whole, inner = slice(0, count), slice(1, s)
        return [(whole, whole)], [(inner, inner)]
    found = []
    for first, last in ((0, count), (1, s)):
        low, middle, high = slice(first, s // 2), slice(s // 2, s // 2 + 1), slice(s // 2 + 1, last)
        quarters = [(y, x) for y in (low, high) for x in (low, high)]
        found.append([*quarters, (middle, slice(first, last)), (low, middle), (high, middle)])
    return found[0], found[1]


def _operators(
    each: Conductances, nodes: Sequence[Slices], inner: Sequence[Slices]
) -> list[torch.Tensor]:
    """Return `loads`, and by what inner values follow from the sides, and from all that is known.

    The last is one matrix, ``(k, N, I)``; or, by the letters above, the transposes of ``C``, with columns of
    zeros, of ``R`` and of all ``Q``.
    """
    count = each.reaction.shape[-1]
    every = np.arange(count**2).reshape(count, count)
    unknowns = every[1:-1, 1:-1].ravel()
    number = np.full(count**2, -1)
    number[unknowns] = np.arange(len(unknowns))
    known = [every[block].ravel() for block in nodes]
    found = [number[every[block]].ravel() for block in inner]
    given, taken = _equations(each)
    sides, outwards = on_sides(given), on_sides(taken)
    sides[..., 2 * count :: count] = sides[..., 3 * count - 1 :: count] = 0.0  # corners, again
    given = given.flatten(2)
    inverses = _inverses(given[..., unknowns], each.symmetric)
    made = [inverses @ outwards, -sides.mT @ inverses[..., np.concatenate(found)]]
    # What values on the sides and sources inside give in the equations of the inner nodes.
    driving = -given
    driving[..., unknowns] = torch.eye(len(unknowns), dtype=given.dtype)
    if len(nodes) == 1:
        return [*made, driving.mT @ inverses]
    # The cross from side to side: nodes in a quarter's corner may be tied to its ends.
    cross = np.concatenate(known[4:])
    solved = number[cross]
    identity = torch.eye(len(cross), dtype=given.dtype).expand(len(given), -1, -1)
    to_cross = given.new_zeros(len(given), count**2, -(-len(cross) // _WIDTH) * _WIDTH)
    to_cross[:, -len(cross) :, : len(cross)] = identity
    by_all = driving[..., np.concatenate(known)].mT @ inverses[..., solved[solved >= 0]]
    to_cross[..., np.flatnonzero(solved >= 0)] = by_all
    in_quarters, from_cross = [], []
    for beside, those in zip(known[:4], found[:4], strict=True):
        here = given[:, those]
        inverse = _inverses(here[..., unknowns[those]], each.symmetric)
        in_quarters.append(driving[:, those][..., beside].mT @ inverse)
        from_cross.append(-here[..., cross].mT @ inverse)
    from_cross.append(identity[..., solved >= 0])
    return [*made, to_cross, torch.cat(from_cross, dim=2), torch.stack(in_quarters, dim=1)]


def _equations(each: Conductances) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the matrix of the inner nodes' equations, ``(k, I, s + 1, s + 1)``, and what these give to others'."""
    elements, count, _ = each.reaction.shape
    y, x = np.indices((count - 2, count - 2)).reshape(2, -1) + 1
    inner = np.arange(len(y))
    given, taken = np.zeros((2, elements, len(inner), count, count))
    given[:, inner, y, x] = each.reaction[:, y, x]
    ties = ties_of(each)
    for (dy, dx), (conductances, (oy, ox)) in ties.items():
        between = y + oy, x + ox
        given[:, inner, y, x] += conductances[:, *between]
        given[:, inner, y + dy, x + dx] = -conductances[:, *between]
        taken[:, inner, y + dy, x + dx] = ties[-dy, -dx][0][:, *between]
    return torch.from_numpy(given), torch.from_numpy(taken)


def _inverses(matrices: torch.Tensor, symmetric: bool) -> torch.Tensor:
    """Return the transposed inverses of matrices."""
    if symmetric:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrices))
    return torch.linalg.inv(matrices).mT
