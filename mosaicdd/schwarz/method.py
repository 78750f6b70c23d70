"""Local solvers put to work on a block: the iteration, and the fill of its result."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch
from mosaicdd.local_solvers.bound import BlockPlan, SharedSolver
from mosaicdd.schwarz.coarse_space import CoarseSpace
from mosaicdd.schwarz.fill import FILL_HALO, Fill
from mosaicdd.schwarz.fixed_point import FixedPoint, Iteration, UpdateSums
from mosaicdd.schwarz.sweep import Sweep, Task, interface_exchange


class PhaseIteration(Iteration):
    """The paper's sweep (section 4.2): four phases of subdomains that do not overlap, in space eight, one after another.

    Each is solved from the newest values; then the ranks agree on what they computed in common.

    With ``settings.sync`` ``"phase"``, ranks exchange after each phase, and the result does not
    depend on the process grid; with ``"iteration"``, once after all four, the paper's relaxation:
    where two ranks then hold different values for a node, these are blended by the partition of
    unity.
    """

    def __init__(self, task: Task, plan: BlockPlan):
        ranks, block = task.ranks, task.block
        self._ranks = ranks
        self._sweep = Sweep(task, plan)
        self._sync = task.settings.sync
        self._communicating = task.clock.part("communication")
        self._scratch = Interface(block, problems=task.problems, **task.tensors)
        self._residual = torch.empty_like(self._scratch.nodes())
        self._phases = []
        for colour in itertools.product((0, 1), repeat=len(block.start)):
            members = tuple(
                slice((c - a) % 2, n)
                for c, a, n in zip(colour, block.start, block.subdomains, strict=True)
            )
            self._phases.append(self._sweep.batches(members, step=2))
        self._agreements = []
        if ranks.size > 1:
            self._exchange = interface_exchange(
                task.ranks, task.block, task.settings, task.problems
            )
            if self._sync == "phase":
                put = self._sweep.put
                self._agreements = [self._agreement(phase, put) for phase in self._phases]
            else:
                everything = self._sweep.batches(block.ring(0))
                self._agreements = [self._agreement(everything, self._sweep.blend)]

    def _agreement(
        self, members: Iterable[Batch], place: Callable[[torch.Tensor, Batch, Interface], None]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight of this rank's value at each node, and where any rank has one."""
        weights = self._scratch.like()
        for batch in members:
            place(self._sweep.centre_lines(batch).fill_(1.0), batch, weights)
        own = weights.flat.clone()
        self._exchange.add(weights.lines)
        return own, weights.flat > 0

    def _agree(self, v: Interface, own: torch.Tensor, anywhere: torch.Tensor) -> None:
        """Replace what was computed in common by the weighted sum over the ranks."""
        with self._communicating:
            torch.mul(v.flat, own, out=self._scratch.flat)
            self._exchange.add(self._scratch.lines)
            torch.where(anywhere, self._scratch.flat, v.flat, out=v.flat)

    def advance(
        self,
        v: Interface,
        out: Interface,
        measure: UpdateSums | None = None,
        relaxation: float = 1.0,
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Write the values after the four phases to ``out``; see `Iteration.advance`."""
        totals = None
        if measure is not None:
            mine = measure.rest()
            with self._communicating:
                totals = self._ranks.sum(mine)
        out.flat.copy_(v.flat)
        for number, phase in enumerate(self._phases):
            for batch in phase:
                self._sweep.put(self._sweep.solve(out, batch), batch, out)
            if self._agreements and self._sync == "phase":
                self._agree(out, *self._agreements[number])
        if self._agreements and self._sync == "iteration":
            self._agree(out, *self._agreements[0])
        residual = torch.sub(out.nodes(), v.nodes(), out=self._residual)
        if relaxation != 1.0:
            torch.lerp(v.flat, out.flat, relaxation, out=out.flat)
        return residual, totals

    def finish(self) -> None:
        """Do nothing: the ranks have agreed already."""


class SharedMethod:
    """The iteration ``v -> M v`` with one local solver for all subdomains, planned for a block.

    ``points``: coarse nodes per lattice cell along a line.
    """

    def __init__(self, task: Task, local_solver: SharedSolver, points: int = 1):
        self.task, self.local_solver = task, local_solver
        self._plan = functools.partial(BlockPlan, local_solver, **task.tensors)
        lattice, settings = task.block.lattice, task.settings
        centre_lines = lattice.subdomain.centre_lines
        if settings.sweep == "phases":
            phases = PhaseIteration(task, self._plan(task.block, centre_lines, kept=True))
            self.iterate: Iteration = phases
            return
        weights = lattice.centre_weights
        planned = self._plan(task.block, centre_lines, weights=weights, kept=True)
        space = None
        if settings.levels == 2:
            hats = torch.from_numpy(lattice.subdomain.hats(points))
            responses = planned.responses(hats.to(**task.tensors))
            space = CoarseSpace(task, local_solver.operator, responses, points)
        self.iterate = FixedPoint(task, planned, space)

    def plan_fill(self, part: Block | None = None) -> Fill:
        """Plan the fill of the nodes that a part of the block owns, by default the block."""
        wide = dataclasses.replace(part or self.task.block, halo=FILL_HALO)
        return Fill(self.task.on(wide), self._plan(wide, wide.lattice.subdomain.interior))
