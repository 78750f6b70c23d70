"""A trained model before it knows a problem: what all have in common, of linear equations, media and corrections."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import BoundSolver, SharedSolver, require_plain
from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.local_solvers.networks.conductances import ROUGHNESS, LearnedRule
from mosaicdd.local_solvers.networks.correction import VALUES
from mosaicdd.local_solvers.networks.family import FamilyNetwork, invariants
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.nonlinear.corrected import Learned
from mosaicdd.local_solvers.nonlinear.nonlinear import (
    NonlinearSolver,
    linear_part,
    nonlinear_operator,
    split,
)
from mosaicdd.local_solvers.nonlinear.square_newton import BATCH, SquareNewton
from mosaicdd.local_solvers.source import Source
from mosaicdd.local_solvers.upscaled import UpscaledSolver
from mosaicdd.problems.equations import any_equation, equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.fields.gaussian_process import sample_closed_curve, sample_sloped_square
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.unsupported import Unsupported


class TrainedModel(ABC):
    """A local solver by a trained network, before it knows a problem.

    Parameters
    ----------
    name
        As a result reports it.
    digest
        Checksum of its file, by which a result tells it from another of its name.
    """

    makes = "another network"

    def __init__(self, name: str, network: Any, card: ModelCard, digest: str | None = None):
        self.name, self.network, self.card, self.digest = name, network, card, digest

    @property
    def spacing(self) -> float | None:
        """Of the grids that it can work on; None for any."""
        return None

    @property
    def axes(self) -> tuple[int, ...]:
        """Of the domains that it can be on: 2 of rectangles, 3 of boxes."""
        return (self.card.axes,)

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


_ROUNDING = 1e-6  # of limits to what operators are like


class NetworkModel(TrainedModel):
    """A trained network of a linear equation with constant coefficients, before it knows a problem."""

    @property
    def _operator(self) -> EllipticOperator:
        return equation(self.card.pde).at(**self.card.parameters)

    @property
    def cells(self) -> int:
        """Cells per side of its subdomains."""
        return self.card.cells

    @property
    def spacing(self) -> float | None:
        """Of the grids that it can work on; None for any.

        An equation that is free of scales is the same on all grids, and one of a family is another of
        it on another grid.
        """
        free = self.card.ranges or self._operator.scale_free
        return None if free else self.card.subdomain.spacing

    def bind(self, problem: Problem, grid: Grid) -> NetworkSolver:
        """Return the network as the solver of a problem's subdomains.

        A parameter outside of the range of a family is refused by `require_self_test` only: a certified
        answer needs no trust in the network. Errors are those of `LocalSolver.bind`.
        """
        spacing, needed = self.spacing, problem.operator
        if spacing is not None and not np.isclose(grid.spacing, spacing, rtol=1e-12, atol=0):
            raise ValueError(
                f"{self.name} was trained for a spacing of {spacing:g}, the grid's is "
                f"{grid.spacing:g}; leave the spacing of the domain to the local solver, or take 'exact'"
            )
        subdomain = Subdomain(self.cells, self.cells * grid.spacing, self.card.axes)
        if isinstance(needed, Nonlinear):
            raise ValueError(  # noqa: TRY004 - of what the user has given, the value is wrong
                f"{self.name} is a model for a linear equation, {problem.equation.name} is not linear; "
                "take 'exact'"
            )
        if not isinstance(needed, EllipticOperator):
            raise Unsupported(
                f"{self.name} is a model for constant coefficients, those of {problem.equation.name} "
                "are fields here; take 'exact'"
            )
        require_plain(self.name, problem)
        outside = self.outside(needed, subdomain) if self.card.ranges else ""
        if not self.card.ranges and needed != self._operator:
            cells = f" on cells of {grid.cell}" if grid.aspect else ""
            raise Unsupported(
                f"{self.name} is a model for {_said(self.card.pde, self.card.parameters)}, it does not "
                f"solve {_said(problem.equation.name, problem.parameters)}{cells}; take 'exact', or a model "
                "that does"
            )
        source = None if problem.source is None else Source(problem, grid, subdomain)
        network = self._network_for(needed, subdomain)
        return NetworkSolver(self.name, needed, subdomain, network, self.card, source, outside)

    def outside(self, operator: EllipticOperator, subdomain: Subdomain) -> str:
        """Say what of an operator lies outside of the family's ranges; empty if nothing does."""
        for name, value in invariants(operator, subdomain).items():
            least, most = self.card.ranges[name]
            if name == "c":  # what it was on the training's subdomains
                scale = (self.card.size / subdomain.size) ** 2
                least, most = least * scale, most * scale
            rounding = _ROUNDING * max(1.0, abs(least), abs(most))
            if not least - rounding <= value <= most + rounding:
                return (
                    f"{self.name} is a model for {self.card.pde} with {name} from {least:g} to "
                    f"{most:g}, here it is {value:.6g}; take 'exact', or ask for a certified answer"
                )
        return ""

    def as_trained(self) -> NetworkSolver:
        """Return the network as a solver of what it was trained for, without a source."""
        operator, subdomain = self._operator, self.card.subdomain
        network = self._network_for(operator, subdomain)
        return NetworkSolver(self.name, operator, subdomain, network, self.card)

    def _network_for(self, operator: EllipticOperator, subdomain: Subdomain) -> Network:
        family = self.network
        return family.at(operator, subdomain) if isinstance(family, FamilyNetwork) else family


def _said(pde: str, parameters: dict[str, float]) -> str:
    values = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
    return f"{pde} with {values}" if values else pde


_SQUARES, _LENGTH = 32, 0.25  # of a self-test; in sides of the square
# Error in the self-test, beside that of the card: this is of data like those of the training, where slopes count, and of
# all smaller ones, too, where values do.
_WORSE_SLOPES, _WORSE_VALUES = 3.0, 10.0


class CorrectionModel(TrainedModel):
    """A network that corrects the linear equation's solutions, before it knows a problem."""

    makes = "corrections of solutions"

    def bind(self, problem: Problem, grid: Grid) -> NonlinearSolver:
        """Return the solver for a problem's parameters and source on a grid; errors as `LocalSolver.bind`."""
        if problem.equation.name != self.card.pde:
            raise ValueError(
                f"{self.name} is a model for {self.card.pde}, it does not solve "
                f"{problem.equation.name}; take 'exact', or a model that does"
            )
        operator = nonlinear_operator(self.name, problem)
        for name, field in operator.fields.items():
            if field.number is None:
                raise ValueError(
                    f"{self.name} is a model for parameters that are numbers, {name} is a field here; "
                    "take 'exact' or 'subdomain-newton'"
                )
        subdomain = Subdomain(self.card.cells, self.card.cells * grid.spacing)
        base = linear_part(problem)
        limits = {name: most for name, (_, most) in self.card.ranges.items()}
        return NonlinearSolver(
            self.name,
            operator,
            base,
            subdomain,
            Source(problem, grid, subdomain, base),
            learned=Learned(self.network, limits | {VALUES: self.card.boundary_range[1]}),
            refusal=self._out_of_range(problem, subdomain) or self._unsound(problem, subdomain),
        )

    def _out_of_range(self, problem: Problem, subdomain: Subdomain) -> str:
        """Say which parameters the network was not trained for; empty if there are none."""
        pde = any_equation(self.card.pde)
        if not isinstance(pde, NonlinearEquation) or pde.linear is None:
            return f"{self.name} is no model for {self.card.pde}"
        ends = [
            pde.linear(**{name: self.card.ranges[name][i] for name in pde.parameters}).c
            for i in (0, 1)
        ]
        least, most = (end * self.card.size**2 for end in ends)
        sigma = linear_part(problem).c * subdomain.size**2
        if least - _ROUNDING <= sigma <= most * (1 + _ROUNDING):
            return ""
        scale = (self.card.size / subdomain.size) ** 2
        named = ", ".join(f"{name}={value:g}" for name, value in problem.parameters.items())
        return (
            f"{self.name} is a model for a linear reaction from {ends[0] * scale:.3g} to "
            f"{ends[1] * scale:.3g} on this grid, {named} has {sigma / subdomain.size**2:.6g}; take "
            "'exact', or ask for a certified answer"
        )

    def _unsound(self, problem: Problem, subdomain: Subdomain) -> str:
        """Say that the network fails its self-test; empty if it does not."""
        g, worse = self._perimeters(subdomain)
        error, allowed = (
            self._self_test(problem, subdomain, g),
            worse * self.card.validation["error"],
        )
        if error <= allowed:
            return ""
        return (
            f"{self.name} is off by {error:.2g} of the solution in its self-test (at most "
            f"{allowed:.2g}): it does not solve the equation; train it further, or ask for a "
            "certified answer"
        )

    def _perimeters(self, subdomain: Subdomain) -> tuple[np.ndarray, float]:
        """Return random perimeters of all sizes of the range, and how much worse the error there may be."""
        rng, nodes, pde = np.random.default_rng(0), 4 * subdomain.cells, any_equation(self.card.pde)
        if isinstance(pde, NonlinearEquation) and pde.steepest is not None:
            square = subdomain.cells, subdomain.size, pde.steepest
            return np.stack(
                [sample_sloped_square(rng, *square) for _ in range(_SQUARES)]
            ), _WORSE_SLOPES
        largest = self.card.boundary_range[1]
        curves = [sample_closed_curve(rng, nodes, 4.0, _LENGTH, largest) for _ in range(_SQUARES)]
        sized = [curve * largest * rng.random() / np.abs(curve).max() for curve in curves]
        return np.stack(sized), _WORSE_VALUES

    def _self_test(self, problem: Problem, subdomain: Subdomain, g: np.ndarray) -> float:
        """Return the error for perimeters, relative to Newton's solutions."""
        operator, base = nonlinear_operator(self.name, problem), linear_part(problem)
        device = torch.device("cpu")
        newton = SquareNewton(operator, subdomain.cells, subdomain.spacing, device)
        u = torch.zeros(len(g), *(2 * [subdomain.cells + 1]), dtype=torch.float64)
        u[:, *torch.from_numpy(subdomain.perimeter.T)] = torch.from_numpy(g)
        newton.linear(u, None, torch.tensor(base.c, dtype=torch.float64))
        lines = torch.from_numpy(subdomain.centre_lines.T)
        linear = u[:, *lines].clone()
        fields = {
            name: torch.tensor(field.number, dtype=torch.float64)
            for name, field in operator.fields.items()
        }
        for portion in split(len(g), BATCH):
            newton.solve(u[portion], None, fields)
        limits = dict.fromkeys((*self.card.ranges, VALUES), np.inf)
        network = self.network.compiled(base, subdomain, limits, device)
        predicted = linear + network(network.input(torch.from_numpy(g)), None)
        truth = u[:, *lines]
        return float((predicted - truth).norm() / truth.norm())
