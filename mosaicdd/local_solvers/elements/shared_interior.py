r"""What the nodes inside elements of shared operators do, as products with small dense matrices.

Large elements are dissected once. Values on the middle row are a product with all that is known, the
values ``g`` on the sides and the sources ``f`` inside. With those in place of the sources there, values in a
half are one with what its rows have, the middle row among them::

    +-------+
    |   1   |     c = C (g, f)         on the middle row
    +-------+
    |   0   |     u_i = H_i (g, f, c)_i    inside half i
    +-------+

That is little more than half the work of one product with the inverse of all of an element, and nodes keep
their order, row by row. Small elements, and those of an odd number of cells, take that one product.

Shape letters: ``M`` elements of a kind, ``k`` kinds; ``N = (s + 1)^2`` nodes of an element,
``I = (s - 1)^2`` inner ones, ``S = 4 (s + 1)`` on the sides.
"""

from operator import itemgetter
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.inner_nodes import ties_of
from mosaicdd.local_solvers.elements.own_elements import on_sides
from mosaicdd.local_solvers.elements.products import rows_times
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.tensors import Tensors

# Cells a side from which on several products cost less than one; the checkerboard of `scripts/bench_fields.py` shows it.
_DISSECTED = 12
_MADE = 16  # kinds at a time, for the cache
_WIDTH = 16  # of a product: the BLAS takes longer for 15 columns


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
        kinds, self._count, _ = each.reaction.shape
        made = []
        for part in even(kinds, _MADE):
            portion = each.each(itemgetter(part))
            made.append([operator.to(**tensors) for operator in _operators(portion)])
        self.loads, self._by_sides, *rest = (torch.cat(parts) for parts in zip(*made, strict=True))
        self._by_known = rest

    def solve(self, number: int, known: torch.Tensor, out: torch.Tensor) -> None:
        """Write inner values ``(M, I)`` of elements of a kind.

        Parameters
        ----------
        known
            Values on the sides and sources inside, ``(M, N)``; those on the middle row are lost.
        """
        if len(self._by_known) == 1:
            rows_times(known, self._by_known[0][number], out)
            return
        to_middle, in_halves = (operators[number] for operators in self._by_known)
        inner, half = self._count - 2, in_halves.shape[1]
        made = known.new_empty(len(known), to_middle.shape[1])
        rows_times(known, to_middle, made)
        middle = made[:, :inner]
        first = half - self._count + 1  # of its inner nodes
        known[:, first : first + inner] = middle
        size = in_halves.shape[2]
        out[:, size : size + inner] = middle
        rows_times(known[:, :half], in_halves[0], out[:, :size])
        rows_times(known[:, -half:], in_halves[1], out[:, -size:])

    def solve_sides(self, number: int, known: torch.Tensor, out: torch.Tensor) -> None:
        """Write inner values ``(M, I)`` where there are no sources, by those on the sides, ``(M, S)``."""
        rows_times(known, self._by_sides[number], out)


def _operators(each: Conductances) -> list[torch.Tensor]:
    """Return `loads`, and by what inner values follow from the sides, and from all that is known.

    The last is one matrix, ``(k, N, I)``; or, by the letters above, the transposes of ``C``, with a few columns
    of zeros, and of both ``H``.
    """
    count = each.reaction.shape[-1]
    every = np.arange(count**2).reshape(count, count)
    unknowns = every[1:-1, 1:-1].ravel()
    equations, taken = _equations(each)
    sides, outwards = on_sides(equations), on_sides(taken)
    sides[..., 2 * count :: count] = sides[..., 3 * count - 1 :: count] = 0.0  # corners, again
    equations = equations.flatten(2)
    inverses = _inverses(equations[..., unknowns], each.symmetric)
    made = [inverses @ outwards, -sides.mT @ inverses]
    # What values on the sides and sources inside give in the equations of the inner nodes.
    driving = -equations
    driving[..., unknowns] = torch.eye(len(unknowns), dtype=equations.dtype)
    if (count - 1) % 2 or count - 1 < _DISSECTED:
        return [*made, driving.mT @ inverses]
    inner, middle = count - 2, count // 2
    row = slice(inner * (middle - 1), inner * middle)  # its inner nodes
    to_middle = equations.new_zeros(len(equations), count**2, -(-inner // _WIDTH) * _WIDTH)
    to_middle[..., :inner] = driving.mT @ inverses[..., row]
    in_halves = []
    for rows, those in (
        (slice(0, middle + 1), slice(0, row.start)),
        (slice(middle, count), slice(row.stop, None)),
    ):
        here, driven = equations[:, those], driving[:, those]
        driven[..., unknowns[row]] = -here[..., unknowns[row]]
        inverse = _inverses(here[..., unknowns[those]], each.symmetric)
        in_halves.append(driven[..., every[rows].ravel()].mT @ inverse)
    return [*made, to_middle, torch.stack(in_halves, dim=1)]


def _equations(each: Conductances) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the matrix of the inner nodes' equations, ``(k, I, s + 1, s + 1)``, and what these give to others'."""
    elements, count, _ = each.reaction.shape
    y, x = np.indices((count - 2, count - 2)).reshape(2, -1) + 1
    inner = np.arange(len(y))
    equations, taken = np.zeros((2, elements, len(inner), count, count))
    equations[:, inner, y, x] = each.reaction[:, y, x]
    ties = ties_of(each)
    for (dy, dx), (conductances, (oy, ox)) in ties.items():
        between = y + oy, x + ox
        equations[:, inner, y, x] += conductances[:, *between]
        equations[:, inner, y + dy, x + dx] = -conductances[:, *between]
        taken[:, inner, y + dy, x + dx] = ties[-dy, -dx][0][:, *between]
    return torch.from_numpy(equations), torch.from_numpy(taken)


def _inverses(matrices: torch.Tensor, symmetric: bool) -> torch.Tensor:
    """Return the transposed inverses of matrices."""
    if symmetric:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrices))
    return torch.linalg.inv(matrices).mT
