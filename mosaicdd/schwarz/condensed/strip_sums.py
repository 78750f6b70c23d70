"""Sums of what the members of strips add to an interface, with each strip's made where its lines lie in memory.

A strip of elements, or stars, meets some lattice lines constant in y, which lie in memory as one, and a piece
of each of those constant in x. Its sums are a sparse matrix times what its members add; they are written to
these lines, and where the strip before has written they are added.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from mosaicdd.schwarz.sparse import sparse_rows


@dataclass(frozen=True)
class _Box:
    """Lines constant in y, or nodes of those constant in x, from and to which a strip writes.

    Those below ``before`` have been written to by another.
    """

    first: int
    before: int
    last: int

    @property
    def count(self) -> int:
        """How many."""
        return self.last - self.first


class StripSums:
    """Where strips add what their members have.

    Parameters
    ----------
    places
        Of each strip, in the order of what is added there.
    shapes
        Of the lines, per axis: how many, and their nodes.
    """

    def __init__(
        self, places: Sequence[torch.Tensor], shapes: Sequence[tuple[int, ...]], dtype: torch.dtype
    ):
        self._shapes = (lines, nodes), (others, along) = [*shapes]
        self._split, device = lines * nodes, places[0].device
        self._boxes: list[tuple[_Box, _Box]] = []
        self._matrices = []
        done = [0, 0]
        for number, at in enumerate(tensor.cpu().numpy() for tensor in places):
            in_rows = at < self._split
            column, node = np.divmod(at - self._split, along)
            ends = (at[in_rows] // nodes, lines), (node[~in_rows], along)
            boxes = []
            for axis, (used, size) in enumerate(ends):
                first = min(done[axis], int(used.min(initial=size)))
                last = max(done[axis], int(used.max(initial=-1)) + 1)
                if number == len(places) - 1:
                    last = size
                boxes.append(_Box(first, done[axis], last))
                done[axis] = last
            below, beside = boxes
            self._boxes.append((below, beside))
            before, height = below.count * nodes, beside.count
            inside = before + column * height + node - beside.first
            inside[in_rows] = at[in_rows] - below.first * nodes
            shape = before + others * height, len(at)
            entries = np.ones(len(at)), (inside, np.arange(len(at)))
            matrix = scipy.sparse.coo_array(entries, shape).tocsr()
            parts = (matrix.indptr, matrix.indices, matrix.data)
            rows = (torch.from_numpy(part).to(device) for part in parts)
            starts, columns, ones = rows
            self._matrices.append(sparse_rows(starts, columns, ones.to(dtype), len(at)))
        self._longest = max(len(matrix) for matrix in self._matrices)
        self._room = torch.empty(0, 0, dtype=dtype, device=device)

    def __call__(self, total: torch.Tensor, added: Iterable[torch.Tensor]) -> torch.Tensor:
        """Write to ``(L, n)`` the sums of what each strip adds, ``(.., n)``; nothing has to be there."""
        n = total.shape[1]
        if len(self._matrices) == 1:
            for values in added:
                torch.addmm(total, self._matrices[0], values, beta=0.0, out=total)
            return total
        if self._room.shape[1] != n:
            self._room = total.new_empty(self._longest, n)
        nodes, (others, along) = self._shapes[0][1], self._shapes[1]
        columns = total[self._split :].view(others, along, n)
        for matrix, (below, beside), values in zip(self._matrices, self._boxes, added, strict=True):
            sums = self._room[: len(matrix)]
            torch.addmm(sums, matrix, values, beta=0.0, out=sums)
            rows, rest = sums.split([below.count * nodes, others * beside.count])
            _put(total[below.first * nodes : below.last * nodes], rows, below, nodes)
            _put(
                columns[:, beside.first : beside.last].transpose(0, 1),
                rest.view(others, beside.count, n).transpose(0, 1),
                beside,
            )
        return total


def _put(total: torch.Tensor, sums: torch.Tensor, box: _Box, each: int = 1) -> None:
    """Write sums, or add them where others have been written."""
    written = (box.before - box.first) * each
    total[:written] += sums[:written]
    total[written:] = sums[written:]
