"""From a name or a model file to a local solver.

A bare name of a shipped model stands for its file inside the package; anything else is a path.
"""

from pathlib import Path

import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.local_solvers.models.conductance_model import ConductanceModel
from mosaicdd.local_solvers.models.correction_model import CorrectionModel
from mosaicdd.local_solvers.models.network_model import NetworkModel
from mosaicdd.local_solvers.models.operator_model import OperatorModel
from mosaicdd.local_solvers.models.weights import insert_weights
from mosaicdd.local_solvers.networks.conductances import (
    CONDUCTANCES,
    ConductanceNetwork,
    ConductanceSettings,
)
from mosaicdd.local_solvers.networks.correction import (
    CORRECTION,
    CorrectionNetwork,
    CorrectionSettings,
)
from mosaicdd.local_solvers.networks.operator import OPERATOR, OperatorNetwork, OperatorSettings
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.local_solvers.networks.unrolled import (
    UNROLLED,
    UnrolledSettings,
    unrolled_network,
)
from mosaicdd.local_solvers.nonlinear.nonlinear import SubdomainNewton
from mosaicdd.local_solvers.upscaled import Averaged
from mosaicdd.problems.equations import LAPLACE, equation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.settings import meant
from mosaicdd.storage.model_file import read_model

SHIPPED = Path(__file__).parent / "shipped"


_BY_NAME: dict[str, type] = {kind.name: kind for kind in (Exact, Averaged, SubdomainNewton)}
"""Local solvers that need no file."""


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
            f"{name_or_path}: neither a model file nor a shipped model{meant(name_or_path, (*shipped_models(), *_BY_NAME))}; "
            f"shipped: {', '.join(shipped_models())}; by name, too: {', '.join(_BY_NAME)}"
        )
    return path


def find_local_solver(name_or_path: str) -> LocalSolver:
    """Return a local solver: ``"exact"``, or the network of a shipped model's name or a model file.

    Raises
    ------
    FileNotFoundError
        If there is no such model.
    ValueError
        If the file is not a sound model file.
    """
    known = _BY_NAME
    return known[name_or_path]() if name_or_path in known else find_network(name_or_path)


@torch.random.fork_rng([])  # first weights are drawn, and then replaced
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

    The shipped network for its operator, or for a family that the operator is of; ``"exact"`` else, where a
    side is natural, and for numbers of cells that are no multiples of half a subdomain.
    """
    size = Subdomain().cells  # of all that are shipped
    if not problem.plain or any(n % (size // 2) or n < size for n in problem.domain.cells):
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
