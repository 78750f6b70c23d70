"""Between the coarse values of a medium and the lattice lines: the balanced basis as sparse matrices.

A node between lattice nodes sees the hats of the two that it lies between and the modes of its edge, a
lattice node its own hat alone. With several problems the numbers of a row are read once for all of them,
as these lie side by side in memory (`condensed.vectors`). For one problem, where most edges have the
same basis, the matrices are of the others alone (`CommonEdges`).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse
import torch

from mosaicdd.schwarz.condensed.coarse_numbering import placed_parts
from mosaicdd.schwarz.condensed.common_edges import CommonEdges, common_edges
from mosaicdd.schwarz.condensed.parts import add_to, taken
from mosaicdd.schwarz.sparse import sparse_rows


class CoarseTransfer:
    """``P`` and its transpose on a block.

    Parameters
    ----------
    bases
        Of lattice edges that differ, per axis ``(.., s - 1, 2 + M)``.
    region
        The numbers of the region's coarse values, as `Numbering.parts`.
    own
        The places, counted through these parts, of those that the block owns.
    size
        How many coarse values the lattice has.
    keys
        Which of the bases each of the region's edges has, per axis ``(lines, cells)``.
    """

    def __init__(
        self,
        bases: Sequence[torch.Tensor],
        region: Sequence[np.ndarray],
        own: np.ndarray,
        size: int,
        keys: Sequence[np.ndarray],
    ):
        self._own = torch.from_numpy(own).to(bases[0].device)
        self._for_one = _Transfer(bases, region, size, keys, common=True)
        self._given = (bases, region, size, keys) if self._for_one.common else None

    @cached_property
    def _for_several(self) -> "_Transfer":
        """The same for several problems, which one matrix serves best."""
        return self._for_one if self._given is None else _Transfer(*self._given)

    def restrict(self, residual: torch.Tensor) -> torch.Tensor:
        """Return what the block owns of ``P^T r``, ``(n, own)``, for ``(n, L)``."""
        return taken(self._of(residual).restrict(residual), self._own)

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Add ``P c`` in the region to ``(n, L)``; ``c`` is ``(n, size)``."""
        return self._of(c).prolong(c, out)

    def _of(self, values: torch.Tensor) -> "_Transfer":
        return self._for_one if len(values) == 1 else self._for_several


class _Transfer:
    """The same of all that the region has, for one problem or for several.

    Parameters
    ----------
    common
        Whether edges that most have in common are apart.
    """

    def __init__(
        self,
        bases: Sequence[torch.Tensor],
        region: Sequence[np.ndarray],
        size: int,
        keys: Sequence[np.ndarray],
        *,
        common: bool = False,
    ):
        device = bases[0].device
        numbers = np.concatenate([part.ravel() for part in region])
        parts = placed_parts(region)
        self.common: list[CommonEdges] = []
        along, first = [], 0
        for axis, (basis, alike) in enumerate(zip(bases, keys, strict=True)):
            (lines, cells), inner = alike.shape, basis.shape[1]
            nodes = parts[0] if axis == 0 else parts[0].T
            ends = np.stack([nodes[:, :-1], nodes[:, 1:]], axis=-1)
            columns = np.concatenate([ends, parts[1 + axis]], axis=-1)
            hats = nodes if axis == 0 else None
            there = common_edges(alike) if common else np.zeros(alike.shape, bool)
            if there.any():
                shared = basis[int(alike[there][0])]
                self.common.append(CommonEdges(shared, there, columns, hats, first))
                others = basis.cpu().numpy()[alike[~there]]
                *few, counts = _rows_of(others, columns[~there])
                seen = counts > 0  # not where there is no domain
                along.append((*few, counts[seen], first + _inner_nodes(~there, inner)[seen]))
            else:
                every = _rows(basis.cpu().numpy()[alike], columns, hats)
                along.append((*every, first + np.arange(len(every[-1]))))
            first += lines * (cells * (inner + 1) + 1)
        values, columns, counts, rows = (
            np.concatenate(pieces) for pieces in zip(*along, strict=True)
        )
        del along
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        up = scipy.sparse.csr_array(
            (values, numbers.astype(np.int32)[columns], starts), (len(counts), size)
        )
        self._up = _tensor(up, device)
        # On a processor one matrix serves both ways. But along a periodic axis a number stands at several
        # places, of which but one is owned.
        once = np.bincount(numbers).max() == 1
        self._both = up if device.type == "cpu" and once else None
        if self._both is None:
            local = scipy.sparse.csr_array((values, columns, starts), (len(counts), len(numbers)))
            self._down = _tensor(local.tocsc().T, device)
        # The nodes that these matrices have a row of; None for all.
        self._nodes = torch.from_numpy(rows).to(device) if self.common else None
        self._numbers = torch.from_numpy(numbers).to(device)

    def restrict(self, residual: torch.Tensor) -> torch.Tensor:
        """Return ``P^T r`` at all places of the region, ``(n, columns)``, right where they are owned."""
        r = (residual if self._nodes is None else taken(residual, self._nodes)).T
        if self._both is None:
            total = self._down @ r
        else:
            everywhere = torch.from_numpy(self._both.T @ r.numpy())
            total = taken(everywhere.T, self._numbers).T
        for edges in self.common:
            edges.add_restricted(residual[0], total[:, 0])
        return total.T

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Add ``P c`` in the region to ``(n, L)``; ``c`` is ``(n, size)``."""
        if self._nodes is None:
            if len(c) == 1 and self._both is not None:  # half of torch's time
                return out.add_(torch.from_numpy(self._both @ c[0].numpy()))
            return torch.addmm(out.T, self._up, c.T, out=out.T).T
        up = self._up @ c.T if self._both is None else torch.from_numpy(self._both @ c.T.numpy())
        add_to(out, self._nodes, up.T)
        here = taken(c, self._numbers)[0]
        for edges in self.common:
            edges.prolong(here, out[0])
        return out


def _rows(
    basis: np.ndarray, columns: np.ndarray, hats: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of the lines of an axis, their columns, and how many each node has.

    Parameters
    ----------
    columns
        Of the functions of the edges, ``(lines, cells, 2 + M)``.
    hats
        Of the lattice nodes, ``(lines, cells + 1)``; None where these have none.
    """
    lines, cells, inner, functions = basis.shape
    values = np.zeros((lines, cells * (inner + 1) + 1, functions))
    places = np.zeros(values.shape, np.int32)
    if hats is not None:
        values[:, :: inner + 1, 0], places[:, :: inner + 1, 0] = 1.0, hats
    between = (lines, cells, inner + 1, functions)
    values[:, :-1].reshape(between)[:, :, 1:] = basis
    places[:, :-1].reshape(between)[:, :, 1:] = columns[:, :, None]
    there = values != 0
    return values[there], places[there], there.sum(axis=2).ravel()


def _rows_of(basis: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same of the nodes between lattice nodes of some edges, ``(edges, ..)``."""
    there = basis != 0
    places = np.broadcast_to(columns[:, None].astype(np.int32), basis.shape)
    return basis[there], places[there], there.sum(axis=2).ravel()


def _inner_nodes(edges: np.ndarray, inner: int) -> np.ndarray:
    """Return which nodes of their lines some edges have between lattice nodes, ascending."""
    line, cell = np.nonzero(edges)
    first = line * (edges.shape[1] * (inner + 1) + 1) + cell * (inner + 1) + 1
    return (first[:, None] + np.arange(inner)).ravel()


def _tensor(matrix: scipy.sparse.csr_array, device: torch.device) -> torch.Tensor:
    """Return a sparse matrix as a tensor."""
    starts, columns, values = (
        torch.from_numpy(array).to(device) for array in (matrix.indptr, matrix.indices, matrix.data)
    )
    return sparse_rows(starts, columns, values, matrix.shape[1])
