"""The text by which a command line asks for a reference solution."""

import numpy as np

from mosaicdd.problems.expressions import Expression
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references import REFERENCES
from mosaicdd.storage.solution_file import StoredSolution, read_solution


def reference_of_spec(spec: str, solution: StoredSolution) -> tuple[np.ndarray, str]:
    """Return the reference for the nodes of a stored field, and its name.

    Parameters
    ----------
    spec
        A name of `REFERENCES`, ``expr:...``, or a solution file on the same grid; of a file with
        several problems, the one of the same number.

    Raises
    ------
    ValueError
        If an expression is not allowed or not finite on the grid, the grids differ, or the other
        file does not hold all of the nodes.
    """
    if spec in REFERENCES:
        grid, boundary = solution.grid, solution.boundary
        problem = Problem(grid.shape, str(solution.attributes.get("pde")), sides=boundary)
        return REFERENCES[spec](problem, grid)[solution.window.place], spec
    if spec.startswith("expr:"):
        return _evaluate(spec.removeprefix("expr:"), solution), spec.removeprefix("expr:")
    several = read_solution(spec).problems > 1
    other = read_solution(spec, solution.problem if several else 0)
    if other.grid != solution.grid:
        (ny, nx), (other_y, other_x) = solution.grid.shape, other.grid.shape
        raise ValueError(
            f"{spec} has {other_x}x{other_y} cells with a spacing of {other.grid.spacing:g}, the "
            f"solution {nx}x{ny} with {solution.grid.spacing:g}; they must be equal"
        )
    if other.window.clip(solution.window.place) != solution.window.place:
        raise ValueError(
            f"{spec} holds another window of the domain, not all of the solution's nodes"
        )
    field = other.field[other.window.within(solution.window.place)]
    return field, other.attributes.get("local_solver", spec)


def _evaluate(text: str, solution: StoredSolution) -> np.ndarray:
    grid = solution.grid
    y, x = (
        np.linspace(0.0, s, n)[part]
        for s, n, part in zip(grid.size, grid.nodes, solution.window.place, strict=True)
    )
    field = Expression(text)(y=y[:, None], x=x)
    if not np.isfinite(field).all():
        count = int((~np.isfinite(field)).sum())
        raise ValueError(f"expression {text!r} is not finite at {count} of {field.size} nodes")
    return field
