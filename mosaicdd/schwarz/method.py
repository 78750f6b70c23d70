"""One local solver put to work on a block: the iteration, and the fill of its result or of a window."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.bound import BlockPlan, SharedSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.coarse.coarse_space import SharedCoarseSpace
from mosaicdd.schwarz.fill import FILL_HALO, Fill, Strip, in_window
from mosaicdd.schwarz.fixed_point import FixedPoint, Iteration
from mosaicdd.schwarz.phases import PhaseIteration
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sizes import fill_batch
from mosaicdd.schwarz.stopwatch import Stopwatch


class Method:
    """The iteration ``v -> M v`` with one local solver, planned for a block.

    Parameters
    ----------
    settings
        How the iteration works; of the rest, batches, device and precision count.
    coarse_points
        Coarse nodes per lattice cell along a line, with two levels.
    problems
        Problems that are solved at once.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        local_solver: SharedSolver,
        settings: SolveSettings,
        coarse_points: int = 1,
        problems: int = 1,
        clock: Stopwatch | None = None,
    ):
        self.block = block
        self.local_solver = local_solver
        self._settings = settings
        self._problems = problems
        self._clock = clock or Stopwatch()
        tensors = settings.tensors
        points, shared = block.lattice.subdomain.centre_lines, (settings, problems, self._clock)
        if settings.sweep == "phases":
            plan = BlockPlan(local_solver, block, points, **tensors, kept=True)
            self.iterate: Iteration = PhaseIteration(ranks, block, plan, *shared)
            return
        weights = np.tile(block.lattice.hat, 2)
        plan = BlockPlan(local_solver, block, points, **tensors, weights=weights, kept=True)
        coarse_space = None
        if settings.levels == 2:
            coarse_space = SharedCoarseSpace(
                ranks, block, local_solver, plan.homogeneous, coarse_points, *shared
            )
        self.iterate = FixedPoint(ranks, block, plan, *shared, coarse_space)

    def plan_fill(self, part: Block | None = None) -> Fill:
        """Plan the fill of the nodes that a part of the block owns, by default the block."""
        settings = self._settings
        tensors = settings.tensors
        batch = fill_batch(settings.batch_subdomains)
        wide = dataclasses.replace(part or self.block, halo=FILL_HALO)
        plan = BlockPlan(self.local_solver, wide, wide.lattice.subdomain.interior, **tensors)
        shared = (settings, self._problems, self._clock)
        return Fill(wide, plan, *shared, batch_subdomains=batch)


class WindowFill:
    """Predicts the values at the nodes of a window that a block owns.

    Parameters
    ----------
    method
        Whose block and local solver are used.
    """

    def __init__(self, method: Method, window: Window):
        part = window.part_of(method.block)
        self._window = window
        self._fill = None if part is None else method.plan_fill(part)

    def strips(self, v: Interface) -> Iterator[Strip]:
        """Yield the wanted part of the field, as `Fill.strips`; nothing on a rank without any."""
        if self._fill is None:
            return
        yield from in_window(self._fill.strips(v.part(self._fill.block)), self._window)
