"""From a name or a model file to a local solver.

A bare name of a shipped model stands for its file inside the package; anything else is a path.
"""

from pathlib import Path

import torch

from mosaicdd.former import refuse_former
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.local_solvers.networks.network import insert_weights
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.local_solvers.trained_model import TrainedModel
from mosaicdd.problems.discretisation.system import separable_ends
from mosaicdd.problems.equations import LAPLACE, equation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.settings import meant
from mosaicdd.storage.model_file import model_digest, read_model
from mosaicdd.torch_defaults import float32_on_processor

SHIPPED = Path(__file__).parent / "shipped"


def shipped_models() -> list[str]:
    """Return the names of the models inside the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.h5"))


def local_solvers() -> list[str]:
    """Return all names that a local solver has without a file of one's own."""
    return [Exact.name, *shipped_models()]


def model_path(name_or_path: str) -> Path:
    """Return the file of a shipped model's name, or the path itself; if it is neither, the error lists the models."""
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
    """Return what solves a problem where nothing else is asked for.

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
    if problem.equation.name not in shipped_models() or not isinstance(operator, EllipticOperator):
        return exact
    model = find_network(problem.equation.name)
    spacing = problem.domain.grid(model.spacing).spacing
    outside = model.outside(operator, Subdomain(model.cells, model.cells * spacing))
    return exact if outside else model
