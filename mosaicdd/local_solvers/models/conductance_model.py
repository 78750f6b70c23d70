"""A trained network that makes conductances of a medium, before it knows a problem."""

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.models.trained_model import TrainedModel
from mosaicdd.local_solvers.networks.conductances import ROUGHNESS, LearnedRule
from mosaicdd.local_solvers.upscaled import UpscaledSolver
from mosaicdd.problems.problem import Problem


class ConductanceModel(TrainedModel):
    """A trained network of conductances, before it knows a problem."""

    makes = "conductances of a medium"

    def bind(self, problem: Problem, grid: Grid) -> UpscaledSolver:
        """Return the solver for a problem's medium and source on a grid.

        Raises
        ------
        ValueError
            If the coefficients are numbers, or the grid is too small or cannot be coarsened.
        """
        _, roughest = self.card.ranges[ROUGHNESS]
        return UpscaledSolver(self.name, problem, grid, LearnedRule(self.network, roughest))
