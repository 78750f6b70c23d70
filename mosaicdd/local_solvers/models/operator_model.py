"""A trained network of operators, before it knows a problem."""

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.models.trained_model import TrainedModel
from mosaicdd.local_solvers.subdomain_operators import OperatorSolver
from mosaicdd.problems.problem import Problem


class OperatorModel(TrainedModel):
    """A network that makes the operators of subdomains of media."""

    makes = "operators of a medium"

    def bind(self, problem: Problem, grid: Grid) -> OperatorSolver:
        """Return the solver for a problem's medium and source on a grid.

        Raises
        ------
        ValueError
            If the coefficients are numbers, or the grid is too small or cannot be coarsened.
        """
        return OperatorSolver(self.name, problem, grid, self.network, self.card)
