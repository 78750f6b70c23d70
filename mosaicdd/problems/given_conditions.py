"""What holds on the sides and outlines of a problem, with its values, as files hold it."""

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.discretisation import Discretisation
from mosaicdd.problems.medium import medium_of
from mosaicdd.problems.nonlinear import Nonlinear
from mosaicdd.problems.parts import is_outline
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.side_values import EvaluatedPart

_STRIP = 2**20  # nodes whose equations are made at a time, where they are needed one by one


def conditions_of(problem: Problem, grid: Grid) -> list[EvaluatedPart]:
    """Return all conditions of a problem with their values, as files hold them.

    What is a function on the outline of a shape is evaluated where it is needed.
    """
    sides = problem.conditions
    found = sides.evaluated(grid, problem.pieces(grid))
    if problem.domain.shape is None:
        return found
    parts = [part for part in sides.parts if is_outline(part.name)]
    functions = [part for part in parts if not isinstance(part.values, (str, float, int))]
    points = _needed_points(problem, grid) if functions else {}
    for part in parts:
        kind = type(part.condition).__name__
        if part not in functions:
            found.append(EvaluatedPart(part.name, kind, part.alpha, part.values))
            continue
        at = points.get(part.name, np.concatenate(list(points.values())))
        values = sides.on_outline(part.name, at, grid)
        where = at[:, ::-1] * grid.spacing
        found.append(EvaluatedPart(part.name, kind, part.alpha, values, where))
    return found


def _needed_points(problem: Problem, grid: Grid) -> dict[str, np.ndarray]:
    """Return where on outlines conditions are evaluated, ``(M, 2)``, (y, x) in cells, by their names."""
    operator = problem.operator
    medium = operator.faces if isinstance(operator, Nonlinear) else medium_of(operator)
    one = Discretisation(problem, medium, grid)
    names = () if one.outline is None else one.outline.names
    found: dict[str, list[np.ndarray]] = {name: [np.empty((0, 2))] for name in names}
    rows, columns = grid.nodes
    step = max(1, _STRIP // columns)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        wide = one.equations((slice(start - 1, stop + 1), slice(-1, columns + 1)))
        outlines = wide.part(slice(1, stop - start + 1), slice(1, columns + 1)).outlines
        for crossings in () if outlines is None else (outlines.ties, outlines.flows, outlines.on):
            for number, name in enumerate(names):
                found[name].append(crossings.points[crossings.outlines == number])
    return {name: np.unique(np.concatenate(points), axis=0) for name, points in found.items()}
