"""A trained model before it knows a problem: what all have in common, and those of media."""

from abc import ABC, abstractmethod
from typing import Any

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.bound import BoundSolver, SharedSolver
from mosaicdd.local_solvers.networks.conductances import ROUGHNESS, LearnedRule
from mosaicdd.local_solvers.subdomain_operators import OperatorSolver
from mosaicdd.local_solvers.upscaled import UpscaledSolver
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard


class TrainedModel(ABC):
    """A local solver by a trained network, named as a result reports it, and its card, before it knows a problem."""

    makes = "another network"

    def __init__(self, name: str, network: Any, card: ModelCard):
        self.name, self.network, self.card = name, network, card

    @property
    def spacing(self) -> float | None:
        """Of the grids that it can work on; None for any."""
        return None

    @abstractmethod
    def bind(self, problem: Problem, grid: Grid) -> BoundSolver:
        """Return the solver for a problem on a grid; errors as `LocalSolver.bind`."""

    def as_trained(self) -> SharedSolver:
        """Return a solver of what it was trained for, without a source; `ValueError` if that needs more than its card."""
        raise ValueError(f"{self.name} makes {self.makes}, it has no operator of its own")


class ConductanceModel(TrainedModel):
    """A trained network of conductances, before it knows a problem."""

    makes = "conductances of a medium"

    def bind(self, problem: Problem, grid: Grid) -> UpscaledSolver:
        """Return the solver for a problem's medium and source on a grid; errors as of `UpscaledSolver`."""
        _, roughest = self.card.ranges[ROUGHNESS]
        return UpscaledSolver(self.name, problem, grid, LearnedRule(self.network, roughest))


class OperatorModel(TrainedModel):
    """A network that makes the operators of subdomains of media."""

    makes = "operators of a medium"

    def bind(self, problem: Problem, grid: Grid) -> OperatorSolver:
        """Return the solver for a problem's medium and source on a grid; errors as of `UpscaledSolver`."""
        return OperatorSolver(self.name, problem, grid, self.network, self.card)
