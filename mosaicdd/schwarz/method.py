"""Local solvers put to work on a block: the iteration, and the fill of its result."""

import dataclasses
from abc import ABC, abstractmethod

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.local_solvers.bound import BlockPlan, PlannedSolver, SharedSolver
from mosaicdd.schwarz.coarse.coarse_space import CoarseSpace, SharedCoarseSpace
from mosaicdd.schwarz.fill import FILL_HALO, Fill
from mosaicdd.schwarz.fixed_point import FixedPoint, Iteration
from mosaicdd.schwarz.phases import PhaseIteration
from mosaicdd.schwarz.task import Task


class Method(ABC):
    """The iteration ``v -> M v`` with local solvers, planned for a block.

    ``coarse_points``: coarse nodes per lattice cell along a line, with two levels.
    """

    def __init__(self, task: Task, coarse_points: int = 1):
        self.task = task
        block, settings = task.block, task.settings
        points = block.lattice.subdomain.centre_lines
        if settings.sweep == "phases":
            plan = self._plan(block, points, kept=True)
            self.iterate: Iteration = PhaseIteration(task, plan)
            return
        weights = block.lattice.centre_weights
        plan, coarse_space = self._plan(block, points, weights, kept=True), None
        if settings.levels == 2:
            hats = torch.from_numpy(block.lattice.subdomain.hats(coarse_points))
            responses = plan.responses(hats.to(**task.tensors))
            coarse_space = self._coarse_space(responses, coarse_points)
        self.iterate = FixedPoint(task, plan, coarse_space)

    def plan_fill(self, part: Block | None = None) -> Fill:
        """Plan the fill of the nodes that a part of the block owns, by default the block."""
        wide = dataclasses.replace(part or self.task.block, halo=FILL_HALO)
        plan = self._plan(wide, wide.lattice.subdomain.interior)
        return Fill(self.task.on(wide), plan)

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
    def _coarse_space(self, responses: torch.Tensor, points: int) -> CoarseSpace:
        """Plan the coarse correction from the responses to hats."""


class SharedMethod(Method):
    """That with one local solver for all subdomains."""

    def __init__(self, task: Task, local_solver: SharedSolver, coarse_points: int = 1):
        self.local_solver = local_solver
        super().__init__(task, coarse_points)

    def _plan(
        self,
        block: Block,
        points: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        kept: bool = False,
    ) -> PlannedSolver:
        tensors = self.task.tensors
        return BlockPlan(self.local_solver, block, points, **tensors, weights=weights, kept=kept)

    def _coarse_space(self, responses: torch.Tensor, points: int) -> CoarseSpace:
        return SharedCoarseSpace(self.task, self.local_solver.operator, responses, points)
