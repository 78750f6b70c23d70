"""Heat conduction in standards and in practice: natural sides through the library."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Neumann, Problem, Robin, SolveSettings, solve
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)
# ISO 10211, case 1: rows from the top, columns towards the axis of symmetry.
ISO_10211 = """
 9.7 13.4 14.7 15.1
 5.3  8.6 10.3 10.8
 3.2  5.6  7.0  7.5
 2.0  3.6  4.7  5.0
 1.3  2.3  3.0  3.2
 0.7  1.4  1.8  1.9
 0.3  0.6  0.8  0.9
"""


@pytest.mark.ranks(1, 2, 3)
def test_iso_10211_case_1_all_28_temperatures_within_a_tenth_of_a_kelvin(comm):
    n = 12  # cells of a square
    sides = {"left": Neumann(), "top": Dirichlet(20.0)}
    solution = solve(Problem(Domain((8 * n, 4 * n), 1 / n), "laplace", sides=sides), ranks=comm)
    given = np.array(ISO_10211.split(), float).reshape(7, 4)
    found = solution.gather()[::-1][n : 8 * n : n, 3 * n :: -n]
    assert abs(found - given).max() < 0.1


@pytest.mark.ranks(1, 2, 3)
def test_nafems_t4_within_a_twentieth_of_a_kelvin(comm):
    sides = {
        "bottom": Dirichlet(100.0),
        "left": Neumann(),
        "right": Robin(750.0),
        "top": Robin(750.0),
    }
    problem = Problem(Domain((120, 72), 1 / 120), "diffusion", {"a": 52.0}, sides)
    assert abs(solve(problem, ranks=comm).gather()[24, 72] - 18.25) < 0.05


def test_a_thermal_bridge_of_four_materials_is_that_of_a_factorisation_to_a_microkelvin():
    # Concrete with insulation above, a steel anchor through it and aluminium below.
    a = np.full((95, 1000), 1.15)
    a[60:] = 0.03
    a[20:80, 480:490] = 50.0
    a[:5, 300:700] = 230.0
    sides = {
        "bottom": Robin(7.7, 7.7 * 20.0),
        "top": Robin(25.0, 25.0 * -10.0),
        "left": Neumann(),
        "right": Neumann(),
    }
    problem = Problem(Domain((95, 1000), 0.002), "diffusion", {"a": a}, sides)
    solution = solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert abs(solution.field - solve_directly(problem)).max() < 1e-6
    assert -10.0 < solution.field.min() < solution.field.max() < 20.0
