r"""A factorisation of the coarse matrix by nested dissection: in levels, many fronts at once.

The own unknowns of a front are eliminated by their inverse (see `coarse_fronts`)::

    | A  C |
    | B  D |    D - B A^-1 C is added to the front of the first unknown on the boundary

Fronts of a level do not touch each other. So each level is a few products with dense matrices, on a
processor or an accelerator, for one right-hand side or several side by side.

Shape letters: ``N`` unknowns; ``F`` fronts of a batch, ``o`` own unknowns of each and ``b`` on its boundary, both
filled up to the most; ``n`` problems.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.products import products
from mosaicdd.schwarz.condensed.coarse_fronts import FrontBatch, Fronts
from mosaicdd.schwarz.condensed.parts import add_to, taken

# Fronts at once, and entries of their matrices: few, for the cache, for memory, and to fill up little.
_BATCH = {"cpu": (128, 2**19), "cuda": (2**20, 2**26)}
_ADDED = {"cpu": 2**16, "cuda": 2**26}  # entries at once, whose places are numbers as large

_Added = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Fronts of a batch ``(F,)``, places there ``(F, b)``, and what is added among these ``(F, b, b)``."""


@dataclass(frozen=True)
class _Elimination:
    """The elimination of some fronts.

    Parameters
    ----------
    own, boundary
        Their unknowns, ``(F o,)`` and ``(F b,)``; ``N`` where there are less.
    down
        ``A^-1`` above ``-B A^-1``, ``(F, o + b, o)``.
    up
        ``-A^-1 C``, ``(F, o, b)``.
    """

    own: torch.Tensor
    boundary: torch.Tensor
    down: torch.Tensor
    up: torch.Tensor


class CoarseFactors:
    """The inverse of a matrix.

    Parameters
    ----------
    matrix
        With entries where those of the transposed matrix are; of a symmetric one they may be left out in rows
        of earlier fronts.
    fronts
        Which front each unknown belongs to, ``(N,)``, ascending from 0.
    levels
        Of each front; what it is tied to later is of lower levels.
    symmetric
        Whether the matrix is. Fronts that are not positive definite to rounding are inverted as others are,
        and solutions are not finite where one is singular: that ends the iteration which they are for.
    """

    def __init__(
        self,
        matrix: scipy.sparse.csc_array,
        fronts: np.ndarray,
        levels: np.ndarray,
        *,
        symmetric: bool,
        device: torch.device,
    ):
        self._size, self._symmetric, self._device = len(fronts), symmetric, device
        every = Fronts(matrix, fronts, levels, _BATCH[device.type])
        matrices = [matrix] if symmetric else [matrix, matrix.T.tocsc()]
        added: dict[int, list[_Added]] = defaultdict(list)
        self._steps = []
        for number, batch in enumerate(every.batches):
            front = self._assembled(every, number, matrices)
            for block in added.pop(number, []):
                _add(front, *block)
            step, left = self._eliminated(batch, front)
            del front
            self._steps.append(step)
            for other, *where in every.above(number):
                which, slots, places = (torch.from_numpy(array).to(device) for array in where)
                rest = left if len(which) == len(left) else left[which]
                added[other].append((slots, places, rest))
            del left

    def __call__(self, b: torch.Tensor) -> torch.Tensor:
        """Return the solutions for right-hand sides ``(n, N)``, those of all problems side by side."""
        n, b = len(b), b.to(self._device)
        x = b.new_zeros(self._size + 1, n).T  # and one for what only fills up
        x[:, :-1] = b
        for step in self._steps:
            reduced = _times(step.down, taken(x, step.own))
            own = step.up.shape[1]
            x.T.index_copy_(0, step.own, reduced[:, :own].flatten(0, 1))
            add_to(x, step.boundary, reduced[:, own:].flatten(0, 1).T)
        for step in reversed(self._steps):
            add_to(x, step.own, _times(step.up, taken(x, step.boundary)).flatten(0, 1).T)
        return x[:, :-1]

    def _assembled(
        self, every: Fronts, number: int, matrices: list[scipy.sparse.csc_array]
    ) -> torch.Tensor:
        """Return the entries of the own unknowns of some fronts, ``(F, o + b, o + b)``."""
        batch = every.batches[number]
        count, own = batch.own.shape
        size = own + batch.boundary.shape[1]
        front = np.zeros((count, size, size))
        for way, matrix in enumerate(matrices):
            slot, rows, columns, values = every.entries(number, matrix)
            front[slot, *((rows, columns) if way == 0 else (columns, rows))] = values
        slot, fill = np.nonzero(batch.own == self._size)
        front[slot, fill, fill] = 1.0
        if self._symmetric:
            front[:, :own, own:] = front[:, own:, :own].swapaxes(1, 2)
        return torch.from_numpy(front).to(self._device)

    def _eliminated(
        self, batch: FrontBatch, front: torch.Tensor
    ) -> tuple[_Elimination, torch.Tensor]:
        """Return how the own unknowns of some fronts are eliminated, and what is left on the boundary."""
        own = batch.own.shape[1]
        a, b, c = front[:, :own, :own], front[:, own:, :own], front[:, :own, own:]
        left, down = front[:, own:, own:], front.new_empty(*front.shape[:2], own)
        root = _cholesky(a) if self._symmetric else None
        if root is not None:
            unit = torch.eye(own).to(a)
            factor = torch.linalg.solve_triangular(root, unit, upper=False)  # A^-1 = F^T F
            half = products(b, factor.mT)
            down[:, :own] = products(factor.mT, factor)
            down[:, own:] = products(half, factor).neg_()
            up, left = down[:, own:].mT, left - products(half, half.mT)
        else:
            down[:, :own], _ = torch.linalg.inv_ex(a)
            down[:, own:] = products(b, down[:, :own]).neg_()
            up, left = products(down[:, :own], c).neg_(), left + products(down[:, own:], c)
        at = (batch.own, batch.boundary)
        own_places, beside = (torch.from_numpy(numbers.ravel()).to(a.device) for numbers in at)
        return _Elimination(own_places, beside, down, up), left


def _cholesky(matrices: torch.Tensor) -> torch.Tensor | None:
    """Return the factors ``L`` of ``L L^T``; None if any is not positive definite."""
    root, failed = torch.linalg.cholesky_ex(matrices)
    return None if failed.any() else root


def _add(
    total: torch.Tensor, fronts: torch.Tensor, places: torch.Tensor, values: torch.Tensor
) -> None:
    """Add to fronts ``(.., p, p)`` values among some places in some of them."""
    size, width = total.shape[-1], values.shape[1]
    rows = (fronts[:, None] * size + places) * size
    for part in even(len(fronts), max(1, _ADDED[total.device.type] // width**2)):
        at = rows[part, :, None] + places[part, None]
        total.view(-1).index_add_(0, at.flatten(), values[part].flatten())


def _times(matrices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the products of matrices ``(F, r, c)`` with values ``(n, F c)``, ``(F, r, n)``."""
    count, columns = len(matrices), matrices.shape[2]
    if len(values) == 1:
        return products(values.view(count, 1, columns), matrices.mT).mT
    return products(matrices, values.T.view(count, columns, len(values)))
