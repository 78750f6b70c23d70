"""Sweeps: one application of all local solvers, ``v -> T v`` on the interface.

`AdditiveSweep` lets all subdomains start from the same values and blends them by the partition of
unity; its result does not depend on the process grid. `PhaseSweep` is the paper's (section 4.2):
four placements of subdomains that do not overlap, one after another, each seeing the newest
values.
"""

import itertools
from collections.abc import Iterable

import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.sharing import interface_received, interface_sent
from mosaicdd.lattice.transfer import Batch, Transfer, batch_shape, batches
from mosaicdd.local_solvers.base import Plan
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.process_grid import ProcessGrid


class Sweep:
    """What both sweeps share: buffers, transfers, halo exchange and the planned local solver.

    Parameters
    ----------
    plan
        The local solver, planned for the centre lines.
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
        m = block.lattice.subdomain.cells
        self._plan = plan
        self._transfer = Transfer(block, device=device, dtype=dtype)
        self._perimeters = torch.empty(largest, 4 * m, device=device, dtype=dtype)
        self._centre_lines = torch.empty(largest, 2 * (m - 1), device=device, dtype=dtype)
        self.batches = list(batches(block.subdomains, largest))
        self.exchange = HaloExchange(
            grid,
            Interface(block, device=device, dtype=dtype).lines,
            lambda direction: interface_sent(block, direction),
            lambda direction: interface_received(block, direction),
        )

    def centre_lines(self, batch: Batch) -> torch.Tensor:
        """Return the buffer ``(B, 2 (m - 1))`` for the centre lines of a batch."""
        rows, columns = batch_shape(batch)
        return self._centre_lines[: rows * columns]

    def solve(self, v: Interface, batch: Batch) -> torch.Tensor:
        """Apply the local solver to a batch; return its centre lines ``(B, 2 (m - 1))``."""
        values = self.centre_lines(batch)
        perimeters = self._perimeters[: len(values)]
        self._transfer.restrict(v, batch, perimeters)
        self._plan(perimeters, values)
        return values

    def blend(self, values: torch.Tensor, batch: Batch, out: Interface) -> None:
        """Add centre lines, weighted by the partition of unity; ``values`` is overwritten."""
        self._transfer.weigh(values, batch)
        self._transfer.add(values, batch, out)

    def put(self, values: torch.Tensor, batch: Batch, out: Interface) -> None:
        """Overwrite the centre lines of subdomains that do not overlap."""
        self._transfer.put(values, batch, out)


class AdditiveSweep(Sweep):
    """All subdomains from the same values, blended by the partition of unity."""

    def contribute(self, v: Interface, out: Interface) -> None:
        """Write what the owned subdomains contribute to ``T v``; complete at the owned nodes."""
        out.clear_inner()
        for batch in self.batches:
            self.blend(self.solve(v, batch), batch, out)

    def __call__(self, v: Interface, out: Interface) -> torch.Tensor:
        """Write ``T v`` to ``out``, whose edge values are kept; return ``R (T v - v)``."""
        self.contribute(v, out)
        self.exchange.add(out.lines)
        return out.nodes() - v.nodes()


class PhaseSweep(Sweep):
    """Four phases of subdomains that do not overlap, each from the newest values.

    Parameters
    ----------
    sync
        ``"phase"``: ranks exchange after each phase, and the result does not depend on the process
        grid. ``"iteration"``: once after all four, the paper's relaxation; where two ranks then
        hold different values for a node, these are blended by the partition of unity.
    """

    def __init__(self, grid: ProcessGrid, block: Block, plan: Plan, *, sync: str, **buffers):
        super().__init__(grid, block, plan, **buffers)
        self._sync = sync
        self._phases = []
        for colour in itertools.product((0, 1), repeat=2):
            first = [(c - a) % 2 for c, a in zip(colour, block.start, strict=True)]
            self._phases.append(
                list(batches(block.subdomains, buffers["batch_subdomains"], first, step=2))
            )
        self._agreements = []
        if grid.size > 1:
            self._scratch = Interface(block, device=buffers["device"], dtype=buffers["dtype"])
            if sync == "phase":
                self._agreements = [self._agreement(phase, self.put) for phase in self._phases]
            else:
                self._agreements = [self._agreement(self.batches, self.blend)]

    def _agreement(self, members: Iterable[Batch], place) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight of this rank's value at each node, and where any rank has one."""
        weights = self._scratch.like()
        for batch in members:
            place(self.centre_lines(batch).fill_(1.0), batch, weights)
        own = weights.flat.clone()
        self.exchange.add(weights.lines)
        return own, weights.flat > 0

    def _agree(self, v: Interface, own: torch.Tensor, anywhere: torch.Tensor) -> None:
        """Replace what was computed in common by the weighted sum over the ranks."""
        torch.mul(v.flat, own, out=self._scratch.flat)
        self.exchange.add(self._scratch.lines)
        torch.where(anywhere, self._scratch.flat, v.flat, out=v.flat)

    def __call__(self, v: Interface, out: Interface) -> torch.Tensor:
        """Write the values after the four phases to ``out``; return ``R (T v - v)``."""
        out.flat.copy_(v.flat)
        for number, phase in enumerate(self._phases):
            for batch in phase:
                self.put(self.solve(out, batch), batch, out)
            if self._agreements and self._sync == "phase":
                self._agree(out, *self._agreements[number])
        if self._agreements and self._sync == "iteration":
            self._agree(out, *self._agreements[0])
        return out.nodes() - v.nodes()
