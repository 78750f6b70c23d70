"""The linear problem whose solution is where Newton's method begins, with the same domain and conditions.

Its solution is harmonic, so it lies between the values on the sides.
"""

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem


def smooth_problem(problem: Problem, grid: Grid, c: float) -> Problem:
    """Return it with a reaction ``c``."""
    domain = Domain(grid.shape, grid.spacing, problem.domain.shape)
    return Problem(domain, "diffusion", {"c": c}, problem.conditions)


def screening(problem: Problem, grid: Grid) -> float:
    """Return the reaction that it takes: none, if the conditions fix the level of all parts of the domain.

    Else that of a screening length as wide as the domain.
    """
    harmonic = smooth_problem(problem, grid, 0.0)
    try:
        if not Discretisation(harmonic, medium_of(harmonic.operator), grid).floating:
            return 0.0
    except ValueError:  # a part has no given value
        pass
    return 1.0 / max(grid.size) ** 2
