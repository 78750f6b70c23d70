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
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.lattice.transfer import Batch, Transfer, batch_shape, batches
from mosaicdd.local_solvers.base import LocalSolver, Plan
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.reflection_plan import linear_plan
from mosaicdd.parallel.process_grid import ProcessGrid

_BATCH = 64  # subdomains of all problems: their values at all nodes stay in the cache


class EdgeError:
    """Compares a local solver with the exact one along the edge; planned once for a block."""

    def __init__(
        self,
        grid: ProcessGrid,
        block: Block,
        local_solver: LocalSolver,
        exact: ExactSolver,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ):
        tensors = {"device": device, "dtype": dtype}
        subdomain = local_solver.subdomain
        solvers = () if type(local_solver) is ExactSolver else (local_solver, exact)
        self._plans = [solver.plan(subdomain.interior, **tensors) for solver in solvers]
        if solvers and local_solver.linear:
            self._plans = [self._difference(subdomain, **tensors)]
        self._grid = grid
        self._block = block
        self._transfer = Transfer(block, **tensors)
        self._tensors = tensors

    def _difference(
        self, subdomain: Subdomain, *, device: torch.device, dtype: torch.dtype
    ) -> Plan:
        """Plan what two linear local solvers differ by: half of the work of both."""
        unit = torch.eye(4 * subdomain.cells, device=device, dtype=dtype)
        values = unit.new_empty(len(unit), len(subdomain.interior))
        operators = []
        for plan in self._plans:
            plan(unit, values)
            operators.append(values.mT.cpu().numpy().copy())
        difference = np.subtract(*operators)
        return linear_plan(difference, subdomain.interior, subdomain, device=device, dtype=dtype)

    def __call__(self, v: Interface) -> np.ndarray:
        """Return the root mean square over the nodes inside the domain, ``(n,)``."""
        total = np.zeros(v.problems)
        if not self._plans:
            return total
        for batch in self._batches(max(1, _BATCH // v.problems)):
            total += self._square(v, batch)
        inside = math.prod(n - 1 for n in self._block.lattice.grid.shape)
        return np.sqrt(self._grid.sum(total) / inside)

    def _batches(self, largest: int) -> Iterator[Batch]:
        """Yield the owned subdomains along the edge of the domain: rows, then columns."""
        block = self._block
        rows, columns = block.ring(0)
        inside = []  # the others, per axis
        for part, start, stop, cells in zip(
            (rows, columns), block.start, block.stop, block.lattice.cells, strict=True
        ):
            first = part.start + (start == 1)
            inside.append(slice(first, max(first, part.stop - (stop == cells))))
        for along, part in ((0, rows), (1, columns)):
            ends = (slice(part.start, inside[along].start), slice(inside[along].stop, part.stop))
            for end in ends:
                strip = (end, columns) if along == 0 else (inside[0], end)
                yield from batches(strip, largest)

    def _square(self, v: Interface, batch: Batch) -> np.ndarray:
        """Return the sum of the weighted squares of the differences in a batch, ``(n,)``."""
        rows, columns = batch_shape(batch)
        m, count = self._transfer.m, v.problems * rows * columns
        perimeters = torch.empty(count, 4 * m, **self._tensors)
        self._transfer.restrict(v, batch, perimeters)
        values = [torch.empty(count, (m - 1) ** 2, **self._tensors) for _ in self._plans]
        for plan, out in zip(self._plans, values, strict=True):
            plan(perimeters, out)
        difference = values[0] if len(values) == 1 else torch.sub(*values, out=values[0])
        squares = difference.square_().view(v.problems, -1)
        hats_y, hats_x = (h[part] for h, part in zip(self._transfer.hats, batch, strict=True))
        weights = hats_y[:, None, :, None] * hats_x[:, None, :]  # (rows, columns, y, x)
        return (squares @ weights.reshape(-1)).double().cpu().numpy()
