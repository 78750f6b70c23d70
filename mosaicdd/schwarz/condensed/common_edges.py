"""Lattice edges that have the same basis: for one problem, their part of a coarse space by one small matrix.

With constant coefficients these are almost all of an axis. Between the lattice nodes of such an edge
``P c`` is a product of the basis with few coarse values; that of all of them is one small matrix on
slices of the lines, with nothing looked up. For several problems side by side a sparse matrix is faster.

Shape letters: ``s`` cells along an edge, ``F`` functions of its basis that are not zero, ``L`` nodes in all.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even

_VALUES = {"cpu": 2**17, "cuda": 2**30}  # on lines, that are handled at once: few, for the cache
# Share of the edges of an axis from which on a pass over them alone pays: with two insulated sides at 2048 x 2048,
# where most are alike, restriction and prolongation take 3 ms an iteration, 11 without.
_LEAST = 0.5


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
        used = basis.any(0)
        # From a lattice node on, which has none of it, (s, F)
        self._basis = torch.nn.functional.pad(basis[:, used], (0, 0, 1, 0))
        each = np.repeat(there[..., None], self._basis.shape[1], axis=2)
        self._there = torch.from_numpy(each).to(basis)
        self._columns = torch.from_numpy(columns).to(device)[..., used]
        self._hats = None if hats is None else torch.from_numpy(hats.ravel()).to(device)
        self._parts = even(lines, max(1, _VALUES[device.type] // (cells * self._s)))

    def add_restricted(self, residual: torch.Tensor, total: torch.Tensor) -> None:
        """Add their part of ``P^T r`` for ``(L,)`` to ``(columns,)``."""
        lines = self._of(residual)
        cells = self._cells(lines)
        for part in self._parts:
            every = self._basis.expand(part.stop - part.start, -1, -1)
            products = torch.bmm(cells[part], every) * self._there[part]
            total.index_add_(0, self._columns[part].flatten(), products.flatten())
        if self._hats is not None:
            total.index_add_(0, self._hats, lines[:, :: self._s].flatten())

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> None:
        """Add their part of ``P c`` for ``(columns,)`` to ``(L,)``."""
        lines = self._of(out)
        for part in self._parts:
            columns = self._columns[part]
            seen = c.index_select(0, columns.flatten()).view(columns.shape) * self._there[part]
            # Line by line: without a stop at each lattice node.
            lines[part, :-1] += (seen.flatten(0, 1) @ self._basis.T).view(len(columns), -1)
        if self._hats is not None:
            lines[:, :: self._s] += c.index_select(0, self._hats).view(len(lines), -1)

    def _of(self, v: torch.Tensor) -> torch.Tensor:
        """Return a view of the lines, ``(lines, nodes)``."""
        return v[self._part].unflatten(0, (self._shape[0], -1))

    def _cells(self, lines: torch.Tensor) -> torch.Tensor:
        """Return a view of the nodes from each lattice node to the next, ``(lines, cells, s)``."""
        return lines[:, :-1].unflatten(1, (self._shape[1], self._s))


def common_edges(keys: np.ndarray) -> np.ndarray:
    """Return which edges ``(lines, cells)`` have the most common of some keys; none, if they are few."""
    _, kind, counts = np.unique(keys, return_inverse=True, return_counts=True)
    most = int(np.argmax(counts))
    if counts[most] < max(2, _LEAST * keys.size):
        return np.zeros(keys.shape, bool)
    return np.asarray(kind.reshape(keys.shape) == most)
