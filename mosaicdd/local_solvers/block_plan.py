"""A bound local solver put to work on a block: values for batches of its subdomains."""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.transfer import Batch
from mosaicdd.local_solvers.base import BoundSolver
from mosaicdd.local_solvers.source import BlockSource


class BlockPlan:
    """``N g + w`` at fixed query points.

    Parameters
    ----------
    points
        ``(Q, 2)``, (y, x) in cells; with a source, nodes inside the subdomain.
    weights
        ``(Q,)`` factors for the values, as of a partition of unity.
    kept
        Whether ``w`` is kept, as `BlockSource`.

    Attributes
    ----------
    homogeneous
        The map ``N`` alone, ``homogeneous(g, out)``, which is the same for all subdomains.
    """

    def __init__(
        self,
        solver: BoundSolver,
        block: Block,
        points: np.ndarray,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
        kept: bool = False,
    ):
        tensors = {"device": device, "dtype": dtype}
        self.homogeneous = solver.plan(points, **tensors, weights=weights)
        self._source = None
        if solver.source is not None:
            form = {"weights": weights, "kept": kept}
            self._source = BlockSource(solver.source, block, points, **tensors, **form)

    @property
    def affine(self) -> bool:
        """Whether there is a source."""
        return self._source is not None

    def __call__(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` of a batch for its perimeters ``(B, P)`` to ``out``."""
        self.homogeneous(g, out)
        if self._source is not None:
            self._source.add(batch, out)
