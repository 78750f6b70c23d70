"""The exact local solver of a problem whose coefficients are fields."""

from typing import Any

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import BoundSolver
from mosaicdd.local_solvers.source import Source

BYTES = 260
"""For each node at least: elements, inverses of the stars, coarse space."""
PER_PROBLEM = 40
"""Bytes for each node of each of several problems: source, field, and what passes between."""
DIRECTIONS = 60
"""Vectors of each problem, with a velocity, that the iteration keeps: directions and images."""


class SolverOnElements(BoundSolver):
    """Subdomains each of which has an operator of its own, four elements.

    Attributes
    ----------
    operator
        The medium, or what has conductances as one; or what is not linear, whose derivative is one.
    source
        Of the problem, which may be zero.
    discretisation
        Of the problem, where the edge of the grid is not that of the lattice; else None.
    planned
        What was planned for a medium on a block, by whoever solves.
    """

    name = "exact"
    exact = True
    own_operators = True
    source: Source

    def __init__(
        self, operator: Any, subdomain: Subdomain, source: Source, discretisation: Any = None
    ):
        self.operator, self.subdomain, self.source = operator, subdomain, source
        self.discretisation = discretisation
        self.planned: dict[Block, Any] = {}

    def lattice(self, grid: Grid, around: tuple[bool, ...]) -> Lattice:
        """Place the subdomains so that they reach beyond the edge, if that is not the lattice's."""
        if self.discretisation is None:
            return super().lattice(grid, around)
        return Lattice.around(grid, self.subdomain, around)

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what the condensed elements take, and what each of several problems does."""
        kept = 0 if self.operator.self_adjoint else DIRECTIONS
        each = PER_PROBLEM + 8 * kept * 2 / (self.subdomain.cells // 2)
        return BYTES + (problems * each if problems > 1 else 0)


class CondensedSolver(SolverOnElements):
    """That of a linear equation, by condensed elements."""

    method = "condensed"


class NewtonSolver(SolverOnElements):
    """That of an equation that is not linear, by Newton's method on the whole grid."""

    linear = False
    method = "newton"
