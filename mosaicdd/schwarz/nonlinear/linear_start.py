"""Where the two-level iteration of a nonlinear equation begins: the linear equation's solution, on a coarser grid.

On nodes a few cells apart, if not on all, it is good enough a start, and sine transforms find it for next to
nothing: every rank does for the whole domain.
"""

import math

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.nonlinear.nonlinear import NonlinearSolver
from mosaicdd.problems.coarser import every, refined
from mosaicdd.problems.discretisation.discrete import DirichletSystem
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.references.references import by_sine_transform
from mosaicdd.problems.sides.boundary import Boundary

_MOST = 2**20  # nodes of the coarser grid, as far as lattice nodes are two or more apart on it


def write_linear_start(
    v: Interface, solver: NonlinearSolver, boundary: Boundary, number: int
) -> None:
    """Write it for one of the solver's problems to an interface of this problem alone.

    A source that not every rank knows as a whole is left out.
    """
    block, grid = v.block, v.block.lattice.grid
    apart = 1
    while math.prod(grid.shape) > _MOST * apart**2 and block.lattice.spacing % (4 * apart) == 0:
        apart *= 2
    coarse = Grid(tuple(cells // apart for cells in grid.shape), apart * grid.spacing)
    u = boundary.every(apart).impose(np.zeros(coarse.nodes))
    system = DirichletSystem(solver.base, coarse)
    b = system.right_hand_side(u).reshape(u[1:-1, 1:-1].shape)
    f = every(solver.source.problem.fields.get("f", 0.0), number, apart)
    if f is not None:
        whole = tuple(slice(0, nodes) for nodes in coarse.nodes)
        b += coarse.spacing**2 * Field("f", f).sample(coarse, whole)[0][1:-1, 1:-1]
    u[1:-1, 1:-1] = by_sine_transform(system, b)
    step = block.lattice.spacing // apart
    for axis, lines in enumerate(v.lines):
        along = block.origin[1 - axis]
        values = np.moveaxis(u, axis, 0)[block.first[axis] * step :: step][: lines.shape[1]]
        values = refined(values, apart)[:, along : along + lines.shape[2]]
        lines[0].copy_(torch.from_numpy(np.ascontiguousarray(values)))
