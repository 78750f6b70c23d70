"""Local solvers put to work on a block: the iteration, and the fill of its result or of a window."""

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.bound import BlockPlan, PlannedSolver, SharedSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.coarse.coarse_space import CoarseSpace, SharedCoarseSpace
from mosaicdd.schwarz.fill import FILL_HALO, Fill, Strip, in_window
from mosaicdd.schwarz.fixed_point import FixedPoint, Iteration
from mosaicdd.schwarz.phases import PhaseIteration
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sizes import fill_batch
from mosaicdd.schwarz.stopwatch import Stopwatch


class Method(ABC):
    """The iteration ``v -> M v`` with local solvers, planned for a block.

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
        settings: SolveSettings,
        coarse_points: int = 1,
        problems: int = 1,
        clock: Stopwatch | None = None,
    ):
        self.block = block
        self._settings = settings
        self._problems = problems
        self._clock = clock or Stopwatch()
        points, shared = block.lattice.subdomain.centre_lines, (settings, problems, self._clock)
        if settings.sweep == "phases":
            plan = self._plan(block, points, kept=True)
            self.iterate: Iteration = PhaseIteration(ranks, block, plan, *shared)
            return
        axes = len(block.cells)
        crossed_hats = functools.reduce(
            np.multiply.outer, [block.lattice.hat] * (axes - 1), np.ones(())
        )
        weights = np.tile(crossed_hats.ravel(), axes)
        plan, coarse_space = self._plan(block, points, weights, kept=True), None
        if settings.levels == 2:
            hats = torch.from_numpy(block.lattice.subdomain.hats(coarse_points))
            responses = plan.responses(hats.to(**settings.tensors))
            coarse_space = self._coarse_space(ranks, responses, coarse_points)
        self.iterate = FixedPoint(ranks, block, plan, *shared, coarse_space)

    def plan_fill(self, part: Block | None = None) -> Fill:
        """Plan the fill of the nodes that a part of the block owns, by default the block."""
        batch = fill_batch(self._settings.batch_subdomains)
        wide = dataclasses.replace(part or self.block, halo=FILL_HALO)
        plan = self._plan(wide, wide.lattice.subdomain.interior)
        shared = (self._settings, self._problems, self._clock)
        return Fill(wide, plan, *shared, batch_subdomains=batch)

    @abstractmethod
    def _plan(
        self,
        block: Block,
        points: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        kept: bool = False,
    ) -> PlannedSolver:
        """Plan the local solvers for a block, at some points; see `BlockPlan`."""

    @abstractmethod
    def _coarse_space(self, ranks: Ranks, responses: torch.Tensor, points: int) -> CoarseSpace:
        """Plan the coarse correction from the responses to hats."""


class SharedMethod(Method):
    """That with one local solver for all subdomains."""

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
        self.local_solver = local_solver
        super().__init__(ranks, block, settings, coarse_points, problems, clock)

    def _plan(
        self,
        block: Block,
        points: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        kept: bool = False,
    ) -> PlannedSolver:
        tensors = self._settings.tensors
        return BlockPlan(self.local_solver, block, points, **tensors, weights=weights, kept=kept)

    def _coarse_space(self, ranks: Ranks, responses: torch.Tensor, points: int) -> CoarseSpace:
        where = ranks, self.block, self.local_solver.operator, responses, points
        return SharedCoarseSpace(*where, self._settings, self._problems, self._clock)


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
