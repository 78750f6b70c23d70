"""The conductances of elements one by one, and which elements have the same."""

from typing import Any

import numpy as np

from mosaicdd.local_solvers.elements.kinds import alike
from mosaicdd.problems.discretisation.array_in_squares import ArrayInSquares
from mosaicdd.problems.operators.conductances import Conductances


class Windows:
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
        """Return the windows of one element of each kind that is known, and of all others."""
        wanted = kinds == 0
        for kind in np.unique(kinds[~wanted]):
            wanted.flat[np.argmax(kinds == kind)] = True
        index = np.cumsum(wanted.ravel()) - 1
        kinds = kinds.ravel()
        for kind in np.unique(kinds[kinds < 0]):
            index[kinds == kind] = index[np.argmax(kinds == kind)]
        self._index = index
        y, x = (one[:, None, None] * s for one in np.nonzero(wanted))
        reaction: Any = conductances.reaction
        places = reaction.places(y + np.arange(s + 1)[:, None], x + np.arange(s + 1))

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
