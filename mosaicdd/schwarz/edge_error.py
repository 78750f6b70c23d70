"""What a local solver gets wrong between the lattice lines, along the edge of the domain.

An estimate from the interface sees the lattice lines only. Inside, what is wrong between them is
wrong on them, too; but rough boundary data fade before they reach the first line, and with them the
error. So in the subdomains along the edge the local solver is compared with the exact one at all
nodes. By the convexity of the square, the weighted squares add up to a bound of the blended error's.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch, Transfer, batch_shape, batches
from mosaicdd.local_solvers.base import LocalSolver
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.parallel.process_grid import ProcessGrid

_BATCH = 64


class EdgeError:
    """Compares a local solver with the exact one along the edge; planned once for a block."""

    def __init__(
        self,
        grid: ProcessGrid,
        block: Block,
        local_solver: LocalSolver,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ):
        tensors = {"device": device, "dtype": dtype}
        subdomain = local_solver.subdomain
        exact = ExactSolver(local_solver.equation, subdomain)
        solvers = () if type(local_solver) is ExactSolver else (local_solver, exact)
        self._plans = [solver.plan(subdomain.interior, **tensors) for solver in solvers]
        self._grid = grid
        self._block = block
        self._transfer = Transfer(block, **tensors)
        self._tensors = tensors

    def __call__(self, v: Interface) -> float:
        """Return the root mean square over the nodes inside the domain."""
        if not self._plans:
            return 0.0
        square = sum(self._square(v, batch) for batch in self._batches())
        inside = math.prod(n - 1 for n in self._block.lattice.grid.shape)
        return float(np.sqrt(self._grid.sum(np.array([float(square)]))[0] / inside))

    def _batches(self) -> Iterator[Batch]:
        """Yield the block's subdomains along the edge of the domain: rows, then columns."""
        count = self._block.subdomains
        ends = [
            sorted(
                {index for index, at in zip((0, n - 1), self._block.at_edge(a), strict=True) if at}
            )
            for a, n in enumerate(count)
        ]
        between = slice(*_without(ends[0], count[0]))
        for axis, shape in ((0, (1, count[1])), (1, (between.stop - between.start, 1))):
            for end in ends[axis]:
                first = (end, 0) if axis == 0 else (between.start, end)
                for part in batches(shape, _BATCH) if min(shape) > 0 else ():
                    yield tuple(
                        slice(f + p.start, f + p.stop, 1) for f, p in zip(first, part, strict=True)
                    )

    def _square(self, v: Interface, batch: Batch) -> float:
        """Return the sum of the weighted squares of the differences in a batch."""
        rows, columns = batch_shape(batch)
        m = self._transfer.m
        perimeters = torch.empty(rows * columns, 4 * m, **self._tensors)
        self._transfer.restrict(v, batch, perimeters)
        values = [torch.empty(rows * columns, (m - 1) ** 2, **self._tensors) for _ in self._plans]
        for plan, out in zip(self._plans, values, strict=True):
            plan(perimeters, out)
        squares = torch.sub(*values).square_().view(rows, columns, m - 1, m - 1)
        hats_y, hats_x = (h[part] for h, part in zip(self._transfer.hats, batch, strict=True))
        return torch.einsum("rcyx,ry,cx->", squares, hats_y, hats_x).item()


def _without(ends: list[int], count: int) -> tuple[int, int]:
    """Return start and stop of ``0..count`` without the ends."""
    start = 1 if 0 in ends else 0
    return start, max(start, count - 1 if count - 1 in ends else count)
