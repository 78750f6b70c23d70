"""What elements make of the coarse basis: ``P^T S`` and ``P^T S P`` of each.

On a side the basis has the hats of its two ends and the side's modes, ``2 + M`` functions and not ``4 + 4 M``.
Products are with these, and then what both sides of a corner make of its hat is added up.

Functions are the hats of the four corners and the modes of the four sides, as in `coarse_numbering.of_elements`.

Shape letters: ``K`` operators, ``n`` of them at once, ``M`` modes of an edge, ``s`` nodes of a side, ``P = 4 s``.
"""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.local_solvers.elements.products import products

_ELEMENTS = {"cpu": 64, "cuda": 8192}  # whose matrices are made at once: few, for the cache


class CoarseElements:
    """Elements with the coarse basis on their sides.

    Parameters
    ----------
    kinds
        By complement and basis.
    bases
        Of lattice edges that differ, per axis ``(.., s - 1, 2 + M)``.
    edges
        Which of these the elements' four sides have, counter-clockwise from the bottom, ``(E,)`` each.
    """

    def __init__(
        self,
        schur: Complements,
        kinds: Kinds,
        bases: Sequence[torch.Tensor],
        edges: Sequence[np.ndarray],
    ):
        self._schur, self._kinds = schur, kinds
        around = [_around(basis, back=back) for back in (False, True) for basis in bases]
        self._sides = [*zip(around, edges, strict=True)]
        self._perimeter, self._modes = 4 * around[0].shape[1], around[0].shape[2] - 2

    def matrices(self, first: int | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ``P^T S P`` of all operators, ``(K, 4 + 4 M, 4 + 4 M)``, and some rows of ``P^T S``.

        Parameters
        ----------
        first
            How many modes of each edge the rows are of, beside the hats, ``(K, 4 + 4 first, P)``; None for no rows.
        """
        count, size, swept = self._kinds.operators, 4 + 4 * self._modes, None
        coarse = self._new(count, size, size)
        if first is not None:
            swept = self._new(count, 4 + 4 * first, self._perimeter)
        for portion in even(count, _ELEMENTS[coarse.device.type]):
            basis, whole = self._of(portion)
            hats, modes = _restricted(basis, whole)
            if swept is not None:
                swept[portion, :4] = hats
                swept[portion, 4:].unflatten(1, (4, -1)).copy_(modes[:, :, :first])
            rows = torch.cat([hats, modes.flatten(1, 2)], dim=1)
            hats, modes = _restricted(basis, rows.mT)
            coarse[portion] = torch.cat([hats, modes.flatten(1, 2)], dim=1).mT
        return coarse, swept

    def rows(self, operators: np.ndarray, sides: np.ndarray, modes: np.ndarray) -> torch.Tensor:
        """Return the rows of ``P^T S`` of single modes, on one side of an operator each, ``(.., P)``."""
        rows = self._new(len(operators), self._perimeter)
        order, counts = np.argsort(operators, kind="stable"), np.bincount(operators)
        each = np.flatnonzero(counts)
        ends = np.append(0, np.cumsum(counts[each]))
        for part in even(len(each), _ELEMENTS[rows.device.type]):
            _, every = _restricted(*self._of(each[part]))
            here = order[ends[part.start] : ends[part.stop]]
            which = here, np.searchsorted(each[part], operators[here]), sides[here], modes[here]
            to, *at = (torch.from_numpy(numbers).to(rows.device) for numbers in which)
            rows[to] = every[tuple(at)]
        return rows

    def _of(self, operators: slice | np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the basis on the sides ``(n, 4, s, 2 + M)`` and ``S`` of operators, ``(n, P, P)``."""
        members, device = self._kinds.examples[operators], self._schur.device
        basis = [bases[torch.from_numpy(edge[members]).to(device)] for bases, edge in self._sides]
        wanted: slice | torch.Tensor = torch.from_numpy(members).to(device)
        if self._kinds.all_own and isinstance(operators, slice):
            wanted = operators  # the elements' own numbers, of which no copies are made
        return torch.stack(basis, dim=1), self._schur.of(wanted)

    def _new(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._schur.dtype, device=self._schur.device)


def with_modes(coarse: torch.Tensor, count: int) -> torch.Tensor:
    """Return the matrices ``(K, 4 + 4 M, 4 + 4 M)`` of the hats and so many modes of each edge."""
    numbers = torch.arange(coarse.shape[1], device=coarse.device)
    modes = numbers[4:].view(4, -1)
    if count == modes.shape[1]:
        return coarse
    kept = torch.cat([numbers[:4], modes[:, :count].flatten()])
    return coarse[:, kept[:, None], kept]


def rows_with_modes(swept: torch.Tensor, count: int) -> torch.Tensor:
    """Return the rows ``(K, 4 + 4 M, P)`` of the hats and so many modes of each edge, if there are more."""
    modes = swept[:, 4:].unflatten(1, (4, -1))
    if count >= modes.shape[2]:
        return swept
    return torch.cat([swept[:, :4], modes[:, :, :count].flatten(1, 2)], dim=1)


def _around(basis: torch.Tensor, *, back: bool) -> torch.Tensor:
    """Return a basis counter-clockwise from a corner, ``(.., s, 2 + M)``: that corner's hat, the next's, the modes.

    Parameters
    ----------
    back
        Whether this is from the last node of the edge to its first.
    """
    if back:
        order = [1, 0, *range(2, basis.shape[2])]
        basis = basis.flip(1)[..., order]
    basis = torch.nn.functional.pad(basis, (0, 0, 1, 0))
    basis[:, 0, 0] = 1.0
    return basis


def _restricted(basis: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``P^T v`` of vectors ``(n, P, r)``: of the hats ``(n, 4, r)``, and the modes ``(n, 4, M, r)``.

    Parameters
    ----------
    basis
        On the four sides, ``(n, 4, s, 2 + M)``.
    """
    n, _, side, _ = basis.shape
    sums = products(basis.mT.flatten(0, 1), values.reshape(4 * n, side, -1)).unflatten(0, (n, 4))
    return sums[:, :, 0] + sums[:, :, 1].roll(1, dims=1), sums[:, :, 2:]
