"""The functions of a medium's lattice edges: the hats of both ends, and some modes.

Every edge is tried with as many modes, those without small eigenvalues left out. Where these are on few
edges, the first three of all edges are tried, and `mode_choice` says which become unknowns; where they are on
many, as along the weak direction of a tensor or in a fast flow, all small ones do.

Shape letters: ``M`` the most modes of an edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.local_solvers.elements.kinds import alike, combined
from mosaicdd.parallel.node_gather import gather_of_parts
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.condensed.coarse_numbering import owned_parts
from mosaicdd.schwarz.condensed.edge_modes import (
    CutLines,
    distinct_edges,
    edge_basis,
    edge_modes,
    small_eigenvalues,
    tried_modes,
)

# Modes of an edge, at most, as all are tried: SPE10 at 512 to 4096 (`scripts/bench_field_iterations.py`) takes 6 to 8
# iterations with three, 7 to 10 with two. Where so large a share of the edges asks for more, as in tensors of large
# ratios, all may have more.
_MODES, _OFTEN = 3, 0.1
# With a velocity: at 256, 512, 1024 cells a side and a cell Peclet number of 20, 4 modes below 0.02 take 15,
# 17, 20 iterations, 6 below 0.1 take 12, 12, 14; more help little.
_IN_FLOW = 6


@dataclass(frozen=True)
class CoarseBasis:
    """Hats and modes on a region's lattice lines.

    Parameters
    ----------
    bases
        Of lattice edges that differ, per axis ``(.., s - 1, 2 + M)``.
    keys
        Which of these each of the region's edges has, per axis ``(lines, cells)``.
    counts
        How many modes the edges on the domain's inner lines have with small eigenvalues, per axis
        ``(lines, cells)``.
    most
        ``M``.
    few
        Whether those are on few edges.
    """

    bases: Sequence[torch.Tensor]
    keys: Sequence[np.ndarray]
    counts: Sequence[np.ndarray]
    most: int
    few: bool

    @classmethod
    def of(
        cls,
        ranks: Ranks,
        blocks: Sequence[Block],
        conductances: Sequence[torch.Tensor],
        diagonals: Sequence[torch.Tensor],
        cut: Sequence[CutLines | None],
        *,
        flow: bool,
    ) -> Self:
        """Make it from what the equation has along the lines, see `BalancedCoarse`."""
        edges, indices = zip(
            *(distinct_edges(*data) for data in zip(conductances, diagonals, cut, strict=True)),
            strict=True,
        )
        counts = [small_eigenvalues(*edge, flow=flow) for edge in edges]
        here = [count[0, at].cpu().numpy() for count, at in zip(counts, indices, strict=True)]
        everywhere = on_all_edges(ranks, blocks, here)
        few, most = _most(everywhere, conductances[0].shape[2], flow=flow)
        if few:
            cuts = (edge[2] for edge in edges)
            counts = [tried_modes(*data, most) for data in zip(counts, cuts, strict=True)]
        bases, keys = zip(
            *(
                _alike(edge_basis(k, edge_modes(k, d, outline, count, most), outline), at)
                for (k, d, outline), count, at in zip(edges, counts, indices, strict=True)
            ),
            strict=True,
        )
        return cls(bases, keys, everywhere, most, few)

    def of_elements(self) -> list[np.ndarray]:
        """Return which bases elements have on their sides, counter-clockwise from the bottom, ``(E,)`` each."""
        along, across = self.keys[0], self.keys[1].T
        return [side.ravel() for side in (along[:-1], across[:, 1:], along[1:], across[:, :-1])]

    def with_modes(
        self, modes: Sequence[np.ndarray]
    ) -> tuple[list[torch.Tensor], list[np.ndarray]]:
        """Return bases with those modes alone that edges have, and which an edge's is.

        Parameters
        ----------
        modes
            Per axis ``(lines, cells, M)``, or of less modes than there are.
        """
        axes = zip(self.bases, self.keys, modes, strict=True)
        bases, keys = zip(*(_chosen(*axis) for axis in axes), strict=True)
        return list(bases), list(keys)


def on_all_edges(
    ranks: Ranks, blocks: Sequence[Block], numbers: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return whole numbers of the edges on the inner lines of the domain from those of all regions.

    Parameters
    ----------
    numbers
        Of the region's edges, per axis ``(lines, cells)``.
    """
    own, everywhere = blocks[ranks.rank], []
    lattice = own.lattice
    for axis, mine in enumerate(numbers):
        shape, first = (lattice.subdomains[axis], lattice.cells[1 - axis]), lattice.first_centre
        parts = []
        for block in blocks:
            lines, cells = owned_parts(block)[1 + axis]
            parts.append((slice(lines.start - first[axis], lines.stop - first[axis]), cells))
        lines = slice(*(end[axis] - own.first[axis] for end in (own.start, own.stop)))
        owned = mine[lines, own.owned_cells(1 - axis)].reshape(1, -1)
        gather = gather_of_parts(ranks, shape, parts)
        values, _ = gather(torch.from_numpy(owned.astype(float)), np.empty(0))
        everywhere.append(values.long().numpy().reshape(shape))
    return everywhere


def _most(counts: Sequence[np.ndarray], spacing: int, *, flow: bool) -> tuple[bool, int]:
    """Return whether small eigenvalues are on few edges, and how many modes an edge may have, by all counts."""
    every = np.concatenate([count.ravel() for count in counts])
    highest, often = int(every.max()), int(np.quantile(every, 1 - _OFTEN, method="lower"))
    if not flow and often <= _MODES:
        return highest > 0, min(_MODES, spacing - 1) if highest else 0
    most = min(highest, max(_MODES, often))
    return False, min(most, _IN_FLOW) if flow else most


def _alike(basis: torch.Tensor, index: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Return bases ``(1, .., s - 1, 2 + M)`` without repetitions, and which of them an edge's is."""
    keys = alike([basis[0].cpu().numpy()])
    _, first = np.unique(keys, return_index=True)
    return basis[0, torch.from_numpy(first).to(basis.device)], keys[index]


def _chosen(
    basis: torch.Tensor, keys: np.ndarray, modes: np.ndarray
) -> tuple[torch.Tensor, np.ndarray]:
    """Return bases with those modes alone that edges have, and which an edge's is, of one axis."""
    count = modes.shape[2]
    codes = modes @ (1 << np.arange(count))
    _, first, index = np.unique(combined(keys, codes), return_index=True, return_inverse=True)
    chosen = basis[torch.from_numpy(keys.ravel()[first]).to(basis.device), :, : 2 + count]
    chosen[..., 2:] *= torch.from_numpy(modes.reshape(keys.size, 1, count)[first]).to(chosen)
    return chosen, index.reshape(keys.shape)
