"""Where the equation is the same at all nodes of a rectangle or box: products of waves along the axes are its eigenvectors."""

from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.problems.sides.conditions import Dirichlet, Neumann, Periodic

Ends = tuple[tuple[bool, bool] | None, ...]
"""Per axis whether values are given at the low and at the high end, else fluxes; None between periodic sides."""


def separable_ends(problem: Problem) -> Ends | None:
    """Return what holds at the ends of the axes where coefficients are numbers; None where waves solve no such problem.

    They do without a velocity and mixed derivatives, where each side has one condition, which is no exchange, and
    nothing is held inside.
    """
    axes, conditions = len(problem.domain.cells), problem.conditions
    names = side_names(axes)
    if problem.domain.shape is not None or not _is_uniform(problem.operator):
        return None
    has_values = [[True, True] for _ in range(axes)]
    for part in conditions.parts:
        if part.inside or not part.whole:
            return None
        if part.name not in names:  # an outline, which a rectangle has not
            continue
        if not isinstance(part.condition, Dirichlet | Neumann | Periodic):
            return None
        axis, end = names[part.name]
        has_values[axis][end] = isinstance(part.condition, Dirichlet)
    ends = tuple(
        None if around else (low, high)
        for around, (low, high) in zip(conditions.periodic, has_values, strict=True)
    )
    counts = zip(problem.domain.cells, ends, strict=True)
    has_unknowns = all(cells > 1 or (end is not None and not all(end)) for cells, end in counts)
    return ends if has_unknowns else None


def _is_uniform(operator: EllipticOperator | Medium | Nonlinear) -> bool:
    """Say whether reflections leave an operator as it is, the same everywhere."""
    if isinstance(operator, EllipticOperator):
        return operator.reflective and operator.c >= 0
    if not isinstance(operator, Medium) or operator.couples_corners or operator.foils:
        return False
    return operator.self_adjoint and all(f.number is not None for f in operator.fields.values())
