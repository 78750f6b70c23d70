"""A trained network of operators, before it knows a problem."""

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.local_solvers.networks.operator import OperatorNetwork
from mosaicdd.local_solvers.subdomain_operators import OperatorSolver
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard


class OperatorModel:
    """A network that makes the operators of subdomains of media; parameters as `NetworkModel`."""

    spacing = None

    def __init__(self, name: str, network: OperatorNetwork, card: ModelCard):
        self.name = name
        self.network = network
        self.card = card

    def bind(self, problem: Problem, grid: Grid) -> OperatorSolver:
        """Return the solver for a problem's medium and source on a grid.

        Raises
        ------
        ValueError
            If the coefficients are numbers, or the grid is too small or cannot be coarsened.
        """
        return OperatorSolver(self.name, problem, grid, self.network, self.card)

    def as_trained(self) -> NetworkSolver:
        """Refuse: without a medium it solves nothing.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(f"{self.name} makes operators of a medium, it has none of its own")
