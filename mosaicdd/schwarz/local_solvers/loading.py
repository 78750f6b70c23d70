"""From a name or a model file to a local solver.

A bare name of a shipped model stands for its file inside the package; anything else is a path.

A trained model before it knows a problem.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.discretisation.system import separable_ends
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.network import insert_weights
from mosaicdd.networks.registry import build_network, invariants, network_for
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations import equation
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.local_solvers.bound import LocalSolver, require_plain
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.schwarz.local_solvers.network_solver import NetworkSolver
from mosaicdd.schwarz.local_solvers.source import Source
from mosaicdd.settings import meant
from mosaicdd.storage.model_file import ModelCard, model_digest, read_model
from mosaicdd.torch_defaults import float32_on_processor
from mosaicdd.unsupported import Unsupported, refuse_former

_ROUNDING = 1e-6  # of limits to what operators are like


class TrainedModel:
    """A trained network of a linear equation with constant coefficients, before it knows a problem.

    Parameters
    ----------
    name
        As a result reports it.
    digest
        Checksum of its file, by which a result tells it from another of its name.
    """

    def __init__(self, name: str, network: Any, card: ModelCard, digest: str | None = None):
        self.name, self.network, self.card, self.digest = name, network, card, digest

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the domains that it can be on: 2 of rectangles, 3 of boxes."""
        return (self.card.axes,)

    @property
    def _operator(self) -> EllipticOperator:
        return equation(self.card.pde).at(**self.card.parameters)

    @property
    def cells(self) -> int:
        """Cells per side of its subdomains."""
        return self.card.cells

    @property
    def spacing(self) -> float | None:
        """Spacing of the grids that it can work on; None for any.

        An equation that is free of scales is the same on all grids, and one of a family is another of
        it on another grid.
        """
        free = self.card.ranges or self._operator.scale_free
        return None if free else self.card.subdomain.spacing

    def bind(self, problem: Problem, grid: Grid) -> NetworkSolver:
        """Return the network as the solver of a problem's subdomains.

        A parameter outside of the range of a family is refused by `require_sound` only: a certified
        answer needs no trust in the network. Errors are those of `LocalSolver.bind`.
        """
        spacing, needed = self.spacing, problem.operator
        if spacing is not None and not np.isclose(grid.spacing, spacing, rtol=1e-12, atol=0):
            raise ValueError(
                f"{self.name} was trained for a spacing of {spacing:g}, the grid's is "
                f"{grid.spacing:g}; leave the spacing of the domain to the local solver, or take 'exact'"
            )
        subdomain = Subdomain(self.cells, self.cells * grid.spacing, self.card.axes)
        if not needed.linear:
            raise ValueError(
                f"{self.name} is a model for a linear equation, {problem.equation.name} is not linear; "
                "take 'exact'"
            )
        if not needed.constant:
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
        network = network_for(self.network, needed, subdomain)
        return NetworkSolver(self.name, needed, subdomain, network, self.card, source, outside)

    def outside(self, operator: EllipticOperator, subdomain: Subdomain) -> str:
        """Return why an operator lies outside of the family's ranges; empty if it does not."""
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
        network = network_for(self.network, operator, subdomain)
        return NetworkSolver(self.name, operator, subdomain, network, self.card)


def _said(pde: str, parameters: dict[str, float]) -> str:
    values = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
    return f"{pde} with {values}" if values else pde


SHIPPED = Path(__file__).parents[2] / "networks" / "shipped"


def shipped_models() -> list[str]:
    """Return the names of the models inside the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.h5"))


def local_solvers() -> list[str]:
    """Return all names that a local solver has without a file of one's own."""
    return [Exact.name, *shipped_models()]


def model_path(name_or_path: str) -> Path:
    """Return the file of a shipped model's name, or the path itself. If it is neither, the error lists the models."""
    if name_or_path in shipped_models():
        return SHIPPED / f"{name_or_path}.h5"
    path = Path(name_or_path)
    if not path.exists():
        refuse_former("local solver", name_or_path)
        raise FileNotFoundError(
            f"{name_or_path}: neither a model file nor a shipped model{meant(name_or_path, local_solvers())}; "
            f"shipped: {', '.join(shipped_models())}; by name, too: {Exact.name}"
        )
    return path


def find_local_solver(name_or_path: str) -> LocalSolver:
    """Return a local solver: ``"exact"``, or the network of a shipped model's name or a sound model file."""
    return Exact() if name_or_path == Exact.name else find_network(name_or_path)


@float32_on_processor()
@torch.random.fork_rng([])  # first weights are drawn, and then replaced
def find_network(name_or_path: str) -> TrainedModel:
    """Return the network of a shipped model's name or a model file; errors as `find_local_solver`."""
    path = model_path(name_or_path)
    card, weights = read_model(path)
    try:
        network = build_network(card.network, card.settings, card.subdomain)
        equation(card.pde)  # which must be known
        insert_weights(network, weights)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return TrainedModel(name_or_path, network, card, model_digest(path))


def default_local_solver(problem: Problem, *, transforms: bool = True) -> LocalSolver:
    """Return the default local solver of a problem.

    The shipped network for its operator, or for a family that the operator is of; the exact one
    else, where a side is natural, and for numbers of cells that are no multiples of half a
    subdomain.

    ``transforms``: whether constant coefficients for which no network is shipped may be solved by these: nothing is
    asked for of an iteration on subdomains.
    """
    size, operator = Subdomain().cells, problem.operator  # those of all that are shipped
    if len(problem.domain.cells) != 2:  # multigrid is faster there than subdomains that are alike
        return Exact(shared=False)
    exact = Exact(shared=not transforms or separable_ends(problem) is None)
    if problem.domain.grid().aspect:  # networks are of squares
        return exact
    if not problem.plain or any(n % (size // 2) or n < size for n in problem.domain.cells):
        return exact
    if operator == LAPLACE.at():
        return find_network(LAPLACE.name)
    if problem.equation.name not in shipped_models() or not operator.constant:
        return exact
    model = find_network(problem.equation.name)
    spacing = problem.domain.grid(model.spacing).spacing
    outside = model.outside(operator, Subdomain(model.cells, model.cells * spacing))
    return exact if outside else model
