"""From a model file to a local solver, and whether that solves its equation at all.

A bare name of a shipped model stands for its file inside the package; anything else is a path.

The lifting alone gives smooth data a plausible answer, whatever network stands behind it; on white
noise it does not, and a network that has learned nothing is off by as much as the solution itself: a
test before any work.
"""

from pathlib import Path

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import BoundSolver, LocalSolver
from mosaicdd.local_solvers.correction_model import CorrectionModel
from mosaicdd.local_solvers.exact import Exact, ExactSolver
from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.local_solvers.networks.conductances import (
    CONDUCTANCES,
    ROUGHNESS,
    ConductanceNetwork,
    ConductanceSettings,
    LearnedRule,
)
from mosaicdd.local_solvers.networks.correction import (
    CORRECTION,
    CorrectionNetwork,
    CorrectionSettings,
)
from mosaicdd.local_solvers.networks.family import FamilyNetwork, invariants
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.operator import OPERATOR, OperatorNetwork, OperatorSettings
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.local_solvers.networks.unrolled import (
    UNROLLED,
    UnrolledSettings,
    unrolled_network,
)
from mosaicdd.local_solvers.nonlinear import SubdomainNewton
from mosaicdd.local_solvers.operator_model import OperatorModel
from mosaicdd.local_solvers.source import Source
from mosaicdd.local_solvers.upscaled import Averaged, UpscaledSolver
from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations import LAPLACE, equation
from mosaicdd.problems.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard, read_model
from mosaicdd.tensors import Tensors

_ROUNDING = 1e-6  # of limits to what operators are like
SHIPPED = Path(__file__).parent / "shipped"


def shipped_models() -> list[str]:
    """Return the names of the models inside the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.h5"))


def model_path(name_or_path: str) -> Path:
    """Return the file of a shipped model's name, or the path itself.

    Raises
    ------
    FileNotFoundError
        If it is neither; the message lists the shipped models.
    """
    if name_or_path in shipped_models():
        return SHIPPED / f"{name_or_path}.h5"
    path = Path(name_or_path)
    if not path.exists():
        raise FileNotFoundError(
            f"{name_or_path}: neither a model file nor a shipped model; shipped: "
            f"{', '.join(shipped_models()) or 'none'}"
        )
    return path


class NetworkModel:
    """A trained network, before it knows a problem.

    Parameters
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    network, card
        The network, and what the model file says of it.
    """

    def __init__(self, name: str, network: Network, card: ModelCard):
        self.name = name
        self.network = network
        self.card = card

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
        answer needs no trust in the network.

        Raises
        ------
        ValueError
            If it was trained for another operator, or another spacing.
        """
        spacing, needed = self.spacing, problem.operator
        if spacing is not None and not np.isclose(grid.spacing, spacing, rtol=1e-12, atol=0):
            raise ValueError(
                f"{self.name} was trained for a spacing of {spacing:g}, the grid's is "
                f"{grid.spacing:g}; leave the spacing of the domain to the local solver, or take 'exact'"
            )
        subdomain = Subdomain(self.cells, self.cells * grid.spacing)
        if isinstance(needed, Nonlinear):
            raise ValueError(  # noqa: TRY004 - of what the user has given, the value is wrong
                f"{self.name} is a model for a linear equation, {problem.equation.name} is not linear; "
                "take 'exact'"
            )
        if not isinstance(needed, EllipticOperator):
            raise ValueError(  # noqa: TRY004 - of what the user has given, the value is wrong
                f"{self.name} is a model for constant coefficients, those of {problem.equation.name} "
                "are fields here; take 'exact'"
            )
        if not problem.plain:
            raise ValueError(
                f"{self.name} solves with values given on all sides of a rectangle; {problem.hindrance}: "
                "take 'exact'"
            )
        outside = self.outside(needed, subdomain) if self.card.ranges else ""
        if not self.card.ranges and needed != self._operator:
            raise ValueError(
                f"{self.name} is a model for {_said(self.card.pde, self.card.parameters)}, it does not "
                f"solve {_said(problem.equation.name, problem.parameters)}; take 'exact', or a model "
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


def find_local_solver(
    name_or_path: str,
) -> "LocalSolver | ConductanceModel | OperatorModel | CorrectionModel | Averaged":
    """Return a local solver: ``"exact"``, or the network of a shipped model's name or a model file.

    Raises
    ------
    FileNotFoundError
        If there is no such model.
    ValueError
        If the file is not a sound model file.
    """
    known: dict[str, type] = {one.name: one for one in (Exact, Averaged, SubdomainNewton)}
    return known[name_or_path]() if name_or_path in known else find_network(name_or_path)


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


def find_network(
    name_or_path: str,
) -> "NetworkModel | ConductanceModel | OperatorModel | CorrectionModel":
    """Return the network of a shipped model's name or a model file; errors as `find_local_solver`."""
    path = model_path(name_or_path)
    card, weights = read_model(path)
    try:
        if card.network == CONDUCTANCES:
            learned = ConductanceNetwork(ConductanceSettings(**card.settings))
            insert_weights(learned, weights)
            return ConductanceModel(name_or_path, learned, card)
        if card.network == OPERATOR:
            operators = OperatorNetwork(OperatorSettings(**card.settings))
            insert_weights(operators, weights)
            return OperatorModel(name_or_path, operators, card)
        if card.network == CORRECTION:
            corrections = CorrectionNetwork(card.cells, CorrectionSettings(**card.settings))
            insert_weights(corrections, weights)
            return CorrectionModel(name_or_path, corrections, card)
        if card.network == UNROLLED:
            unrolled = unrolled_network(card.pde, card.cells, UnrolledSettings(**card.settings))
            insert_weights(unrolled, weights)
            return CorrectionModel(name_or_path, unrolled, card)
        equation(card.pde)
        network = build_network(card.network, card.settings, card.subdomain)
        insert_weights(network, weights)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return NetworkModel(name_or_path, network, card)


def default_local_solver(problem: Problem) -> str:
    """Return the name of what solves a problem where nothing else is asked for.

    The shipped network for its operator, or for a family that the operator is of; ``"exact"`` else, and
    where a side is natural.
    """
    if not problem.plain:
        return Exact.name
    if problem.operator == LAPLACE.at():
        return LAPLACE.name
    operator = problem.operator
    if problem.equation.name not in shipped_models() or not isinstance(operator, EllipticOperator):
        return Exact.name
    model = find_network(problem.equation.name)
    if not isinstance(model, NetworkModel):  # for fields, and approximate: asked for by name
        return Exact.name
    spacing = problem.domain.grid(model.spacing).spacing
    outside = model.outside(operator, Subdomain(model.cells, model.cells * spacing))
    return Exact.name if outside else model.name


def extract_weights(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the weights of a network as float32 arrays by name."""
    return {name: value.cpu().float().numpy() for name, value in network.state_dict().items()}


def insert_weights(network: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Put weights into a network.

    Raises
    ------
    ValueError
        If a weight is missing, unknown or of another shape than the network's.
    """
    expected = network.state_dict()
    if different := sorted(expected.keys() ^ weights.keys()):
        raise ValueError(
            f"the weights do not fit the network: {', '.join(different)} missing or unknown"
        )
    for name, values in weights.items():
        if values.shape != tuple(expected[name].shape):
            raise ValueError(
                f"weight {name!r} has the shape {values.shape}, the network needs "
                f"{tuple(expected[name].shape)}"
            )
    network.load_state_dict({name: torch.as_tensor(values) for name, values in weights.items()})


_PERIMETERS = 64
_LARGEST = 0.5


def self_test_error(local_solver: BoundSolver) -> float:
    """Return the error on white-noise perimeters, relative to the exact discrete solution.

    Root mean squares over the centre lines of 64 perimeters, always the same.
    """
    subdomain = local_solver.subdomain
    tensors: Tensors = {"device": torch.device("cpu"), "dtype": torch.float64}
    rng = np.random.default_rng(0)
    g = torch.from_numpy(rng.standard_normal((_PERIMETERS, 4 * subdomain.cells)))
    points = subdomain.centre_lines
    solvers = (local_solver, ExactSolver(local_solver.operator, subdomain))
    values = [torch.empty(_PERIMETERS, len(points), dtype=torch.float64) for _ in solvers]
    for solver, out in zip(solvers, values, strict=True):
        solver.plan(points, **tensors)(g, out)
    predicted, exact = values
    return float((predicted - exact).norm() / exact.norm())


def require_self_test(local_solver: BoundSolver) -> None:
    """Refuse a local solver that is not one, or not for this operator.

    Raises
    ------
    ValueError
        If the operator is outside of a network's family, or its values are off by more than half of
        the solution, or not finite.
    """
    if outside := getattr(local_solver, "outside", ""):
        raise ValueError(outside)
    error = self_test_error(local_solver)
    if not error <= _LARGEST:
        raise ValueError(
            f"{local_solver.name} is off by {error:.0%} of the solution in its self-test (at most "
            f"{_LARGEST:.0%}): it does not solve the equation; train it further, or ask for a "
            "certified answer"
        )
