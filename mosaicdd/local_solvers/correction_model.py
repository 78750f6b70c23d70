"""A trained network of corrections, before it knows a problem, and the test that it passes when it does."""

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.local_solvers.networks.correction import CorrectionNetwork
from mosaicdd.local_solvers.nonlinear import (
    Learned,
    NonlinearSolver,
    linear_part,
    nonlinear_operator,
)
from mosaicdd.local_solvers.source import Source
from mosaicdd.local_solvers.square_newton import SquareNewton
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.gaussian_process import sample_closed_curve
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard

_SQUARES, _LENGTH = 64, 0.25  # of a self-test; in sides of the square
_WORSE = (
    10.0  # error in the self-test, beside that of the card, which is over all data of the range
)
_ROUNDING = 1e-6  # of limits


class CorrectionModel:
    """A network that corrects the linear equation's solutions; parameters as `NetworkModel`."""

    spacing = None

    def __init__(self, name: str, network: CorrectionNetwork, card: ModelCard):
        self.name = name
        self.network = network
        self.card = card

    def bind(self, problem: Problem, grid: Grid) -> NonlinearSolver:
        """Return the solver for a problem's parameters and source on a grid.

        Raises
        ------
        ValueError
            If it was trained for another equation, a parameter varies, or a side is natural.
        """
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
        sigma = base.c * subdomain.size**2
        return NonlinearSolver(
            self.name,
            operator,
            base,
            subdomain,
            Source(problem, grid, subdomain, base),
            learned=Learned.of(self.network, sigma, self.card),
            refusal=self._refusal(problem, sigma, subdomain),
        )

    def as_trained(self) -> NetworkSolver:
        """Refuse: it is no solver of a linear equation, which rates are measured with.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(f"{self.name} corrects solutions, it is no local solver of its own")

    def _refusal(self, problem: Problem, sigma: float, subdomain: Subdomain) -> str:
        """Say why an uncertified answer is refused; empty if it is not."""
        pde = any_equation(self.card.pde)
        if not isinstance(pde, NonlinearEquation) or pde.linear is None:
            return f"{self.name} is no model for {self.card.pde}"
        ends = [
            pde.linear(**{name: self.card.ranges[name][i] for name in pde.parameters}).c
            for i in (0, 1)
        ]
        least, most = (end * self.card.size**2 for end in ends)
        if not least - _ROUNDING <= sigma <= most * (1 + _ROUNDING):
            scale = (self.card.size / subdomain.size) ** 2
            named = ", ".join(f"{name}={value:g}" for name, value in problem.parameters.items())
            return (
                f"{self.name} is a model for a linear reaction from {ends[0] * scale:.3g} to "
                f"{ends[1] * scale:.3g} on this grid, {named} has {sigma / subdomain.size**2:.6g}; take "
                "'exact', or ask for a certified answer"
            )
        error, allowed = self._self_test(problem, subdomain), _WORSE * self.card.validation["error"]
        if not error <= allowed:
            return (
                f"{self.name} is off by {error:.2g} of the solution in its self-test (at most "
                f"{allowed:.2g}): it does not solve the equation; train it further, or ask for a "
                "certified answer"
            )
        return ""

    def _self_test(self, problem: Problem, subdomain: Subdomain) -> float:
        """Return the error on random perimeters of all sizes of the range, relative to Newton's solutions."""
        operator, base = nonlinear_operator(self.name, problem), linear_part(problem)
        newton = SquareNewton(operator, subdomain.cells, subdomain.spacing, torch.device("cpu"))
        rng = np.random.default_rng(0)
        largest = self.card.boundary_range[1]
        nodes = subdomain.perimeter
        curves = [
            sample_closed_curve(rng, len(nodes), 4.0, _LENGTH, largest) for _ in range(_SQUARES)
        ]
        g = np.stack([c * largest * rng.random() / np.abs(c).max() for c in curves])
        u = torch.zeros(_SQUARES, *(2 * [subdomain.cells + 1]), dtype=torch.float64)
        u[:, *torch.from_numpy(nodes.T)] = torch.from_numpy(g)
        newton.linear(u, None, torch.tensor(base.c, dtype=torch.float64))
        outputs, points = self.network.outputs.T, self.network.points
        linear = u[:, *outputs].clone()
        fields = {
            name: torch.tensor(field.number, dtype=torch.float64)
            for name, field in operator.fields.items()
        }
        newton.solve(u, None, fields)
        x = torch.nn.functional.pad(torch.from_numpy(g).float(), (0, len(points)))
        with torch.no_grad():
            sigma = torch.tensor(base.c * subdomain.size**2, dtype=torch.float32)
            found = linear + self.network(x, sigma)
        truth = u[:, *outputs]
        return float((found - truth).norm() / truth.norm())
