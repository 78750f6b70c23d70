"""Rows of elements that are handled at once, and which of them have which shared operator.

Shape letters: ``E`` elements of the rows, times problems, these first; ``s`` cells along the side of one.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even

# Elements of a strip, times problems: on a CPU few, for the cache, yet more where there are many operators,
# each of which is read for its few. Of these, that are handled at once, for the cache next to a core.
_STRIP = {"cpu": 2048, "cuda": 2**20}
_EACH, _MOST = 64, 8192
GROUP = {"cpu": 512, "cuda": 2**20}


class Group:
    """Some of the elements of a strip, those of a kind side by side.

    Parameters
    ----------
    numbers
        Theirs.
    kinds
        Their shared operators, and which of the group have them.
    """

    def __init__(self, numbers: np.ndarray, kinds: list[tuple[int, slice]], device: torch.device):
        self.kinds = kinds
        if (np.diff(numbers) == 1).all():
            self._at: slice | torch.Tensor = slice(int(numbers[0]), int(numbers[-1]) + 1)
        else:
            self._at = torch.from_numpy(numbers).to(device)

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Return their part of ``(E, ..)``."""
        at = self._at
        return values[at] if isinstance(at, slice) else values.index_select(0, at)

    def put(self, values: torch.Tensor, given: torch.Tensor) -> None:
        """Write their part of ``(E, ..)``."""
        if isinstance(self._at, slice):
            values[self._at] = given
        else:
            values.index_copy_(0, self._at, given)


class Strip:
    """Some rows of elements, and which of them have which shared operator.

    Parameters
    ----------
    elements
        The rows.
    kinds
        ``(E,)``, the shared operator of each; of those with an operator each -1, of the idle -2.
    spacing
        ``s``.

    Attributes
    ----------
    nodes
        The rows of nodes.
    idle
        The numbers of the idle.
    groups
        All that have shared operators, so many at a time as the cache holds.
    """

    def __init__(self, elements: slice, kinds: np.ndarray, spacing: int, device: torch.device):
        self.elements = elements
        self.nodes = slice(elements.start * spacing, elements.stop * spacing + 1)
        self.idle = torch.from_numpy(np.flatnonzero(kinds == -2)).to(device)
        order = np.argsort(kinds, kind="stable")[np.count_nonzero(kinds < 0) :]
        numbers, starts, counts = np.unique(kinds[order], return_index=True, return_counts=True)
        self.groups: list[Group] = []
        found: list[tuple[int, slice]] = []
        first, most = 0, GROUP[device.type]
        for number, start, count in zip(
            *(one.tolist() for one in (numbers, starts, counts)), strict=True
        ):
            for part in even(count, most):
                here, stop = start + part.start, start + part.stop
                if found and stop - first > most:
                    self.groups.append(Group(order[first:here], found, device))
                    first, found = here, []
                found.append((number, slice(here - first, stop - first)))
        if found:
            self.groups.append(Group(order[first:], found, device))


def cut(kinds: np.ndarray, spacing: int, problems: int, device: torch.device) -> list[Strip]:
    """Cut elements ``(rows, columns)`` into strips for so many problems; kinds as in `Strip`."""
    most = _EACH * len(np.unique(kinds[kinds >= 0]))
    most = max(_STRIP[device.type], min(_MOST, most)) // (kinds.shape[1] * problems)
    parts = even(len(kinds), max(1, most))
    return [Strip(part, np.tile(kinds[part].ravel(), problems), spacing, device) for part in parts]


def one_by_one(values: torch.Tensor) -> torch.Tensor:
    """Return a copy of values ``(n, rows, columns, ..)`` element by element, ``(E, ..)``, the rest flat."""
    return values.contiguous().flatten(0, 2).flatten(1)
