"""The conductances of elements one by one, and which elements have the same."""

from typing import Any

import numpy as np

from mosaicdd.local_solvers.elements.kinds import alike
from mosaicdd.problems.discretisation.array_in_squares import ArrayInSquares
from mosaicdd.problems.operators.conductances import Conductances


class ElementWindows:
    """The conductances of the elements of a rectangle of lattice cells.

    Where arrays are the same number in most places, they are looked at elsewhere only.

    Parameters
    ----------
    conductances
        Between the nodes of the rectangle.
    spacing
        ``s``, cells along the side of an element.

    Attributes
    ----------
    shape
        Elements per axis.
    symmetric
        Whether both equations of an edge have the same conductance.
    """

    def __init__(self, conductances: Conductances, spacing: int):
        self.shape = conductances.elements(spacing)
        self.symmetric = conductances.symmetric
        self._index: np.ndarray | None = None  # which of the windows an element's is
        self._windows: Conductances
        reaction: Any = conductances.reaction
        if isinstance(reaction, ArrayInSquares):
            self._windows = self._different(conductances, reaction.uniform(spacing), spacing)
        else:
            self._windows = conductances.windows(spacing)

    def _different(self, conductances: Conductances, kinds: np.ndarray, s: int) -> Conductances:
        """Return the windows of all elements that differ, and of one of each kind that is known.

        Parameters
        ----------
        kinds
            See `ArrayInSquares.uniform`.
        """
        reaction: Any = conductances.reaction
        kinds, every = kinds.ravel(), np.arange(s + 1)

        def places_of(elements: np.ndarray) -> np.ndarray:
            y, x = (indices[:, None, None] * s for indices in np.divmod(elements, self.shape[1]))
            return np.asarray(reaction.places(y + every[:, None], x + every))

        different = np.flatnonzero(kinds == 0)
        places = places_of(different)
        # Many are only near something.
        arrays: list[Any] = conductances.arrays()
        others = np.logical_or.reduce([array.values != array.plain[-1] for array in arrays])
        there = others.take(places).any(axis=(1, 2))
        kinds[different[~there]] = -1
        different, places = different[there], places[there]
        self._index = index = np.empty(len(kinds), int)
        index[different] = np.arange(len(different))
        known, first = np.unique(kinds, return_index=True)
        for number, kind in enumerate(known[known < 0]):
            index[kinds == kind] = len(different) + number
        places = np.concatenate([places, places_of(first[known < 0])])

        def windows(values: Any) -> np.ndarray:
            rows, columns = (
                s + 1 - (whole - own)
                for whole, own in zip(reaction.shape, values.shape, strict=True)
            )
            return np.asarray(values.at(places[:, :rows, :columns]))

        return conductances.each(windows)

    def keys(self) -> np.ndarray:
        """Return a key for each element, the same where all its conductances are, ``(E,)``."""
        if self._index is None:
            return alike(self._windows.arrays(), axes=2)
        return alike(self._windows.arrays())[self._index]

    def those(self, numbers: np.ndarray) -> Conductances:
        """Return the conductances of some elements by their numbers, row by row."""
        at = np.unravel_index(numbers, self.shape)
        if self._index is not None:
            at = (self._index[numbers],)
        return self._windows.each(lambda values: values[at])
