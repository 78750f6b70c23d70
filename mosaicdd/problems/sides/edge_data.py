"""Values on all edges of a rectangle, of one or several problems: given, or made for a grid, as by a text.

The text is that by which a command line asks for boundary data: ``gp:...``, ``expr:...`` or a file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from mosaicdd.lattice.axes import letters
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.limits import exact
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.problems.sides.boundary import Boundary, corners
from mosaicdd.settings import read_settings

_SEEDS = re.compile(r"(?:^|(?<=,))seed=([^,]*?)\.\.([^,]*)(?:,|$)")
_MOST_SEEDS = 10**6
_GP_SETTINGS = {
    "seed": (int, 0.0),
    "length": (float, 1e-12),
    "amplitude": (float, 0.0),
    "noise": (float, 0.0),
}


@runtime_checkable
class Data(Protocol):
    """Values on all edges, which may be made when the grid is known.

    ``problems``: of how many problems.
    """

    @property
    def problems(self) -> int: ...  # noqa: D102 - said above

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid."""
        ...


@dataclass(frozen=True)
class GivenBoundaries:
    """Those that are there: of each problem, or of one that serves all."""

    values: tuple[Boundary, ...]

    def __post_init__(self) -> None:
        if not self.values or not all(isinstance(boundary, Boundary) for boundary in self.values):
            raise TypeError("sides must be conditions, or Boundary values of all edges")

    @property
    def problems(self) -> int:
        """Of how many problems."""
        return len(self.values)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return them; `Sides.edge_values` checks that they belong to the grid."""
        return list(self.values)


@dataclass(frozen=True)
class SomeOfData:
    """Those of some of the problems of others."""

    data: Data
    which: range

    @property
    def problems(self) -> int:
        """Of how many problems."""
        return len(self.which)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid."""
        return self.data.boundaries(grid)[self.which.start : self.which.stop]


def is_text(data: Data) -> bool:
    """Say whether values are given by a text, which tells them from others, or are some of those."""
    return is_text(data.data) if isinstance(data, SomeOfData) else hasattr(data, "text")


def is_file(spec: str) -> bool:
    """Say whether ``spec`` names a file."""
    return not spec.startswith(("gp:", "expr:")) and spec != "gp"


class BoundarySpec:
    """Boundary data by a text, ``gp:seed=0,length=1.5`` or ``expr:sin(2*pi*x)``.

    ``gp:seed=0..63`` are 64 problems, one for each seed from the first to the last.

    `ValueError` if the text is malformed or a value is out of range.

    Parameters
    ----------
    text
        What is evaluated when the grid is known; on many ranks every one evaluates it.
    t
        The time, which may stand in an expression then.
    """

    def __init__(self, text: str, t: float | None = None):
        self.text = text
        self._t = t
        self._expression = text.startswith("expr:")
        self._settings: dict[str, float] = {}
        self._seeds: Sequence[int] = [0]
        if not self._expression:
            self._settings, self._seeds = _gp(text.partition(":")[2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundarySpec) and (self.text, self._t) == (other.text, other._t)

    def __hash__(self) -> int:
        return hash((self.text, self._t))

    @property
    def problems(self) -> int:
        """Of how many problems they are."""
        return len(self._seeds)

    @property
    def formula(self) -> str | None:
        """The text of the expression, if it is one."""
        return self.text if self._expression else None

    def at_time(self, t: float, axes: int) -> Self:
        """Return the data at a time, themselves if they do not depend on it."""
        if not self._expression:
            return self
        formula = self._formula(t, axes)
        if not formula.uses("t"):
            return self
        return type(self)(self.text, t=t if formula.may_jump("t") else exact(t))

    def _formula(self, t: float | None, axes: int) -> Expression:
        text, variables = self.text.removeprefix("expr:"), (*reversed(letters(axes)), "pi")
        return Expression(text, variables, **({} if t is None else {"t": t}))

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid.

        `ValueError` if an expression is not allowed or not finite on the edge.
        """
        if self._expression:
            return [Boundary.of_expression(self._formula(self._t, len(grid.shape)), grid)]
        return [
            Boundary.of_gaussian_process(grid, seed=seed, **self._settings) for seed in self._seeds
        ]


def _gp(text: str) -> tuple[dict[str, float], Sequence[int]]:
    """Return the settings of a Gaussian process, and its seeds."""
    seeds = _SEEDS.search(text)
    if seeds is None:
        settings = read_settings("gp", text, _GP_SETTINGS)
        return settings, [int(settings.pop("seed", 0))]
    settings = read_settings("gp", text[: seeds.start()] + text[seeds.end() :], _GP_SETTINGS)
    if "seed" in settings:
        raise ValueError("gp:seed is given twice")
    return settings, _range_of_seeds(*seeds.groups())


def _range_of_seeds(first: str, last: str) -> range:
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise ValueError(
            f"gp:seed must be a number or a range as 0..63, from low to high, got '{first}..{last}'"
        )
    seeds = range(int(first), int(last) + 1)
    if seeds.stop > _MOST_SEEDS:
        raise ValueError(f"gp:seed={first}..{last}: at most {_MOST_SEEDS} in a range")
    return seeds


def joined_edges(edges: dict[str, np.ndarray], grid: Grid) -> Boundary:
    """Return the values on edges by the names of sides, ``(M,)``; those that differ in a common corner get the mean there."""
    axes, names = len(grid.shape), side_names(len(grid.shape))
    own = {
        names[name]: edge.reshape(tuple(np.delete(grid.nodes, names[name][0])))
        for name, edge in edges.items()
    }
    total = {side: edge.copy() for side, edge in own.items()}
    counts = {side: np.ones(edge.shape) for side, edge in own.items()}
    for first, on_first, second, on_second in corners(axes):
        for side, here, beside, there in (
            (first, on_first, second, on_second),
            (second, on_second, first, on_first),
        ):
            total[side][here] += own[beside][there]
            counts[side][here] += 1
    return Boundary({side: edge / counts[side] for side, edge in total.items()})
