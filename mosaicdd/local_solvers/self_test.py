"""Whether a local solver solves its equation at all: a test before any work.

The lifting alone gives smooth data a plausible answer, whatever network stands behind it; on white
noise it does not, and a network that has learned nothing is off by as much as the solution itself.
"""

import numpy as np
import torch

from mosaicdd.local_solvers.bound import SharedSolver
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.tensors import Tensors

_PERIMETERS = 64  # of white noise, rougher than any data that networks learn from
_LARGEST = 0.5  # share of the solution: a network that has learned nothing is off by more


def self_test_error(local_solver: SharedSolver) -> float:
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


def require_self_test(local_solver: SharedSolver) -> None:
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
