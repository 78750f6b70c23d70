"""The shipped models of families: parameters and sources that they have never seen, on large domains."""

import itertools
import math

import numpy as np
import pytest

from mosaicdd import Dirichlet, Problem
from mosaicdd.problems.equations.linear import tensor
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.schwarz.local_solvers.loading import find_local_solver


def flow(peclet, angle):
    """Return a velocity by its cell Peclet number at the models' spacing of 1/64."""
    return {"bx": 64 * peclet * math.cos(angle), "by": 64 * peclet * math.sin(angle)}


CASES = {
    "hardly screened": ("screened-poisson", {"c": 0.5}),
    "screened": ("screened-poisson", {"c": 31.0}),
    "most screened": ("screened-poisson", {"c": 100.0}),
    "a little anisotropic": ("anisotropic-diffusion", tensor(7.0, 0.7)),
    "anisotropic": ("anisotropic-diffusion", tensor(40.0, 2.1)),
    "most anisotropic": ("anisotropic-diffusion", tensor(100.0, 0.05)),
    "most anisotropic along x": ("anisotropic-diffusion", tensor(100.0, 0.0)),
    "most anisotropic across": ("anisotropic-diffusion", tensor(100.0, math.pi / 4)),
    "slow flow": ("advection-diffusion", flow(0.05, 0.5)),
    "flow": ("advection-diffusion", flow(0.5, 2.0)),
    "fast flow": ("advection-diffusion", flow(1.9, 4.0)),
    "fastest flow along y": ("advection-diffusion", flow(2.0, -math.pi / 2)),
}
WORST = ("most screened", "most anisotropic", "fastest flow along y")  # of each family
LARGE = "most anisotropic"  # of many cells by day, too: it takes the most iterations
SOURCES = {
    "none": 0.0,
    "smooth": lambda x, y: 3 * np.sin(x) * np.cos(2 * y),
    "steps": lambda x, y: 20 * np.sign(np.sin(3 * x) * np.cos(5 * y)) + x,
}
SIDES = {
    "bottom": Dirichlet("sin(3*x)"),
    "top": Dirichlet("cos(x)"),
    "left": Dirichlet("sin(y)"),
    "right": Dirichlet("cos(2*y)"),
}


@pytest.mark.parametrize(
    ("name", "source", "cells"),
    [
        *(
            pytest.param(*case, 1024, marks=() if case[0] == LARGE else pytest.mark.nightly)
            for case in zip(CASES, itertools.cycle(SOURCES), strict=False)
        ),
        *((name, "steps", 384) for name in WORST),
    ],
)
def test_a_shipped_model_solves_1024x1024_to_1e4_of_the_range_in_as_many_iterations(
    name, source, cells, make_solver
):
    pde, fields = CASES[name]
    problem = Problem((cells, cells), pde, {"f": SOURCES[source], **fields}, SIDES)
    grid = problem.domain.grid()
    outcomes = []
    for model in (Exact(), find_local_solver(pde)):
        bound = model.bind(problem, grid)
        bound.require_sound()
        engine = make_solver(Lattice(grid, bound.subdomain), local_solver=bound, rtol=1e-7)
        outcomes.append(engine.solve(problem.boundaries(grid)[0]))
    exact, learned = outcomes
    assert learned.converged
    assert abs(learned.iterations - exact.iterations) <= 3
    # What their documentation promises; where they are worst it is a third of that.
    values = exact.field
    assert (learned.field - values).abs().mean() < 1e-4 * (values.max() - values.min())
