"""Media on 512 x 512 cells against a sparse direct solution, and against what float64 can hold.

A field in float64 has a residual of its own: changing each value by half a unit in the last place
changes ``b - A u`` by ``eps / 2 |A| |u|``. For inclusions of contrast 1e6 that is 1e-9 of ``b``, and the
exact solution, rounded, has no smaller one.

SPE10's layers are taken from the file that ``MOSAICDD_SPE10`` names (``kx`` in an ``.npz``).
"""

import os

import numpy as np
import pytest
from media import MEDIA, rotating, spe10

from mosaicdd import Domain, Problem, SolveSettings, solve
from mosaicdd.discretisation.discrete import MediumSystem
from mosaicdd.solvers.references import solve_directly

CELLS, NODES = (512, 512), (513, 513)
RTOL = 1e-11
SPE10 = os.environ.get("MOSAICDD_SPE10")
_DAILY = (
    "inclusions",
)  # the largest contrast; what is not symmetric is small in multigrid/test_velocities.py


def problem_of(kind):
    rng = np.random.default_rng(0)
    f = np.random.default_rng(1).standard_normal(NODES)
    domain = Domain(CELLS)
    if kind == "rotating":
        flow = rotating(NODES, 2.0, domain.grid().spacing)
        return Problem(domain, "advection-diffusion", {"a": 1.0, "f": f} | flow)
    a = spe10(NODES, SPE10) if kind == "spe10" else MEDIA[kind](NODES, rng)
    return Problem(domain, "diffusion", {"a": a, "f": f})


@pytest.mark.parametrize(
    "kind",
    [
        *(
            pytest.param(kind, marks=() if kind in _DAILY else pytest.mark.nightly)
            for kind in (*MEDIA, "rotating")
        ),
        pytest.param(
            "spe10", marks=pytest.mark.skipif(SPE10 is None, reason="MOSAICDD_SPE10 names no file")
        ),
    ],
)
def test_fields_and_residuals_are_those_of_a_direct_solver(kind):
    problem = problem_of(kind)
    solution, expected = solve(problem, settings=SolveSettings(rtol=RTOL)), solve_directly(problem)
    assert abs(solution.field - expected).max() <= 1e-7 * np.ptp(expected)
    system = MediumSystem(problem.operator, problem.domain.grid())
    b = system.right_hand_side(np.zeros(NODES), problem.fields["f"])
    u = solution.field[1:-1, 1:-1].ravel()
    residual = np.linalg.norm(b - system.matrix @ u)
    rounding = np.finfo(float).eps / 2 * np.linalg.norm(abs(system.matrix) @ abs(u))
    assert residual <= max(RTOL * np.linalg.norm(b), 2 * rounding)
