"""Lattice edges that have the same basis: their part of a coarse space by one small matrix.

With constant coefficients these are almost all of an axis. Between the lattice nodes of such an edge
``P c`` is a product of the basis with few coarse values; that of all of them is one small matrix on
slices of the lines, with nothing looked up.

Shape letters: ``s`` cells along an edge, ``F`` functions of its basis that are not zero, ``n`` problems.
"""

import numpy as np
import torch

_LEAST = 0.5  # share of the edges of an axis from which on that pays


class CommonEdges:
    """The edges of one axis that have the most common basis.

    Parameters
    ----------
    basis
        Of all edges, ``(lines, cells, s - 1, 2 + M)``.
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
        lines, cells, inner, _ = basis.shape
        self._shape, self._s, device = (lines, cells), inner + 1, basis.device
        nodes = lines * (cells * self._s + 1)
        self._part = slice(first, first + nodes)
        one = basis[*np.argwhere(there)[0].tolist()]
        some = one.any(0)
        self._basis = one[:, some].expand(lines, -1, -1)  # (lines, s - 1, F)
        self._there = torch.from_numpy(there).to(basis)[..., None, None]
        self._columns = torch.from_numpy(columns).to(device)[..., some].flatten()
        self._hats = None if hats is None else torch.from_numpy(hats.ravel()).to(device)

    def add_restricted(self, residual: torch.Tensor, total: torch.Tensor) -> None:
        """Add their part of ``P^T r`` for ``(n, L)`` to ``(n, columns)``."""
        lines = self._of(residual)
        between = self._between(lines)
        if len(residual) == 1:
            products = torch.bmm(between[..., 0], self._basis)[..., None]
        else:
            products = torch.matmul(self._basis[0].T, between)
        products *= self._there
        total.T.index_add_(0, self._columns, products.flatten(0, 2))
        if self._hats is not None:
            total.T.index_add_(0, self._hats, lines[:, :: self._s].flatten(0, 1))

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> None:
        """Add their part of ``P c`` for ``(n, columns)`` to ``(n, L)``."""
        lines = self._of(out)
        between = self._between(lines)
        seen = c.T.index_select(0, self._columns).view(*self._shape, -1, len(c)).mul_(self._there)
        if len(out) == 1:
            between[..., 0].baddbmm_(seen[..., 0], self._basis.mT)
        else:
            between += torch.matmul(self._basis[0], seen)
        if self._hats is not None:
            hats = c.T.index_select(0, self._hats)
            lines[:, :: self._s] += hats.view(len(lines), -1, len(c))

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
