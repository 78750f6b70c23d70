"""The coarse problem, solved by sine transforms, which diagonalise its constant stencil."""

from collections.abc import Callable

import numpy as np
import scipy.fft
import torch

from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.process_grid import Dims, ProcessGrid
from mosaicdd.schwarz.sine_transform import sine_transform
from mosaicdd.schwarz.stopwatch import Stopwatch


class ReplicatedSolve:
    """Every rank solves the whole coarse problem: one collective, and the same answer everywhere.

    Parameters
    ----------
    symbol
        ``symbol(ky, kx)``: eigenvalues of the coarse operator for transform indices from 1.
    sums
        Numbers, at most, that travel in the collective.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        counts: Dims,
        symbol: Callable[[np.ndarray, np.ndarray], np.ndarray],
        *,
        problems: int,
        sums: int,
        device: torch.device,
        clock: Stopwatch,
    ):
        self._gather = NodeGather(grid, counts, problems=problems, sums=sums)
        y, x = (np.arange(1, n + 1) for n in counts)
        self._inverse = torch.from_numpy(1.0 / symbol(y[:, None], x)).to(device)
        self._communicating = clock.part("communication")
        self._solving = clock.part("coarse")

    def __call__(self, residual: torch.Tensor, sums: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        """Return the correction at all nodes, ``(n, *counts)``, and the sums over the ranks."""
        with self._communicating:
            nodes, totals = self._gather(residual, sums)
        with self._solving:
            solve = self._on_gpu if self._inverse.is_cuda else self._on_cpu
            return solve(nodes), totals

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
