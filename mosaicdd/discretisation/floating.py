"""A problem on the parts of a domain that something holds, without those that float."""

import dataclasses

import numpy as np

from mosaicdd.discretisation.discretisation import fixed_nodes
from mosaicdd.discretisation.embedded_boundary import EmbeddedBoundary
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.voxels import VoxelMask
from mosaicdd.unsupported import Unsupported


def without_floating(problem: Problem) -> Problem:
    """Return a problem without the floating parts of its domain.

    No value, exchange or reaction acts on these, so their level is not known. The share of the voxels that is left out is said by the domain's text, and is
    ``problem.domain.shape.left_out``. If nothing holds any part it is the problem itself.

    Raises
    ------
    Unsupported
        If the domain is a part of a rectangle.
    """
    domain, grid = problem.domain, problem.domain.grid()
    if domain.shape is None:
        return problem
    medium = medium_of(problem.operator)
    fixed = fixed_nodes(problem, medium, grid)
    if fixed is None:  # a reaction holds all
        return problem
    pieces = EmbeddedBoundary(domain.shape, grid, problem.conditions).floating_voxels(fixed)
    if pieces is None:
        raise Unsupported(
            "parts that float are left out of masks of voxels only, this is a part of a rectangle"
        )
    if len(pieces.loose) in (0, pieces.count):
        return problem
    inside = pieces.numbers > 0
    rest = inside & ~pieces.floating
    share = 1 - np.count_nonzero(rest) / np.count_nonzero(inside)
    held = dataclasses.replace(domain, shape=VoxelMask(rest, left_out=share))
    return dataclasses.replace(problem, domain=held)
