"""The conditions on the sides and outlines of a problem, with their values, as files hold them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaicdd.axes import all_of, grown, in_rows, within
from mosaicdd.discretisation.crossings import BoundaryIntersections, BoundaryTerms
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.region_equations import region_equations
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.parts import is_outline
from mosaicdd.problems.sides.side_values import EvaluatedPart, evaluated_at
from mosaicdd.problems.sides.sides import Sides

_STRIP = 2**20  # nodes whose equations are made at a time, where they are needed one by one
Points = dict[str, np.ndarray]
"""Where on outlines conditions are evaluated, ``(M, 2)``, (y, x) in cells, by their names."""


def conditions_of(
    problem: Problem, grid: Grid, points: Points | None = None
) -> list[EvaluatedPart]:
    """Return all conditions of a problem with their values, as files hold them.

    What is a function on the outline of a shape is evaluated where it is needed.
    ``points``: where that is, if it is known; else the equations of the whole domain say it.
    """
    sides = problem.conditions
    conditions = sides.evaluated(grid, problem.pieces(grid))
    if problem.domain.shape is None:
        return conditions
    parts = [part for part in sides.parts if is_outline(part.name)]
    functions = [part for part in parts if not (_as_it_is(part.values) and _as_it_is(part.alpha))]
    if points is None:
        points = _needed_points(problem, grid) if functions else {}
    for part in parts:
        kind = type(part.condition).__name__
        if part not in functions:
            conditions.append(EvaluatedPart(str(part), kind, part.alpha, part.values))
            continue
        at = points.get(str(part), np.concatenate(list(points.values())))
        values = sides.on_outline(str(part), at, grid)
        alpha, where = part.alpha, grid.at(at)[:, ::-1]
        if not _as_it_is(alpha):
            alpha = evaluated_at(part.exchanging, tuple(grid.at(at).T))[0]
        conditions.append(EvaluatedPart(str(part), kind, alpha, values, where))
    return conditions


def _as_it_is(values: Any) -> bool:
    """Say whether values are written to a file as the user gave them."""
    return isinstance(values, str) or is_number(values)


def sides_of(problem: Problem, grid: Grid, number: int) -> Sides:
    """Return the sides of one of several problems, as files hold them."""
    data = problem.conditions.edge_values(grid)
    conditions = {part.name: part.condition(number) for part in conditions_of(problem, grid)}
    return Sides(conditions, data[number % len(data)] if data else None, len(grid.shape))


def points_on(outlines: BoundaryTerms, names: Sequence[str]) -> Points:
    """Return the points where conditions on named outlines are evaluated, each once."""
    crossings = BoundaryIntersections.joined([outlines.ties, outlines.natural, outlines.on])
    return {
        name: np.unique(crossings.points[crossings.outlines == number], axis=0)
        for number, name in enumerate(names)
    }


def joined_points(parts: Sequence[Points]) -> Points:
    """Return the points of several parts of a domain, each once."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.unique(np.concatenate([part[name] for part in parts if name in part]), axis=0)
        for name in names
    }


def _needed_points(problem: Problem, grid: Grid) -> Points:
    """Return the points of a domain's outlines where conditions are evaluated."""
    operator = problem.operator
    medium = operator.faces if not operator.linear else medium_of(operator)
    discretisation = Discretisation(problem, medium, grid)
    names = () if discretisation.outline is None else discretisation.outline.names
    points = []
    for part in in_rows(all_of(grid.nodes), _STRIP):
        ring = grown(part)
        wide = region_equations(discretisation, ring)
        outlines = wide.part(*within(part, ring)).outlines
        if outlines is not None:
            points.append(points_on(outlines, names))
    return joined_points(points)
