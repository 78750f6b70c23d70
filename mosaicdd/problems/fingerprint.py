"""Fingerprints of a problem's data on one rank, by their names in messages.

Numbers and texts are themselves. Of arrays, and of what functions return at the nodes, it is a `checksum`,
so that values that were changed in place, and other ones that a function's variables lead to, are seen.
"""

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import checksum_of, checksum_of_row, evaluate
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.fields.given import is_immutable, is_number, real_array
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.outline import OutlinePiece
from mosaicdd.problems.shapes.sampling import cells_within
from mosaicdd.problems.shapes.shape import Level
from mosaicdd.problems.sides.boundary import BoundarySpec
from mosaicdd.problems.sides.parts import SidePart
from mosaicdd.settings import concerning

_PROBES = 256  # places where a function on an outline, which has no nodes of its own, is evaluated
_WIDE = 32  # nodes around its own that a rank asks the level of a domain at
_SAMPLES = 2**18  # values of a source that are checked at a time: few, for the cache
SOURCE = "field f"
_SHAPE = "shape of the domain"

Fingerprint = dict[str, object]
"""Data by what messages call them: what they are, or what tells them from others."""


def fingerprint_of_kind(problem: Problem, grid: Grid) -> Fingerprint:
    """Return the properties that must agree before values can be compared."""
    operator, domain = problem.operator, problem.domain
    own_grid = domain.grid(grid.spacing)
    if operator.constant:
        kind: object = operator
    elif not operator.linear:
        kind = operator.behaviour
    else:
        kind = "medium", operator.bilinear
    return {
        "domain": (domain.cells, own_grid.steps, own_grid.origin, domain.shape is None),
        "equation, or other coefficients": kind,
        "kind of sides": problem.conditions.kinds,
        "nodes that are held": tuple(
            checksum_of_row(piece.nodes.ravel().astype(float))
            for piece in problem.conditions.pieces_inside(grid, domain.shape).values()
        ),
    }


def plan_fingerprint(
    problem: Problem, grid: Grid, part: Part, *, keep: bool = False
) -> Fingerprint:
    """Return the fingerprint of kind, domain and coefficients at the nodes of a part.

    ``keep``: whether what their functions return is kept, so that they are not called again: that of the domain also
    around the part.
    """
    operator, shape = problem.operator, problem.domain.shape
    data = fingerprint_of_kind(problem, grid)
    data[_SHAPE] = shape  # none, or one that is told by its corners
    if isinstance(shape, Level):
        if keep:
            ends = zip(part, grid.nodes, strict=True)
            shape.field.keep(
                grid, tuple(slice(max(p.start - _WIDE, 0), min(p.stop + _WIDE, n)) for p, n in ends)
            )
        data[_SHAPE] = shape.staircase, shape.of_cells, shape.field.fingerprint(grid, part)
    pieces = problem.pieces(grid)
    for side in problem.conditions.parts:
        if not is_number(side.alpha):
            exchange = side.exchanging
            data[exchange.called] = _fingerprint_of_part(
                exchange, pieces.get(side.name), exchange.values, grid
            )
    if not operator.constant:
        for name, field in operator.fields.items():
            if keep:
                field.keep(grid, part)
            data[f"field {name}"] = field.fingerprint(grid, part)
    return data


def fingerprint_of_sides(problem: Problem, grid: Grid) -> Fingerprint:
    """Return the fingerprint of values on the sides."""
    data: Fingerprint = {}
    conditions = problem.conditions
    if conditions.data is not None:
        data["values on the edges"] = (
            conditions.data
            if isinstance(conditions.data, BoundarySpec)  # which stands for them
            else tuple(
                checksum_of_row(edge)
                for boundary in conditions.edge_values(grid)
                for edge in boundary.edges.values()
            )
        )
    pieces = problem.pieces(grid)
    for part in conditions.parts:
        piece = pieces.get(part.name)
        data[f"side {part}"] = [
            _fingerprint_of_part(part, piece, values, grid) for values in part.each
        ]
    return data


@concerning("sides")
def _fingerprint_of_part(
    part: SidePart, piece: OutlinePiece | None, values: Any, grid: Grid
) -> object:
    """Return the fingerprint of values on a side or an outline."""
    what = part.called
    if is_immutable(values):
        return values
    if not callable(values):
        numbers = real_array(values, what)
    elif piece is not None:
        numbers = evaluate(values, tuple(grid.at(piece.nodes).T), what)
    else:
        t = (np.arange(_PROBES) + 0.5) / _PROBES  # all over the rectangle, or the box
        turns = (t, t * math.sqrt(_PROBES) % 1.0, t * math.pi * _PROBES % 1.0)
        places = tuple(
            low + turn * (high - low) for turn, (low, high) in zip(turns, grid.ends, strict=False)
        )
        try:
            with np.errstate(all="ignore"):
                numbers = evaluate(values, places, "an outline")
        except Exception as error:  # noqa: BLE001 - off its outline it need not be defined
            return str(error)
    return checksum_of_row(numbers)


def fingerprint_of_source(problem: Problem, grid: Grid, part: Part) -> Hashable:
    """Sample the source at the nodes of a part, and return its fingerprint.

    `ValueError` if it cannot be evaluated there, or is not finite.
    """
    source, shape = problem.source, problem.domain.shape
    if source is None or source.number is not None:
        return source and source.number

    def sample(strip: Part) -> np.ndarray:
        if source.per_cell(grid):
            return cells_within(source, shape, grid, strip)
        inside = None if shape is None else shape.inside(shape.level(grid, strip))
        return source.sample(grid, strip, inside)

    strip = max(1, _SAMPLES // source.problems)
    total = checksum_of(sample, part, strip=strip, summed=source.value is None)
    return total if source.value is None else source.value


def require_fingerprint(before: Fingerprint, problem: Problem, grid: Grid, part: Part) -> None:
    """Raise `ValueError` where the data of a problem have changed at the nodes of a part."""
    now = fingerprint_but_source(problem, grid, part) | {
        SOURCE: fingerprint_of_source(problem, grid, part)
    }
    require_same(before, now)


def fingerprint_but_source(problem: Problem, grid: Grid, part: Part) -> Fingerprint:
    """Return the fingerprint of all data but the source, at the nodes of a part."""
    return plan_fingerprint(problem, grid, part) | fingerprint_of_sides(problem, grid)


def require_same(before: Fingerprint, now: Fingerprint) -> None:
    """Raise `ValueError` with the names of data that have changed."""
    names = changed(before, now)
    if names:
        raise ValueError(
            f"the {' and the '.join(names)} of the problem changed since it was solved, in place or by what a "
            "function refers to: solve it again"
        )


def changed(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return the names of data that differ."""
    names = dict.fromkeys((*before, *now))
    return [name for name in names if before.get(name, ...) != now.get(name, ...)]
