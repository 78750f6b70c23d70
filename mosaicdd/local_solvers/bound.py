"""What the Schwarz iteration asks of a local solver.

A `LocalSolver` is chosen by name and knows no problem yet. *Bound* to one, it knows the operator and
what the source adds (`BoundSolver`); planned for a block, it also knows which subdomain is which
(`BlockPlan`), and the iteration, the fill and the coarse space see only that.

Shape letters in this folder: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``n``
problems solved at once.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.lattice.transfer import Batch
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.source import BlockSource, Source
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.tensors import Tensors

Plan = Callable[[torch.Tensor, torch.Tensor], None]
"""A planned solve, ``plan(g, out)``: perimeters ``(B, P)`` to values at the points ``(B, Q)``."""

OutsideRange = Callable[[torch.Tensor], torch.Tensor]
"""Says which perimeters ``(B, P)`` are outside of the training range: ``(B,)`` booleans."""


class BoundSolver(Protocol):
    """Maps perimeter values to values inside the subdomains of a problem, ``N g + w``.

    Attributes
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    operator, subdomain
        The operator whose equation it solves, and the square on which it does.
    linear
        Whether ``N`` is linear.
    source
        What gives ``w``; None without a source.
    """

    name: str
    operator: EllipticOperator
    subdomain: Subdomain
    linear: bool
    source: Source | None

    def plan(
        self,
        points: np.ndarray,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
    ) -> Plan:
        """Prepare ``N`` for fixed query points, the same for all subdomains.

        Parameters
        ----------
        points
            ``(Q, 2)``, (y, x) in cells from the lower-left corner of the subdomain.
        weights
            ``(Q,)`` factors for the values, as of a partition of unity.
        """
        ...

    def outside_range(self, *, device: torch.device, dtype: torch.dtype) -> OutsideRange | None:
        """Return what tells perimeters outside of the training range, if there is one."""
        ...


class LocalSolver(Protocol):
    """What solves subdomains of a certain number of cells, before it knows a problem.

    Attributes
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    spacing
        Of the grids that it can work on, in units of domain length; None for any.
    """

    name: str

    @property
    def spacing(self) -> float | None: ...  # noqa: D102 - said above

    def bind(self, problem: Problem, grid: Grid) -> BoundSolver | CondensedSolver:
        """Return the local solver for a problem's operator, source and grid.

        Where coefficients are fields each subdomain has an operator of its own: a `CondensedSolver`.

        Raises
        ------
        ValueError
            If it does not solve the problem's equation, or not on this grid.
        """
        ...


class BlockPlan:
    """``N g + w`` at fixed query points.

    Parameters
    ----------
    points
        ``(Q, 2)``, (y, x) in cells; with a source, nodes inside the subdomain.
    weights
        ``(Q,)`` factors for the values, as of a partition of unity.
    kept
        Whether ``w`` is kept, as `BlockSource`.

    Attributes
    ----------
    homogeneous
        The map ``N`` alone, ``homogeneous(g, out)``, which is the same for all subdomains.
    """

    def __init__(
        self,
        solver: BoundSolver,
        block: Block,
        points: np.ndarray,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
        kept: bool = False,
    ):
        tensors: Tensors = {"device": device, "dtype": dtype}
        self.homogeneous = solver.plan(points, **tensors, weights=weights)
        self._source = None
        if solver.source is not None:
            self._source = BlockSource(
                solver.source, block, points, **tensors, weights=weights, kept=kept
            )

    @property
    def affine(self) -> bool:
        """Whether there is a source."""
        return self._source is not None

    def __call__(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` of a batch for its perimeters ``(B, P)`` to ``out``."""
        self.homogeneous(g, out)
        if self._source is not None:
            self._source.add(batch, out)
