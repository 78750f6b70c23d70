"""Lattice edges that have the same basis: their part of a coarse space by one small matrix.

With constant coefficients these are almost all of an axis. Between the lattice nodes of such an edge
``P c`` is a product of the basis with few coarse values; that of all of them is one small matrix on
slices of the lines, with nothing looked up.

Shape letters: ``s`` cells along an edge, ``F`` functions of its basis that are not zero, ``n`` problems.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.schwarz.condensed.parts import add_to, taken

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
        # From a lattice node on, which has none of it, (s, F)
        self._basis = torch.nn.functional.pad(basis[:, some], (0, 0, 1, 0))
        each = np.repeat(there[..., None], self._basis.shape[1], axis=2)
        self._there = torch.from_numpy(each).to(basis)
        self._columns = torch.from_numpy(columns).to(device)[..., some]
        self._hats = None if hats is None else torch.from_numpy(hats.ravel()).to(device)

    def add_restricted(self, residual: torch.Tensor, total: torch.Tensor) -> None:
        """Add their part of ``P^T r`` for ``(n, L)`` to ``(n, columns)``."""
        n, lines = len(residual), self._of(residual)
        cells, basis, there = self._cells(lines), self._basis, self._there
        for part in self._parts(n):
            some = cells[part]
            if n == 1:
                every = basis.expand(len(some), -1, -1)
                products = (torch.bmm(some[..., 0], every) * there[part])[..., None]
            else:
                # All of them by one product: node by node, then (F, lines, cells, n).
                given = some.permute(2, 0, 1, 3)
                products = (basis.T @ given.flatten(1)).unflatten(1, given.shape[1:])
                products = products.permute(1, 2, 0, 3) * there[part, ..., None]
            add_to(total, self._columns[part].flatten(), products.flatten(0, 2).T)
        if self._hats is not None:
            add_to(total, self._hats, lines[:, :: self._s].flatten(0, 1).T)

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> None:
        """Add their part of ``P c`` for ``(n, columns)`` to ``(n, L)``."""
        n, lines = len(out), self._of(out)
        cells, basis, there = self._cells(lines), self._basis, self._there
        for part in self._parts(n):
            columns = self._columns[part]
            seen = taken(c, columns.flatten()).T.view(*columns.shape, n) * there[part, ..., None]
            if n == 1:
                # Line by line: without a stop at each lattice node.
                lines[part, :-1, 0] += (seen[..., 0].flatten(0, 1) @ basis.T).view(len(columns), -1)
            else:
                given = seen.permute(2, 0, 1, 3)
                products = (basis @ given.flatten(1)).unflatten(1, given.shape[1:])
                cells[part] += products.permute(1, 2, 0, 3)
        if self._hats is not None:
            lines[:, :: self._s] += taken(c, self._hats).T.view(len(lines), -1, n)

    def _parts(self, problems: int) -> list[slice]:
        """Cut the lines into parts that the cache holds for so many problems."""
        count, cells = self._shape
        return even(
            count, max(1, _VALUES[self._columns.device.type] // (cells * self._s * problems))
        )

    def _of(self, v: torch.Tensor) -> torch.Tensor:
        """Return a view of the lines, ``(lines, nodes, n)``."""
        return v.T[self._part].unflatten(0, (self._shape[0], -1))

    def _cells(self, lines: torch.Tensor) -> torch.Tensor:
        """Return a view of the nodes from each lattice node to the next, ``(lines, cells, s, n)``."""
        return lines[:, :-1].unflatten(1, (self._shape[1], self._s))


def common_edges(keys: np.ndarray) -> np.ndarray:
    """Return which edges ``(lines, cells)`` have the most common of some keys; none, if they are few."""
    _, kind, counts = np.unique(keys, return_inverse=True, return_counts=True)
    most = int(np.argmax(counts))
    if counts[most] < max(2, _LEAST * keys.size):
        return np.zeros(keys.shape, bool)
    return np.asarray(kind.reshape(keys.shape) == most)
