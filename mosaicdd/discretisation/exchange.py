"""What exchanges through the outlines of a shape: ``alpha`` of their Robin conditions, which may vary in place."""

from collections.abc import Callable, Sequence

import numpy as np

from mosaicdd.discretisation.crossings import round_periods
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.sides.side_values import evaluated_at, require_alphas
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import concerning


class RobinCoefficients:
    """The coefficients of exchange of outlines, by their numbers.

    ``names``: of the outlines.
    """

    def __init__(self, sides: Sides, names: Sequence[str], grid: Grid):
        self._grid, self._periods = grid, sides.periods(grid)
        self._parts = [sides.outline(name) for name in names]
        self._names = names
        alphas = [0.0 if part is None else part.alpha for part in self._parts]
        # NaN where it varies.
        self._numbers = np.array([float(a) if is_number(a) else np.nan for a in alphas])

    @property
    def certain(self) -> np.ndarray:
        """Which outlines exchange all along."""
        return self._numbers > 0

    @property
    def possible(self) -> np.ndarray:
        """Which outlines may exchange somewhere."""
        return ~(self._numbers <= 0)

    def anywhere(self, crossed: Callable[[str], np.ndarray]) -> bool:
        """Say whether one exchanges somewhere; ``crossed``: the places of one by its name, ``(T, axes)``, x first."""
        if self.certain.any():
            return True
        varying = np.flatnonzero(np.isnan(self._numbers)).tolist()
        return any(self._positive(n, crossed(self._names[n])[:, ::-1]).any() for n in varying)

    def acts(self, outlines: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Say where outlines, ``(T,)``, exchange near places ``(T, axes)`` in cells."""
        acting = self.certain[outlines]
        for number in np.flatnonzero(np.isnan(self._numbers)).tolist():
            own = outlines == number
            places = self._grid.at(round_periods(cells[own], self._periods))
            acting[own] = self._positive(number, places)
        return acting

    def alphas(self, outlines: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return ``alpha``, ``(T,)``, at points on outlines, ``(T, axes)`` in cells; `ValueError` if one is negative."""
        alphas = self._numbers[outlines]
        varying = np.isnan(alphas)
        if not varying.any():
            return alphas
        points = round_periods(points, self._periods)
        for number in np.unique(outlines[varying]).tolist():
            part, own = self._parts[number], outlines == number
            if part is None:
                continue
            with concerning("sides"):
                values = evaluated_at(part.exchanging, tuple(self._grid.at(points[own]).T))
                alphas[own] = require_alphas(values, part, self._grid, points[own])
        return alphas

    def _positive(self, number: int, places: np.ndarray) -> np.ndarray:
        """Say at which coordinates ``(T, axes)``, (y, x), an ``alpha`` that varies is more than 0."""
        part = self._parts[number]
        if part is None or not len(places):
            return np.zeros(len(places), bool)
        return evaluated_at(part.exchanging, tuple(places.T))[0] > 0
