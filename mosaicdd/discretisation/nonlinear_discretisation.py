r"""Nonlinear equations on any domain, whatever holds on its outline: sums of flows through the faces of volumes.

A residual whose neighbours count one by one, as that of a reaction and of diffusion whose coefficient depends on
the values at both ends of a grid edge, is a reaction and a flow through each of the four faces, in space six,

$$F(u_0; u_1, u_2, \ldots) = R(u_0) + \sum_k W_k(u_0, u_k), \qquad R(u_0) = F(u_0; u_0, \ldots, u_0),$$

where $W_k$ is what $F$ rises by if only the neighbour $k$ is not $u_0$. What a domain has of volumes and faces is that of
linear equations (`Discretisation`, most often of the conductance 1): flows are taken times the part of the face, the
reaction times that of the volume, and a given value at $\theta$ of an edge stands for the neighbour, in a flow
that is divided by $\theta$. So of a linear equation it is the linear discretisation. What multiplies all flows, as a
permittivity does, is put into the conductances of the faces, per cell or node. Of other fields per cell each cell has
flows and a reaction of its own (`in_cells`), or, where a reaction is linear in them, a node has the mean over its volume.
"""

import numpy as np

from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.problem import Problem


class NonlinearDiscretisation:
    """What the nonlinear problems of one operator, domain and kind of sides have in common.

    `ValueError` if conditions do not fit the domain, or a part of it has no given value and no reaction.
    `Unsupported` if neighbours do not count one by one, unless the domain is of whole cells, of which the residual is a
    sum (`Nonlinear.by_cells`): then each adds what it has of it, and nothing is taken apart into flows.

    Parameters
    ----------
    problem
        Whose source and values on the outline do not count.

    Attributes
    ----------
    rounds
        After how many nodes of the grid.
    faces
        The discretisation of an equation with the factor of flows as conductance.
    """

    def __init__(self, problem: Problem, grid: Grid):
        operator = problem.operator
        if operator.linear:
            raise TypeError(f"a nonlinear operator is needed, got {operator}")
        shape = problem.domain.shape
        whole = shape is None or shape.voxels is not None
        operator.require_flows(problem.equation.name, whole_cells=whole)
        self.operator, self.grid, self._problem = operator, grid, problem
        self.rounds = problem.conditions.periods(grid)
        self.faces = Discretisation(problem, operator.faces, grid)
        values = self.faces.values(problem)
        self.known = values.known
        free = not (len(values.known) or values.exchange.any())
        if (outline := self.faces.outline) is not None:
            free &= outline.free

        def inside(part: Part) -> np.ndarray | bool:
            return True if outline is None else outline.level(part) < 0

        if self.faces.floating or (free and not operator.reacts(grid, inside)):
            raise ValueError(
                "no value is given on any side, and there is no exchange or reaction: the level of the "
                "solution is not known; give a value, robin, or the field c"
            )

    def factors(self, part: Part) -> tuple[np.ndarray, ...]:
        """Return the factor of what flows along the edges between the nodes of a part, 1 where nothing does."""
        plain = Medium({"a": Field("a", 1.0, len(part))}, self.operator.aspect)
        unit = Discretisation(self._problem, plain, self.grid)
        factor, faces = (on.between(part)[0].along for on in (self.faces, unit))
        every = zip(factor, faces, strict=True)
        return tuple(
            np.where(face > 0, k / np.where(face > 0, face, 1.0), 1.0) for k, face in every
        )
