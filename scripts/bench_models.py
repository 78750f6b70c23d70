"""What the shipped models are: their sizes, their training as their cards tell it, and their errors.

The errors on held-out samples and on windows are those of the cards. *White noise*: the root mean square
error at the interior nodes for 1000 perimeters of independent normal values, far rougher than the
training data, by the network in float64 against the exact discrete solution.
"""

import numpy as np
import torch
from tables import publish, table

from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.loading import find_network, model_path, shipped_models

_PERIMETERS = 1000


def main() -> None:
    """Read the cards, measure, print the table and write it to ``benchmarks/``."""
    torch.set_num_threads(1)
    header = ["model", "network", "weights", "MB", "steps", "seconds", "validation MSE"]
    rows = [_row(name) for name in shipped_models()]
    text = (
        f"{table([*header, 'windows MSE', 'white noise'], rows)}\n\n"
        "By `python scripts/bench_models.py`; its head says what the errors are. Steps and seconds "
        "are of the training, beside other work on the same cores."
    )
    publish("models", "The shipped models", text)


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


if __name__ == "__main__":
    main()
