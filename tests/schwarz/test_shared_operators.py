"""Problems whose elements share operators against the same with an operator for each element."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Neumann, Problem, Robin, Solver, SolveSettings, solve
from mosaicdd.local_solvers.elements import kinds

TIGHT = SolveSettings(rtol=1e-11)
CELLS = 160, 128  # in y and x, with elements of 16 cells
H = 1 / 64


def holes(x, y):
    """Return the distance from two round holes that lie the same in their elements."""
    return 0.2 - np.hypot((x - 0.1) % 1.0 - 0.5, y - 0.8)


def half():
    """Return a medium that varies in the left part only."""
    a = np.full((CELLS[0] + 1, CELLS[1] + 1), 3.0)
    a[:, :40] = np.exp(np.random.default_rng(0).standard_normal((CELLS[0] + 1, 40)))
    return a


SIDES = {"left": Dirichlet("sin(3*y)"), "bottom": Neumann(1.0), "top": Robin(2.0, "x")}
PROBLEMS = {
    "natural sides": lambda: Problem(Domain(CELLS, H), "laplace", sides=SIDES),
    "fluxes all round": lambda: Problem(Domain(CELLS, H), "poisson", {"f": "x-1"}, Neumann(0.0)),
    "given outlines": lambda: Problem(
        Domain.from_distance(holes, CELLS, H), "poisson", {"f": "x*y"}, SIDES
    ),
    "insulated outlines": lambda: Problem(
        Domain.from_distance(holes, CELLS, H),
        "laplace",
        sides={"left": Dirichlet("y"), "outline": Neumann(0.3)},
    ),
    "a medium in a part": lambda: Problem(Domain(CELLS, H), "diffusion", {"a": half(), "f": 1.0}),
}


pytestmark = pytest.mark.usefixtures("by_elements")


def none_shared(monkeypatch):
    monkeypatch.setattr(kinds, "_MANY", 10**9)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_fields_are_those_of_an_operator_each(comm, known_by_one, make, monkeypatch):
    problem = make()
    monkeypatch.setattr(kinds, "_MANY", 4)
    shared = solve(problem, "exact", ranks=comm, settings=TIGHT)
    none_shared(monkeypatch)
    each = known_by_one(solve, problem, "exact", settings=TIGHT)
    assert shared.status == each.status == "converged_rtol"
    assert abs(shared.iterations - each.iterations) <= 1
    scale = np.nanmax(abs(each.field))
    np.testing.assert_allclose(shared.gather(), each.field, rtol=0, atol=1e-12 * scale)


def operators(problem, monkeypatch):
    """Return in how many kinds elements and stars are shared, and how many have one of their own."""
    monkeypatch.setattr(kinds, "_MANY", 4)
    with Solver(problem, "exact") as solver:
        solver()
        (system,) = solver._setup.bound.planned.values()
    elements, stars = system.elements.schur.kinds, system.stars._parts.kinds
    return [(len(one.shared), one.own.stop - one.own.start) for one in (elements, stars)]


def test_a_rectangle_has_a_handful_of_kinds(monkeypatch):
    # Elements: inside, four sides, and four corners; the last lie beyond the grid in part. Subdomains:
    # inside, those that reach the sides' elements, those beyond, and corners of both.
    problem = Problem(Domain(CELLS, H), "laplace", sides=SIDES)
    (shared, own), (of_stars, own_stars) = operators(problem, monkeypatch)
    assert (shared, own) == (5, 4)
    assert of_stars <= 9
    assert own_stars <= 16


def test_coefficients_that_are_the_same_by_chance_are_shared(monkeypatch):
    (shared, own), (of_stars, _) = operators(PROBLEMS["a medium in a part"](), monkeypatch)
    assert own == 10 * 3  # 40 columns of nodes reach into the third column of elements
    assert shared == 1
    assert of_stars == 2  # of arms along x, and along y


def test_only_cut_elements_have_their_own(monkeypatch):
    (shared, own), _ = operators(PROBLEMS["given outlines"](), monkeypatch)
    assert shared <= 6
    assert 10 < own < 60
