"""Data that make numbers beyond float64: a solve that ended without a number says so."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaicdd.axes import Slices
from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.outcome import Outcome

_LARGEST = 1e140  # whose squares, as of equations that are not linear, are numbers


def beyond_numbers(outcome: Outcome) -> bool:
    """Say whether a solve ended without a number."""
    residual = outcome.discrete_residual
    return outcome.status == "diverged_nan" or not math.isfinite(residual or 0.0)


def explained(
    outcomes: list[Outcome],
    problem: Problem,
    boundaries: Sequence[Boundary],
    ranks: Ranks,
    grid: Grid,
    own: Slices,
) -> list[Outcome]:
    """Say of solves that ended without a number if what was given is too large; all ranks together.

    ``own``: the nodes of this rank.
    """
    values: list[Any] = [
        part.values for part in problem.conditions.parts if not callable(part.values)
    ]
    for boundary in boundaries:
        values.extend(boundary.edges.values())
    if problem.source is not None:  # which may be none outside of the domain
        values.append(problem.source.sample_as_given(grid, own, checked=False))
    sizes = [np.abs(v) for v in values if isinstance(v, (int, float, np.ndarray))]
    mine = [float(np.fmax.reduce(size, axis=None, initial=0.0)) for size in sizes]
    largest = max(ranks.allgather(max(mine)))
    if largest < _LARGEST:
        return outcomes
    why = (
        f"values of up to {largest:.0e} are given, and what is made of them is beyond float64: divide sources, fluxes "
        "and values on sides by one number"
    )
    return [
        dataclasses.replace(outcome, failure=why)
        if beyond_numbers(outcome) and outcome.failure is None
        else outcome
        for outcome in outcomes
    ]
