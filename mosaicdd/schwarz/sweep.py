"""The additive sweep: one application of all local solvers, ``v -> T v`` on the interface.

All subdomains start from the same values and are blended by the partition of unity; the result does
not depend on the process grid.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from mosaicdd.axes import Slices
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface, interface_received, interface_sent
from mosaicdd.schwarz.local_solvers.bound import BlockPlan
from mosaicdd.schwarz.transfer import Batch, Transfer, batch_shape, batches
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.tensors import Tensors


@dataclass(frozen=True)
class SweepContext:
    """A block of a rank, and how so many problems are solved there at once."""

    ranks: Ranks
    block: Block
    # How the iteration works; of the rest, batches, device and precision count
    settings: SolveSettings
    problems: int = 1
    clock: Stopwatch = field(default_factory=Stopwatch)  # adds up where the time goes

    @property
    def tensors(self) -> Tensors:
        """Device and type of the tensors of the iteration."""
        return self.settings.tensors

    @property
    def largest(self) -> int:
        """Subdomains per call of the local solver, at most, of each problem."""
        most = self.settings.batch_subdomains // self.problems
        return max(1, min(most, math.prod(self.block.region_subdomains)))

    def on(self, block: Block) -> "SweepContext":
        """Return the same on another block."""
        return dataclasses.replace(self, block=block)


class Sweep:
    """The planned local solver, which batch after batch is put through.

    ``plan``: the local solver, planned for the centre lines.
    """

    def __init__(self, task: SweepContext, plan: BlockPlan):
        self._plan = plan
        self._largest, self._problems = task.largest, task.problems
        subdomain, rows = task.block.lattice.subdomain, task.problems * task.largest
        self._transfer = Transfer(task.block, **task.tensors)
        self._perimeters = torch.empty(rows, len(subdomain.perimeter), **task.tensors)
        self._centre_lines = torch.empty(rows, len(subdomain.centre_lines), **task.tensors)
        self._moving = task.clock.part("gather_scatter")
        self._solving = task.clock.part("local_solve")

    @property
    def affine(self) -> bool:
        """Whether a source adds to what the local solvers make of perimeters."""
        return self._plan.affine

    def batches(self, part: Slices, step: int = 1) -> list[Batch]:
        """Cut a part of the region into batches that fit the buffers."""
        return list(batches(part, self._largest, step))

    def centre_lines(self, batch: Batch) -> torch.Tensor:
        """Return the buffer ``(B, 2 (m - 1))`` for the centre lines of a batch."""
        return self._centre_lines[: self._problems * math.prod(batch_shape(batch))]

    def restricted(self, v: Interface, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the perimeters of a batch, and the buffer for its centre lines."""
        values = self.centre_lines(batch)
        perimeters = self._perimeters[: len(values)]
        with self._moving:
            self._transfer.restrict(v, batch, perimeters)
        return perimeters, values

    def add_centre_lines(self, values: torch.Tensor, batch: Batch, out: Interface) -> None:
        """Add centre lines, weighted by the partition of unity; ``values`` is overwritten."""
        with self._moving:
            self._transfer.weigh(values, batch)
            self._transfer.add(values, batch, out)

    def add_weighted(
        self, values: torch.Tensor, batch: Batch, out: Interface, factor: float = 1.0
    ) -> None:
        """Add centre lines that have the weights of `Lattice.hat` already; they are overwritten."""
        with self._moving:
            self._transfer.weigh_at_edges(values, batch)
            self._transfer.add(values, batch, out, factor)

    def put(self, values: torch.Tensor, batch: Batch, out: Interface) -> None:
        """Overwrite the centre lines of subdomains that do not overlap."""
        with self._moving:
            self._transfer.put(values, batch, out)

    def solve(self, v: Interface, batch: Batch) -> torch.Tensor:
        """Apply the local solver to a batch; return its centre lines ``(B, 2 (m - 1))``."""
        perimeters, values = self.restricted(v, batch)
        with self._solving:
            self._plan(batch, perimeters, values)
        return values

    def add_local_solutions(
        self, v: Interface, out: Interface, members: Iterable[Batch], factor: float = 1.0
    ) -> None:
        """Add to ``out`` what batches of subdomains contribute to ``T v``, times a factor.

        All from the same values, blended by the partition of unity: the local solver is planned with the weights of
        `Lattice.hat`.
        """
        for batch in members:
            self.add_weighted(self.solve(v, batch), batch, out, factor)


def interface_exchange(
    ranks: Ranks, block: Block, settings: SolveSettings, problems: int = 1
) -> HaloExchange:
    """Plan the exchange of what neighbouring blocks contribute to each other's interface.

    `ValueError` if a region would reach beyond the neighbours.
    """
    tensors = settings.tensors
    for count, across in zip(block.lattice.subdomains, ranks.dims, strict=True):
        if across > 1 and count // across < block.halo:
            raise ValueError(
                f"a halo depth of {block.halo} needs as many subdomains per rank along each axis, "
                f"{count} on {across} ranks leave {count // across}; use halo_depth="
                f"{count // across}"
            )
    lines = sum(math.prod(block.line_shape(axis)) for axis in range(len(block.cells)))
    flat = torch.empty(problems * lines, **tensors)
    shapes = Interface(block, problems=problems, flat=flat, **tensors)
    return HaloExchange(
        ranks,
        shapes.lines,
        lambda direction: interface_sent(block, direction),
        lambda direction: interface_received(block, direction),
        dtype=getattr(torch, settings.halo_dtype),
        buffers=settings.mpi_buffers,
    )
