"""A trained network that makes conductances of a medium, before it knows a problem."""

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.local_solvers.networks.conductances import ROUGHNESS, ConductanceNetwork, LearnedRule
from mosaicdd.local_solvers.upscaled import UpscaledSolver
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard


class ConductanceModel:
    """A trained network of conductances, before it knows a problem; parameters as `NetworkModel`."""

    spacing = None

    def __init__(self, name: str, network: ConductanceNetwork, card: ModelCard):
        self.name = name
        self.network = network
        self.card = card

    def bind(self, problem: Problem, grid: Grid) -> UpscaledSolver:
        """Return the solver for a problem's medium and source on a grid.

        Raises
        ------
        ValueError
            If the coefficients are numbers, or the grid is too small or cannot be coarsened.
        """
        _, roughest = self.card.ranges[ROUGHNESS]
        return UpscaledSolver(self.name, problem, grid, LearnedRule(self.network, roughest))

    def as_trained(self) -> NetworkSolver:
        """Refuse: without a medium it solves nothing.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            f"{self.name} makes conductances of a medium, it has no operator of its own"
        )
