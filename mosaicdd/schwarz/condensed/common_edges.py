"""Lattice edges that have the same basis: their part of a coarse space by one small matrix.

With constant coefficients these are almost all of an axis. Between the lattice nodes of such an edge
``P c`` is a product of the basis with few coarse values; that of all of them is one small matrix on
slices of the lines, with nothing looked up.

Shape letters: ``s`` cells along an edge, ``F`` functions of its basis that are not zero, ``n`` problems.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even

_VALUES = {
    "cpu": 2**17,
    "cuda": 2**30,
}  # on lines, of all problems, that are handled at once: few, for the cache
_LEAST = 0.5  # share of the edges of an axis from which on that pays


class CommonEdges:
    """The edges of one axis that have the most common basis.

    Parameters
    ----------
    basis
        That one, ``(s - 1, 2 + M)``.
    there
        Which edges have the same one, ``(lines, cells)``.
    columns
        Where the coarse values of all edges stand, ``(lines, cells, 2 + M)``.
    hats
        Where those of lattice nodes do that these lines have, ``(lines, cells + 1)``; None for those of no
        node.
    first
        Where the lines begin in an interface.
    """

    def __init__(
        self,
        basis: torch.Tensor,
        there: np.ndarray,
        columns: np.ndarray,
        hats: np.ndarray | None,
        first: int,
    ):
        (lines, cells), inner = there.shape, len(basis)
        self._shape, self._s, device = (lines, cells), inner + 1, basis.device
        nodes = lines * (cells * self._s + 1)
        self._part = slice(first, first + nodes)
        some = basis.any(0)
        self._basis = basis[:, some].expand(lines, -1, -1)  # (lines, s - 1, F)
        self._there = torch.from_numpy(there).to(basis)[..., None, None]
        self._columns = torch.from_numpy(columns).to(device)[..., some]
        self._hats = None if hats is None else torch.from_numpy(hats.ravel()).to(device)

    def add_restricted(self, residual: torch.Tensor, total: torch.Tensor) -> None:
        """Add their part of ``P^T r`` for ``(n, L)`` to ``(n, columns)``."""
        n, lines = len(residual), self._of(residual)
        between = self._between(lines)
        for part in self._parts(n):
            some = between[part]
            if n == 1:
                products = torch.bmm(some[..., 0], self._basis[part])[..., None]
            else:
                # All of them by one product: node by node, then (F, lines, cells, n).
                given = some.permute(2, 0, 1, 3)
                products = (self._basis[0].T @ given.flatten(1)).unflatten(1, given.shape[1:])
                products = products.permute(1, 2, 0, 3)
            products = products * self._there[part]
            total.T.index_add_(0, self._columns[part].flatten(), products.flatten(0, 2))
        if self._hats is not None:
            total.T.index_add_(0, self._hats, lines[:, :: self._s].flatten(0, 1))

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> None:
        """Add their part of ``P c`` for ``(n, columns)`` to ``(n, L)``."""
        n, lines = len(out), self._of(out)
        between = self._between(lines)
        for part in self._parts(n):
            some, columns = between[part], self._columns[part]
            seen = c.T.index_select(0, columns.flatten()).view(*columns.shape, n)
            seen *= self._there[part]
            if n == 1:
                some[..., 0].baddbmm_(seen[..., 0], self._basis[part].mT)
            else:
                given = seen.permute(2, 0, 1, 3)
                products = (self._basis[0] @ given.flatten(1)).unflatten(1, given.shape[1:])
                some += products.permute(1, 2, 0, 3)
        if self._hats is not None:
            lines[:, :: self._s] += c.T.index_select(0, self._hats).view(len(lines), -1, n)

    def _parts(self, problems: int) -> list[slice]:
        """Cut the lines into parts that the cache holds for so many problems."""
        count, cells = self._shape
        return even(count, max(1, _VALUES[self._basis.device.type] // (cells * self._s * problems)))

    def _of(self, v: torch.Tensor) -> torch.Tensor:
        """Return a view of the lines, ``(lines, nodes, n)``."""
        return v.T[self._part].unflatten(0, (self._shape[0], -1))

    def _between(self, lines: torch.Tensor) -> torch.Tensor:
        """Return a view of the nodes between lattice nodes, ``(lines, cells, s - 1, n)``."""
        return lines[:, :-1].unflatten(1, (self._shape[1], self._s))[:, :, 1:]


def common_edges(keys: np.ndarray) -> np.ndarray:
    """Return which edges ``(lines, cells)`` have the most common of some keys; none, if they are few."""
    _, kind, counts = np.unique(keys, return_inverse=True, return_counts=True)
    most = int(np.argmax(counts))
    if counts[most] < max(2, _LEAST * keys.size):
        return np.zeros(keys.shape, bool)
    return np.asarray(kind.reshape(keys.shape) == most)
