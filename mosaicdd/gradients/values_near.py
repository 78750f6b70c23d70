"""Values beside the outline of a shape as `sample_near` has them, in torch, which differentiates them."""

import itertools

import numpy as np
import torch

from mosaicdd.problems.shapes.apertures import Cover


class ValuesNear:
    """What counts of values at the nodes of a part, or in the cells between them.

    ``cover``: what the domain has of the cells around the nodes. ``near``: which nodes are inside, or beside one that is.

    `ValueError` if it does not say where values are known.
    """

    def __init__(self, cover: Cover):
        if cover.inside is None:
            raise ValueError("a cover without nodes inside has no outline")
        ring, axes = cover.inside, cover.inside.ndim
        shape = tuple(n - 2 for n in ring.shape)
        steps = list(itertools.product((-1, 0, 1), repeat=axes))
        places = [
            tuple(slice(1 + d, n + 1 + d) for n, d in zip(shape, step, strict=True))
            for step in steps
        ]
        near = np.logical_or.reduce([ring[place] for place in places])
        known = ring[(slice(1, -1),) * axes]
        nodes = np.argwhere(near & ~known)
        around = nodes[:, None] + np.array(steps)
        here = ((around >= 0) & (around < shape)).all(axis=2)
        flat = np.ravel_multi_index(
            tuple(np.moveaxis(np.where(here[..., None], around, 0), 2, 0)), shape
        )
        here &= known.reshape(-1)[flat]
        self.near, self._here = torch.from_numpy(near), torch.from_numpy(here)
        self._nodes = torch.from_numpy(np.ravel_multi_index(tuple(nodes.T), shape))
        self._around = torch.from_numpy(np.where(here, flat, 0))
        counts = np.ones(shape, bool) if cover.counts is None else cover.counts
        self._counts = torch.from_numpy(counts).reshape(-1)[self._nodes]
        cells = cover.cells
        if cells is None:
            cells = np.zeros(tuple(n - 1 for n in ring.shape), bool)
            for corner in itertools.product((0, 1), repeat=axes):
                cells |= ring[
                    tuple(slice(c, n + c) for c, n in zip(corner, cells.shape, strict=True))
                ]
        self._cells = torch.from_numpy(cells[(slice(1, -1),) * axes])

    def __call__(self, values: torch.Tensor, fill: float, *, counts: bool) -> torch.Tensor:
        """Return them; ``fill`` further out, of cells outside 1.

        ``counts``: whether means replace what is given at nodes without a volume.
        """
        if not values.ndim:
            return values
        if values.shape == self._cells.shape:
            return torch.where(self._cells, values, 1.0)
        flat = values.reshape(-1)
        held = flat[self._nodes]
        lacking = ~held.isfinite()
        if counts:
            lacking = lacking | ~self._counts
        sums = torch.where(self._here, flat[self._around], 0.0).sum(dim=1)
        means = sums / self._here.sum(dim=1).clamp(min=1)
        near = torch.where(self.near, values, fill).reshape(-1)
        return near.index_copy(0, self._nodes, torch.where(lacking, means, held)).reshape(
            values.shape
        )
