"""A trained network of corrections, before it knows a problem, and the test that it passes when it does."""

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.models.trained_model import TrainedModel
from mosaicdd.local_solvers.networks.correction import VALUES
from mosaicdd.local_solvers.nonlinear.corrected import Learned
from mosaicdd.local_solvers.nonlinear.nonlinear import (
    NonlinearSolver,
    linear_part,
    nonlinear_operator,
    split,
)
from mosaicdd.local_solvers.nonlinear.square_newton import BATCH, SquareNewton
from mosaicdd.local_solvers.source import Source
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.fields.gaussian_process import sample_closed_curve, sample_sloped_square
from mosaicdd.problems.problem import Problem

_SQUARES, _LENGTH = 32, 0.25  # of a self-test; in sides of the square
# Error in the self-test, beside that of the card: this is of data like those of the training, where slopes count, and of
# all smaller ones, too, where values do.
_WORSE_SLOPES, _WORSE_VALUES = 3.0, 10.0
_ROUNDING = 1e-6  # of limits


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
