"""The final fill: every node of the field from the subdomains around it, blended.

The weights are products of the hats along both axes, a partition of unity of the plane that on
the lattice lines is that of the sweep: there the field is ``T v``.
"""

import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.sharing import field_received, field_sent
from mosaicdd.lattice.transfer import Batch, Transfer, batch_shape, batches
from mosaicdd.local_solvers.base import Plan
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.process_grid import ProcessGrid


class Fill:
    """Predicts the values at all nodes of a block's region.

    Parameters
    ----------
    plan
        The local solver, planned for the nodes inside a subdomain.
    batch_subdomains
        Subdomains per call of the local solver, at most.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        block: Block,
        plan: Plan,
        *,
        batch_subdomains: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        y, x = block.subdomains
        largest = min(batch_subdomains, y * x)
        self.m = block.lattice.subdomain.cells
        self._block = block
        self._plan = plan
        self._transfer = Transfer(block, device=device, dtype=dtype)
        self._perimeters = torch.empty(largest, 4 * self.m, device=device, dtype=dtype)
        self._values = torch.empty(largest, (self.m - 1) ** 2, device=device, dtype=dtype)
        self._batches = list(batches(block.subdomains, largest))
        self.region = torch.zeros([n + 1 for n in block.cells], device=device, dtype=dtype)
        self._exchange = HaloExchange(
            grid,
            [self.region],
            lambda direction: field_sent(block, direction),
            lambda direction: field_received(block, direction),
        )

    def __call__(self, v: Interface) -> torch.Tensor:
        """Return the owned part of the field (``Block.owned_nodes``), edge values included."""
        self.region.zero_()
        for batch in self._batches:
            rows, columns = batch_shape(batch)
            values = self._values[: rows * columns]
            perimeters = self._perimeters[: rows * columns]
            self._transfer.restrict(v, batch, perimeters)
            self._plan(perimeters, values)
            self._blend(values.view(rows, columns, self.m - 1, self.m - 1), batch)
        self._exchange.add([self.region])
        self._copy_edges(v)
        local, _ = self._block.owned_nodes()
        return self.region[local]

    def on_lines(self, v: Interface) -> Interface:
        """Return the filled values on the lattice lines, which are ``T v``."""
        result, s = v.like(), self._transfer.s
        result.lines[0].copy_(self.region[::s])
        result.lines[1].copy_(self.region[:, ::s].T)
        return result

    def _blend(self, values: torch.Tensor, batch: Batch) -> None:
        """Add the weighted values ``(rows, columns, m - 1, m - 1)`` to the region."""
        hats_y, hats_x = (hats[part] for hats, part in zip(self._transfer.hats, batch, strict=True))
        values *= hats_x[None, :, None, :]
        values *= hats_y[:, None, :, None]
        s = self._transfer.s
        windows = self.region[1:, 1:].unfold(0, self.m - 1, s).unfold(1, self.m - 1, s)[batch]
        for row in (0, 1):  # every second subdomain: these do not overlap
            for column in (0, 1):
                windows[row::2, column::2] += values[row::2, column::2]

    def _copy_edges(self, v: Interface) -> None:
        for axis, lines in enumerate(v.lines):
            for end, at in zip((0, -1), self._block.at_edge(axis), strict=True):
                if at:
                    self.region.select(axis, end % self.region.shape[axis]).copy_(lines[end])
