"""A trained model before it knows a problem."""

from abc import ABC, abstractmethod
from typing import Any

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.bound import BoundSolver, SharedSolver
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard


class TrainedModel(ABC):
    """A local solver by a trained network, before it knows a problem.

    Parameters
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    network, card
        The network, and what the model file says of it.
    """

    makes = "another network"

    def __init__(self, name: str, network: Any, card: ModelCard):
        self.name = name
        self.network = network
        self.card = card

    @property
    def spacing(self) -> float | None:
        """Of the grids that it can work on; None for any."""
        return None

    @abstractmethod
    def bind(self, problem: Problem, grid: Grid) -> BoundSolver:
        """Return the solver for a problem on a grid.

        Raises
        ------
        ValueError
            If it does not solve the problem's equation, or not on this grid.
        """

    def as_trained(self) -> SharedSolver:
        """Return the network as a solver of what it was trained for, without a source.

        Raises
        ------
        ValueError
            If it needs more than its card says.
        """
        raise ValueError(f"{self.name} makes {self.makes}, it has no operator of its own")
