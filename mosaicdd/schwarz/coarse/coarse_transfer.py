"""Between the coarse values of a medium and the lattice lines: the balanced basis as sparse matrices.

A node between lattice nodes sees the hats of the two that it lies between and the modes of its edge, a
lattice node its own hat alone. With several problems the numbers of a row are read once for all of them,
as these lie side by side in memory (`interface_operator.by_node`).
"""

import math
import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch

from mosaicdd.schwarz.coarse.coarse_numbering import placed_parts


class CoarseTransfer:
    """``P`` and its transpose on a block.

    Parameters
    ----------
    bases
        Of the region's lattice edges, per axis ``(lines, cells, s - 1, 2 + M)``.
    region
        The numbers of the region's coarse values, as `Numbering.parts`.
    own
        The places, counted through these parts, of those that the block owns.
    size
        How many coarse values the lattice has.
    """

    def __init__(
        self,
        bases: Sequence[torch.Tensor],
        region: Sequence[np.ndarray],
        own: np.ndarray,
        size: int,
    ):
        numbers = np.concatenate([part.ravel() for part in region])
        parts = placed_parts(region)
        along = [
            _rows(basis.cpu().numpy(), parts[0] if axis == 0 else parts[0].T, parts[1 + axis], axis)
            for axis, basis in enumerate(bases)
        ]
        values, columns, counts = (np.concatenate(one) for one in zip(*along, strict=True))
        starts = np.concatenate([[0], np.cumsum(counts)])
        # Along a periodic axis a number stands at several places, of which but one is owned.
        local = scipy.sparse.csr_array((values, columns, starts), (len(counts), len(numbers)))
        self._down = _tensor(local.T.tocsr()[own], bases[0].device)
        up = scipy.sparse.csr_array((values, numbers[columns], starts), (len(counts), size))
        self._up = _tensor(up, bases[0].device)

    def restrict(self, residual: torch.Tensor) -> torch.Tensor:
        """Return what the block owns of ``P^T r``, ``(n, own)``, for ``(n, L)``."""
        return (self._down @ residual.T).T

    def prolong(self, c: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Add ``P c`` in the region to ``(n, L)``; ``c`` is ``(n, size)``."""
        return torch.addmm(out.T, self._up, c.T, out=out.T).T


def _rows(
    basis: np.ndarray, nodes: np.ndarray, modes: np.ndarray, axis: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of the lines of an axis, their columns, and how many each node has.

    Lattice nodes are those of the lines constant in y.

    Parameters
    ----------
    nodes, modes
        The columns of the hats ``(lines, cells + 1)`` and of the modes ``(lines, cells, M)``.
    """
    lines, cells, inner, functions = basis.shape
    values = np.zeros((lines, cells * (inner + 1) + 1, functions))
    columns = np.zeros(values.shape, np.int32)
    if axis == 0:
        values[:, :: inner + 1, 0], columns[:, :: inner + 1, 0] = 1.0, nodes
    between = (lines, cells, inner + 1, functions)
    values[:, :-1].reshape(between)[:, :, 1:] = basis
    ends = np.stack([nodes[:, :-1], nodes[:, 1:]], axis=-1)
    seen = np.concatenate([ends, modes], axis=-1)[:, :, None]
    columns[:, :-1].reshape(between)[:, :, 1:] = seen
    there = values != 0
    return values[there], columns[there], there.sum(axis=2).ravel()


def _tensor(matrix: scipy.sparse.csr_array, device: torch.device) -> torch.Tensor:
    """Return a sparse matrix as a tensor."""
    if max(math.prod(matrix.data.shape), *matrix.shape) >= 2**31:
        raise ValueError(
            f"a coarse basis of {matrix.shape[1]} functions and {len(matrix.data)} entries needs longer "
            "numbers; use more ranks"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that torch may change this format
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int32)),
            torch.from_numpy(matrix.indices.astype(np.int32)),
            torch.from_numpy(matrix.data),
            matrix.shape,
            device=device,
        )
