"""Rows of elements that are handled at once, and which of them have which shared operator.

Shape letters: ``E`` elements of the rows, ``s`` cells along the side of one, ``n`` problems.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even

AT_ONCE = {"cpu": 2048, "cuda": 2**20}
"""Elements, times problems: on a CPU few, for the cache."""


class Members:
    """Some of the elements of a few rows.

    Parameters
    ----------
    numbers
        Theirs.
    whole
        Whether values are read and written of all.
    """

    def __init__(self, numbers: np.ndarray, whole: bool, device: torch.device):
        self.numbers = numbers
        self._at = None if whole else torch.from_numpy(numbers).to(device)

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Return their part of ``(E, n, ..)``, side by side."""
        some = values if self._at is None else values.index_select(0, self._at)
        return some.flatten(0, 1)

    def sources(self, f: torch.Tensor) -> torch.Tensor:
        """Return copies of their part of ``(n, rows, columns, s - 1, s - 1)``, side by side."""
        if self._at is None:
            return _one_by_one(f).flatten(0, 1)
        some = f[:, self._at // f.shape[2], self._at % f.shape[2]]
        return some.transpose(0, 1).flatten(2).flatten(0, 1)

    def put(self, values: torch.Tensor, given: torch.Tensor) -> None:
        """Write their part of ``(E, n, ..)``."""
        given = given.view(-1, *values.shape[1:])
        if self._at is None:
            values.copy_(given)
        else:
            values.index_copy_(0, self._at, given)


class Strip:
    """Some rows of elements, and which of them have which shared operator.

    Parameters
    ----------
    elements
        The rows.
    kinds
        ``(rows, columns)``, the shared operator of each; of those with an operator each -1, of the idle -2.

    Attributes
    ----------
    nodes
        The rows of nodes.
    own
        The numbers of those that have an operator each, if values of theirs are touched.
    """

    def __init__(self, elements: slice, kinds: np.ndarray, spacing: int, device: torch.device):
        self.elements, self._count = elements, kinds.size
        self.nodes = slice(elements.start * spacing, elements.stop * spacing + 1)
        self.own = None
        flat = kinds.ravel()
        numbers, counts = np.unique(flat[flat >= 0], return_counts=True)
        self._kinds: list[tuple[int, Members]] = []
        idle = int((flat == -2).sum())
        # As if all were of the most common kind, if most are; then the others, but for the idle, who have zeros.
        for i in np.argsort(-counts, kind="stable").tolist():
            number = int(numbers[i])
            whole = not self._kinds and (idle > 0 or counts[i] > len(flat) // 2)
            self._kinds.append((number, Members(np.flatnonzero(flat == number), whole, device)))
            if whole and (flat == -1).any():
                self.own = torch.from_numpy(np.flatnonzero(flat == -1)).to(device)
        self._most = AT_ONCE[device.type] * max(1, len(numbers))

    def problems(self, count: int) -> list[slice]:
        """Cut problems into as many as the cache holds, or pay for reading so many operators."""
        return even(count, max(1, self._most // self._count))

    def kinds(self, driven: np.ndarray | None = None) -> list[tuple[int, Members]]:
        """Return the shared operators and who has them, if any of these is driven."""
        return [
            one for one in self._kinds if driven is None or driven.ravel()[one[1].numbers].any()
        ]


def _one_by_one(values: torch.Tensor) -> torch.Tensor:
    """Return a copy of values ``(n, rows, columns, a, b)`` element by element, ``(E, n, a b)``."""
    n, rows, columns, *inner = values.shape
    copied = values.new_empty(rows, columns, n, *inner)
    copied.copy_(values.permute(1, 2, 0, 3, 4))
    return copied.view(rows * columns, n, -1)
