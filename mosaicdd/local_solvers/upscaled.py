"""Solvers that see a medium on a coarser grid: an approximate answer for a fraction of the work.

The coarse equation is solved as any medium's is; what is between the coarse nodes
is filled in from the fine one.
"""

from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import BoundSolver, require_plain
from mosaicdd.local_solvers.exact import MediumSolver
from mosaicdd.local_solvers.networks.conductances import LearnedRule
from mosaicdd.local_solvers.source import Source
from mosaicdd.local_solvers.upscaling import (
    MARGIN,
    RATIO,
    CoarseMedium,
    Rule,
    averaged,
    fine_part,
    restricted,
)
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.problem import Problem
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

_MOST = 0.1  # of the patches of a medium that may lie outside of a network's range
_COARSE_CELLS = (32, 16, 8)  # per side of a subdomain of the coarse grid; the first that fits


class UpscaledSolver(BoundSolver):
    """Subdomains of a medium on a coarser grid, bound to a problem.

    Raises
    ------
    Unsupported
        If the coefficients are numbers or there is a velocity, a side is natural, or no size fits the grid.

    Attributes
    ----------
    operator
        The medium itself.
    subdomain
        In cells of the problem's grid.
    source
        Of the problem, which may be zero; it gives the right of the coarse equation.
    medium
        As it is seen.
    coarse
        The exact solver of the coarse equation.
    """

    source: Source
    method = "upscaled"
    certifiable = False  # the exact operators solve alone: their own answer takes little longer

    def __init__(self, name: str, problem: Problem, grid: Grid, rule: Rule):
        medium = problem.operator
        if not isinstance(medium, Medium):
            raise Unsupported(
                f"{name} is for coefficients that are fields, those of {problem.equation.name} are "
                "numbers here; take 'exact'"
            )
        if not medium.self_adjoint or medium.couples_corners:
            raise Unsupported(
                f"{name} is for diffusion without a velocity or a mixed derivative, by five points; take 'exact'"
            )
        require_plain(name, problem)
        cells = RATIO * _fitting(name, grid)
        self.name = name
        self.operator = medium
        self.subdomain = Subdomain(cells, cells * grid.spacing)
        self.source = CoarseSource(problem, grid, self.subdomain)
        self.medium = CoarseMedium(medium, grid, rule)
        self.coarse = MediumSolver(
            self.medium, Subdomain(cells // RATIO, cells * grid.spacing), self.source
        )
        self.coarse.name = name

    @property
    def patches(self) -> tuple[int, ...]:
        """How many patches of the medium a network has been asked for, and those outside its range."""
        rule = self.medium.rule
        return (rule.asked, rule.outside) if isinstance(rule, LearnedRule) else (0, 0)

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what the coarser grid takes."""
        return self.coarse.bytes_per_node(itemsize, problems, certified=False) / RATIO**2

    def require_range(self, asked: float, outside: float) -> None:
        """Raise `ValueError` if too many of the medium's patches on all ranks lie outside of a network's range."""
        if outside > _MOST * asked:
            raise ValueError(
                f"{outside / asked:.0%} of the medium is rougher than {self.name} is for, between "
                f"neighbouring nodes (at most {_MOST:.0%} may be): take 'exact', or ask for a certified answer"
            )


def _fitting(name: str, grid: Grid) -> int:
    """Return the cells of a coarse subdomain, the first number of them that fits."""
    if grid.aspect:
        raise Unsupported(f"{name} is for square cells, these are {grid.cell}: take 'exact'")
    for cells in _COARSE_CELLS:
        s = RATIO * cells // 2
        if all(n % s == 0 and n >= 4 * s for n in grid.shape):
            return cells
    least = RATIO * _COARSE_CELLS[-1] // 2
    ny, nx = grid.shape
    raise Unsupported(
        f"cells={nx}x{ny}: {name} needs multiples of {least}, at least {4 * least}; take 'exact'"
    )


class CoarseSource(Source):
    """A problem's source as the coarse equation has it, shared out to the coarse nodes."""

    def on(self, block: Block, **tensors: Unpack[Tensors]) -> torch.Tensor:
        """Return it at the nodes of a region of a block of the coarse lattice, ``(n or 1, rows, columns)``."""
        place, missing = fine_part(block.nodes, self.grid, MARGIN)
        f = self.problem.source_at(self.grid, place)
        if f is None:
            shape = [p.stop - p.start for p in block.nodes]
            return torch.zeros(1, *shape, **tensors)
        shared = restricted(np.pad(f, ((0, 0), *missing))) / RATIO**2
        return torch.from_numpy(np.ascontiguousarray(shared)).to(**tensors)


class Averaged:
    """Plain averages of the conductances: the control for every network, and none itself."""

    name = "averaged"
    spacing = None

    def bind(self, problem: Problem, grid: Grid) -> UpscaledSolver:
        """Return the solver for a problem's medium and source on a grid; errors as of `UpscaledSolver`."""
        return UpscaledSolver(self.name, problem, grid, averaged)
