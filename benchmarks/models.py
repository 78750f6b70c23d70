"""What the shipped models are: their sizes, their training as their cards tell it, and their errors.

The errors on held-out samples and on windows are those of the cards. *White noise*: the root mean square
error at the interior nodes for 1000 perimeters of independent normal values, far rougher than the
training data, by the network in float64 against the exact discrete solution.

*Between the nodes*: ``exp(x) cos(y) / 20``, which is harmonic, on 192 x 128 cells by ``laplace``: root mean square and
largest error at random points by the network where a point lies, and by interpolation of the field.
"""

import numpy as np
import torch
from common import publish, table
from scipy.interpolate import RegularGridInterpolator

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.loading import find_network, model_path, shipped_models

_PERIMETERS, _POINTS = 1000, 20_000


def main() -> None:
    """Read the cards, measure, print the table and write it to ``benchmarks/``."""
    header = ["model", "network", "weights", "MB", "steps", "seconds", "validation MSE"]
    rows = [_row(name) for name in shipped_models()]
    text = (
        f"{table([*header, 'windows MSE', 'white noise'], rows)}\n\n"
        "Steps and seconds "
        "are of the training, beside other work on the same cores."
    )
    publish("models", "The shipped models", text)
    _between_nodes()


def _row(name: str) -> list[str]:
    model = find_network(name)
    card = model.card
    weights = sum(weight.numel() for weight in model.network.parameters())
    errors = card.validation["mse"], card.validation["window_mse"]
    return [
        name,
        card.network,
        f"{weights:,}",
        f"{model_path(name).stat().st_size / 1e6:.2f}",
        f"{card.training['steps']:,}",
        f"{card.training['seconds']:,.0f}",
        *(f"{error:.1e}" for error in errors),
        "-" if card.ranges else f"{_on_white_noise(name):.1e}",
    ]


def _on_white_noise(name: str) -> float:
    network = find_network(name).as_trained()
    subdomain, rng = network.subdomain, np.random.default_rng(0)
    g = torch.from_numpy(rng.standard_normal((_PERIMETERS, len(subdomain.perimeter))))
    points = subdomain.interior
    answers = [torch.empty(len(g), len(points), dtype=torch.float64) for _ in range(2)]
    tensors = {"device": torch.device("cpu"), "dtype": torch.float64}
    for solver, values in zip(
        (network, ExactSolver(network.operator, subdomain)), answers, strict=True
    ):
        solver.plan(points, **tensors)(g, values)
    return float((answers[0] - answers[1]).square().mean().sqrt())


def _between_nodes() -> None:
    """Write the errors of both ways to evaluate a solution at points."""
    problem = m.Problem((128, 192), "laplace", sides=m.Dirichlet("exp(x)*cos(y)/20"))
    solution = m.solve(problem)
    size = np.array([solution.x[-1], solution.y[-1]])
    points = np.random.default_rng(0).uniform(size=(_POINTS, 2)) * size
    truth = np.exp(points[:, 0]) * np.cos(points[:, 1]) / 20
    bilinear = RegularGridInterpolator((solution.y, solution.x), solution.field)(points[:, ::-1])
    rows = [
        _errors("the network, blended from the subdomains around", solution.at(points) - truth),
        _errors("the field, bilinear", bilinear - truth),
    ]
    text = (
        f"{table(['by', 'root mean square', 'largest'], rows)}\n\n"
        "Errors at random points against `exp(x) cos(y) / 20`, "
        "192 x 128 cells, local solver `laplace`."
    )
    publish("points", "Between the nodes", text)


def _errors(by: str, error: np.ndarray) -> list[str]:
    return [by, f"{np.sqrt(np.square(error).mean()):.1e}", f"{np.abs(error).max():.1e}"]
