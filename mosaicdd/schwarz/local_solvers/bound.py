"""The interface of local solvers to the Schwarz iteration.

A `LocalSolver` is chosen by name and knows no problem yet. *Bound* to one, it knows the operator and
what the source adds, and is a `Method`: the set-up and the engines ask it, and not what class it is of. One that is
the same for all subdomains (`SharedSolver`) is planned for a block, and then knows which subdomain is which
(`BlockPlan`): the iteration, the fill and the coarse space see only that.

Shape letters in this folder: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``n``
problems solved at once.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Unpack

import numpy as np
import torch

from mosaicdd.discretisation.system import Method
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import NodeBoxes
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.local_solvers.source import BlockSource, Source
from mosaicdd.schwarz.transfer import Batch
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

# A planned solve, ``plan(g, out)``: perimeters ``(B, P)`` to values at the points ``(B, Q)``.
Plan = Callable[[torch.Tensor, torch.Tensor], None]
# Says which perimeters ``(B, P)`` are outside of the training range: ``(B,)`` booleans.
OutsideRange = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class ChunkedPlan:
    """A planned solve that is applied to a bounded number of subdomains at a time."""

    chunk: int
    apply: Plan

    def __call__(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` for the perimeters ``g``, ``(B, P)``, to ``out``."""
        chunks = max(1, -(-len(g) // self.chunk))
        size = max(1, -(-len(g) // chunks))
        for part, result in zip(g.split(size), out.split(size), strict=True):
            self.apply(part, result)


class SharedSolver(Method):
    """Maps perimeter values to values inside, ``N g + w``, by the same ``N`` in all subdomains."""

    operator: EllipticOperator
    source: Source | None
    subdomain: Subdomain  # the square on which it solves

    @property
    def source_ghosts(self) -> int:  # type: ignore[override]
        """The nodes of the perimeters of a ring of subdomains around the owned ones."""
        return self.subdomain.cells

    def lattice(self, grid: Grid) -> Lattice:
        """Place its subdomains on a grid; `ValueError` if they do not fit."""
        return Lattice(grid, self.subdomain)

    def subdomains(self, grid: Grid) -> int | None:
        """Return the number of subdomains."""
        return math.prod(self.lattice(grid).subdomains)

    def boxes(self, grid: Grid, periodic: tuple[bool, ...]) -> NodeBoxes:
        """Return the nodes around the centres of subdomains, those on the edge with the nearest."""
        lattice, edges = self.lattice(grid), []
        for subdomains, nodes in zip(lattice.subdomains, grid.nodes, strict=True):
            between = (lattice.spacing * (1 + line) for line in range(1, subdomains))
            edges.append((0, *between, nodes))
        return NodeBoxes(grid, periodic, tuple(edges))

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return the bytes of two interfaces of each problem, of three for several problems and for networks.

        Of the field a rank holds a strip only.
        """
        interfaces = problems * (2 if problems == 1 and self.exact else 3)
        return interfaces * itemsize * self.subdomain.axes / (self.subdomain.cells // 2)

    def plan(
        self, points: np.ndarray, *, weights: np.ndarray | None = None, **tensors: Unpack[Tensors]
    ) -> Plan:
        """Prepare ``N`` for fixed query points ``(Q, 2)``, (y, x) in cells, the same for all subdomains.

        ``weights (Q,)`` are factors for the values, as of a partition of unity.
        """
        raise NotImplementedError

    def outside_range(self, **tensors: Unpack[Tensors]) -> OutsideRange | None:
        """Return the test of perimeters against the training range, if there is one."""
        return None


def require_plain(name: str, problem: Problem) -> None:
    """Raise `Unsupported` if a problem is not on a rectangle with values given on all sides."""
    if not problem.plain:
        raise Unsupported(
            f"{name} solves with values given on all sides of a rectangle; {problem.hindrance}: "
            "take 'exact'"
        )


class LocalSolver(Protocol):
    """A solver of subdomains of a number of cells, not yet bound to a problem.

    Attributes
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    spacing
        Of the grids that it can work on, in units of domain length; None for any.
    axes
        Of the domains that it can be on, if these are not rectangles alone: ``(2, 3)``, or ``(3,)`` of boxes.
    """

    name: str

    @property
    def spacing(self) -> float | None: ...  # noqa: D102 - said above

    def bind(self, problem: Problem, grid: Grid) -> Method:
        """Return the local solver for a problem's operator, source and grid.

        `ValueError` if it does not solve the problem's equation, or not on this grid.
        """
        ...


class BlockPlan:
    """``N g + w`` at fixed query points ``(Q, 2)``, (y, x) in cells; with a source, nodes inside the subdomain.

    ``weights (Q,)`` are factors for the values, as of a partition of unity; ``w`` is perhaps kept,
    as by `BlockSource`. ``homogeneous(g, out)`` is the map ``N`` alone, which is the same for all
    subdomains.
    """

    def __init__(
        self,
        solver: SharedSolver,
        block: Block,
        points: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        kept: bool = False,
        **tensors: Unpack[Tensors],
    ):
        self.homogeneous = solver.plan(points, **tensors, weights=weights)
        self._points = len(points)
        self._source = None
        if solver.source is not None:
            at_points = (
                solver.source.kept if kept else functools.partial(BlockSource, solver.source)
            )
            self._source = at_points(block, points, weights=weights, **tensors)

    @property
    def affine(self) -> bool:
        """Whether there is a source."""
        return self._source is not None

    def responses(self, g: torch.Tensor) -> torch.Tensor:
        """Return ``N g`` of perimeters ``(k, P)``, which is the same for all subdomains: ``(k, Q)``."""
        out = g.new_empty(len(g), self._points)
        self.homogeneous(g, out)
        return out

    def __call__(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` of a batch for its perimeters ``(B, P)`` to ``out``."""
        self.homogeneous(g, out)
        if self._source is not None:
            self._source.add(batch, out)
