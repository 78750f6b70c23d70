"""A coarse equation of a whole medium over ranks, as a function of its conductances that torch differentiates through.

Every rank has the conductances around its own coarse nodes; multigrid solves with those of all, and its gradient comes of one
adjoint solve in the same system, whose levels are there:

    ``A u = b``,   ``A l = dL/du``,   ``dL/dk_e = - (l_i - l_j) (u_i - u_j)`` for the edge ``e`` between ``i, j``.

A rank has this of the edges that are its own, and zero of others, so sums over the ranks are right.

Shape letters: ``q`` problems, ``R`` and ``C`` coarse nodes that are around a rank's own.
"""

import math
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, ends, ends_of, steps_across, within
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.multigrid.shares import Shares
from mosaicdd.schwarz.multigrid.stabilised_gradients import gradients_of, try_out
from mosaicdd.schwarz.settings import StoppingRule

BESIDE = 8
"""Coarse nodes around its own that a rank knows conductances between: the copies of four colours, and one more."""

_RULE = StoppingRule(rtol=1e-12)
_ENOUGH = (
    1e-8  # true relative residual of a solution that counts, where rounding lets it come no further
)


class OwnNodes:
    """Which coarse nodes of a medium of so many coarse cells a rank has.

    Attributes
    ----------
    cells, low
        Coarse cells of the rank, and the nodes at their lower left, each of which is one rank's.
    own
        The nodes among these that have an unknown.
    wide
        All that are around them.
    """

    def __init__(self, ranks: Ranks, cells: int):
        self.ranks, self.cells = ranks, cells
        # Their first and last ones; the nodes at the edge of the medium have given values.
        self.ranges = [
            [(max(c * (cells // n), 1), (c + 1) * (cells // n) - 1) for c in range(n)]
            for n in ranks.dims
        ]
        mine = [per_rank[c] for per_rank, c in zip(self.ranges, ranks.coords, strict=True)]
        self.own = tuple(slice(first, last + 1) for first, last in mine)
        self.low = tuple(slice(first - (first == 1), last + 1) for first, last in mine)
        self.wide = tuple(
            slice(max(first - BESIDE, 0), min(last + BESIDE, cells) + 1) for first, last in mine
        )

    @property
    def unknowns(self) -> int:
        """Of all ranks."""
        return (self.cells - 1) ** 2


class SummedUp(torch.autograd.Function):
    """Sums over the ranks, which all ranks go on with in the same way.

    ``SummedUp.apply(ranks, values)``.
    """

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, values: torch.Tensor) -> torch.Tensor:
        """Add up."""
        ctx.size = ranks.size
        return torch.from_numpy(ranks.sum(values.numpy()))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        """Return the sum of the gradients of all ranks, which are the same."""
        return None, ctx.size * gradient


class SharedSolve(torch.autograd.Function):
    """Solutions at the coarse nodes, inner ones given the outer ones; NaN where the conductances make no equation.

    ``SharedSolve.apply(nodes, u, b, *k)``: values ``(q, R, C)``, of which those at the edge of the medium count, and inside the
    iteration begins with them; right-hand sides ``(q, R, C)``; conductances as `coarse_conductances` has them, of one
    medium. All ranks together.
    """

    @staticmethod
    def forward(
        ctx: Any, nodes: OwnNodes, u: torch.Tensor, b: torch.Tensor, *k: torch.Tensor
    ) -> torch.Tensor:
        """Return ``u``, right at the own nodes and next to them."""
        ctx.count, ctx.system = len(k), _SharedSystem.of(nodes, [part.numpy() for part in k])
        u = ctx.system.solve(u.numpy(), b.numpy()) if ctx.system else torch.full_like(u, math.nan)
        ctx.save_for_backward(u, *k)
        return u

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the conductances."""
        u, *k = ctx.saved_tensors
        if ctx.system is None:
            return None, None, None, *(torch.full_like(part, math.nan) for part in k)
        adjoint = ctx.system.solve(np.zeros(u.shape), gradient.numpy())
        return None, None, None, *ctx.system.slopes(u, adjoint, k)


class _SharedSystem:
    """What is planned of a medium for all its problems."""

    def __init__(self, nodes: OwnNodes, k: list[np.ndarray]):
        right, up, *across = k
        shape = [part.stop - part.start for part in nodes.wide]
        self._nodes, self._ranks = nodes, nodes.ranks
        self._conductances = Conductances((up, right), np.zeros(shape), across=tuple(across))
        blocks = Blocks(nodes.ranks, Shares(nodes.ranges, 4 if across else 2))
        start = [part.start for part in nodes.wide]
        self._system = NodeSystem(blocks, self._conductances, start)
        self._gradients = gradients_of(self._system)
        try_out(self._gradients)

    @classmethod
    def of(cls, nodes: OwnNodes, k: list[np.ndarray]) -> "_SharedSystem | None":
        """Plan; None, on all ranks, if conductances are not positive or not finite on one."""
        sound = all(np.isfinite(part).all() and (part > 0).all() for part in k)
        if nodes.ranks.any(not sound):
            return None
        return cls(nodes, [part[0] for part in k])

    def solve(self, u: np.ndarray, b: np.ndarray) -> torch.Tensor:
        """Solve for each problem; NaN if the residual of one is not small."""
        system, wide = self._system, self._nodes.wide
        box = within(tuple(slice(first, last + 1) for first, last in system.nodes.box), wide)
        inside = tuple(slice(part.start - 1, part.stop - 1) for part in box)
        own = within(self._nodes.own, wide)
        lifted = u.copy()  # what is given at the edge of the medium
        lifted[:, *box] = 0.0
        solved = lifted.copy()
        for i, values in enumerate(lifted):
            right = b[i][box] - self._conductances.apply(values)[inside]
            here = np.zeros(values.shape)
            here[box] = right
            (squares,) = self._ranks.sum(np.array([np.square(here[own]).sum()]))
            x = system.vector(u[i][box])
            judge = Judge(_RULE, None, None, None, lambda x, history: None, system.size_here)
            self._gradients(system.vector(right), x, math.sqrt(squares) or 1.0, judge)
            solved[i][box] = system.values(x)
            if not judge.history.residual[-1] <= _ENOUGH:
                solved[i][box] = math.nan
        return torch.from_numpy(solved)

    def slopes(
        self, u: torch.Tensor, adjoint: torch.Tensor, k: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the derivatives by the conductances of own edges, zero elsewhere."""
        own = within(self._nodes.low, self._nodes.wide)
        pairs: list[tuple[Slices, Slices]] = [
            ends(1, 2),
            ends(0, 2),
            *map(ends_of, steps_across(2)),
        ]
        slopes = [torch.zeros_like(part) for part in k]
        for slope, (first, second) in zip(slopes, pairs, strict=False):
            # Of values at both ends of every edge.
            rise, fall = (values[:, *second] - values[:, *first] for values in (u, adjoint))
            slope[0][own] = -(rise * fall).sum(dim=0)[own]
        return slopes
