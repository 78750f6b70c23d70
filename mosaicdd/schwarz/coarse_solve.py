"""The coarse problem, solved by sine transforms, which diagonalise its constant stencil."""

from collections.abc import Callable

import numpy as np
import scipy.fft
import torch

from mosaicdd.lattice.block import Block, Slices
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Shard
from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.sine_solve import SineSolve
from mosaicdd.schwarz.layouts import nodes_layout
from mosaicdd.schwarz.sine_transform import sine_transform
from mosaicdd.schwarz.stopwatch import Stopwatch

Symbol = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``symbol(ky, kx)``: eigenvalues of the coarse operator for the modes ``ky``, ``kx`` from 1."""


class ReplicatedSolve:
    """Every rank solves the whole coarse problem: one collective, and the same answer everywhere.

    Parameters
    ----------
    inside
        The lattice nodes that this rank wants the correction at, of those inside the domain.
    problems
        Problems ``n`` that are solved at once.
    sums
        Numbers, at most, that travel in the collective.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        inside: Slices,
        symbol: Symbol,
        *,
        problems: int,
        sums: int,
        device: torch.device,
        clock: Stopwatch,
    ):
        counts = block.lattice.subdomains
        self._inside = inside
        self._gather = NodeGather(ranks, counts, problems=problems, sums=sums, device=device)
        y, x = (np.arange(1, n + 1) for n in counts)
        self._inverse = torch.from_numpy(1.0 / symbol(y[:, None], x)).to(device)
        self._communicating = clock.part("communication")
        self._solving = clock.part("coarse")

    def __call__(self, residual: torch.Tensor, sums: np.ndarray, out: torch.Tensor) -> np.ndarray:
        """Write the correction for a residual at the own nodes to ``out``; add up numbers.

        Parameters
        ----------
        residual
            ``(n, *block.subdomains)``.
        sums
            Of this rank; their sums over the ranks are returned.
        """
        with self._communicating:
            nodes, totals = self._gather(residual, sums)
        with self._solving:
            solve = self._on_gpu if self._inverse.is_cuda else self._on_cpu
            out.copy_(solve(nodes)[..., *self._inside])
        return totals

    def _on_cpu(self, nodes: torch.Tensor) -> torch.Tensor:
        transform = {"type": 1, "axes": (1, 2), "overwrite_x": True}
        transformed = scipy.fft.dstn(nodes.numpy(), **transform)
        transformed *= self._inverse.numpy()
        return torch.from_numpy(scipy.fft.idstn(transformed, **transform))

    def _on_gpu(self, nodes: torch.Tensor) -> torch.Tensor:
        scale = [2 * (n + 1) for n in nodes.shape[1:]]
        r = nodes.to(self._inverse.device)
        transformed = sine_transform(sine_transform(r, 1), 2) * self._inverse
        return sine_transform(sine_transform(transformed, 1), 2) / (scale[0] * scale[1])


class DistributedSolve:
    """Each rank transforms some rows and some columns: for more nodes than a rank should hold.

    Four redistributions and one reduction take the place of the one collective.

    Parameters
    ----------
    problems
        Problems that are solved at once, one after another here.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        symbol: Symbol,
        *,
        problems: int,
        clock: Stopwatch,
    ):
        lattice = block.lattice
        own = Layout(lattice.subdomains, ranks.dims, (Shard(0), Shard(1)))

        def eigenvalues(rows: slice, columns: slice) -> np.ndarray:
            y, x = (np.arange(part.start, part.stop) + 1 for part in (rows, columns))
            return symbol(y[:, None], x)

        target = nodes_layout(ranks, lattice, halo=block.halo)
        self._ranks = ranks
        self._solve = SineSolve(own, target, eigenvalues, ranks)
        self._mine = np.empty((problems, *own.local_shape(ranks.rank)))
        self._solution = np.empty(target.local_shape(ranks.rank))
        self._solving = clock.part("coarse")
        self._communicating = clock.part("communication")

    def __call__(self, residual: torch.Tensor, sums: np.ndarray, out: torch.Tensor) -> np.ndarray:
        """Do as `ReplicatedSolve`; see there."""
        with self._communicating:
            totals = self._ranks.sum(sums) if len(sums) else sums
        with self._solving:
            torch.from_numpy(self._mine).copy_(residual)
            for mine, correction in zip(self._mine, out, strict=True):
                self._solve(mine, self._solution)
                correction.copy_(torch.from_numpy(self._solution))
        return totals
