"""Problems of two linear equations on a small rectangle, and conditions of all kinds on its sides."""

import numpy as np

from mosaicdd import Dirichlet, Neumann, Problem, Robin
from mosaicdd.problems.sides.boundary import BoundarySpec

CELLS = (128, 192)
NODES = (129, 193)
H = 1 / 64  # the spacing where neither domain nor local solver gives one
MIXED = {
    "left": Dirichlet("y"),
    "right": Neumann(0.3),
    "bottom": Neumann(0.0),
    "top": Robin(2.0, 1.0),
}
INSULATED = dict.fromkeys(MIXED, Neumann(0.0))


def laplace(seed=0):
    return Problem(CELLS, "laplace", sides=BoundarySpec(f"gp:seed={seed}"))


def screened(source, c=3.0):
    return Problem(CELLS, "screened-poisson", {"c": c, "f": source}, Dirichlet("x - y"))


def source(seed=0, problems=None):
    shape = NODES if problems is None else (problems, *NODES)
    return np.random.default_rng(seed).standard_normal(shape)
