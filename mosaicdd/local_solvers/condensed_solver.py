"""The exact local solver of a problem whose coefficients are fields."""

from typing import Any

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.source import Source
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.discretisation.linear_step import LinearStep
from mosaicdd.problems.discretisation.nonlinear_discretisation import NonlinearDiscretisation
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear import Linearised, Nonlinear


class CondensedSolver:
    """Subdomains of a medium, each of which has an operator of its own: four condensed elements.

    Attributes
    ----------
    operator
        The medium; or what is not linear, whose derivative is one.
    source
        Of the problem, which may be zero.
    discretisation
        Where the edge of the grid is not that of the lattice; else None.
    planned
        What was planned for the medium on a block, by whoever solves.
    """

    name = "exact"

    def __init__(
        self,
        operator: Medium | Linearised | LinearStep | Nonlinear,
        subdomain: Subdomain,
        source: Source,
        discretisation: Discretisation | LinearStep | NonlinearDiscretisation | None = None,
    ):
        self.operator = operator
        self.linear = not isinstance(operator, Nonlinear)
        self.subdomain = subdomain
        self.source = source
        self.discretisation = discretisation
        self.planned: dict[Block, Any] = {}
