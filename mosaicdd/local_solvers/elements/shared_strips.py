"""Rows of elements that are handled at once, and which of them have which shared operator.

Shape letters: ``n`` problems, ``E`` elements of the rows, times these, which count first, ``M`` of a group;
``s`` cells along the side of one.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.products import rows_at

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
    shape
        Problems, and rows and columns of elements, of the strip.
    spacing
        ``s``.
    """

    def __init__(
        self,
        numbers: np.ndarray,
        kinds: list[tuple[int, slice]],
        shape: tuple[int, int, int],
        spacing: int,
        device: torch.device,
    ):
        self.kinds = kinds
        problem, y, x = np.unravel_index(numbers, shape)
        places = np.stack([problem, spacing * y, spacing * x], axis=1)
        self._numbers, self._places = (
            torch.from_numpy(array).to(device) for array in (numbers, places)
        )
        self._begin: tuple[tuple[int, ...], torch.Tensor] | None = None  # of nodes that lie alike

    def __len__(self) -> int:
        return len(self._numbers)

    def squares(self, nodes: torch.Tensor, side: int) -> torch.Tensor:
        """Return the values at the lower left ``side`` by ``side`` nodes of each, ``(M, side^2)``.

        Parameters
        ----------
        nodes
            Values at the nodes of the strip, ``(n, rows, columns)``.
        """
        return _squares(nodes, side).index_select(0, self._starts(nodes)).flatten(1)

    def put_squares(self, nodes: torch.Tensor, side: int, inner: torch.Tensor) -> None:
        """Write those values."""
        inner = inner.unflatten(1, (side, side))
        _squares(nodes, side).index_copy_(0, self._starts(nodes), inner)

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return their part of ``(E, ..)``."""
        return rows_at(values, self._numbers)

    def put(self, values: torch.Tensor, own: torch.Tensor) -> None:
        """Write their part of ``(E, ..)``."""
        values.index_copy_(0, self._numbers, own)

    def _starts(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return where in memory their lower left nodes are, ``(M,)``, from the strip's on."""
        steps = nodes.stride()
        if self._begin is None or self._begin[0] != steps:
            problem, y, x = self._places.unbind(1)
            self._begin = steps, problem * steps[0] + y * steps[1] + x * steps[2]
        return self._begin[1]


class ElementStrip:
    """Some rows of elements, and which of them have which shared operator.

    Parameters
    ----------
    elements
        The rows.
    kinds
        ``(n, rows, columns)``, the shared operator of each; of those with an operator each -1, of the idle -2.
    spacing
        ``s``.

    Attributes
    ----------
    nodes
        The rows of nodes.
    idle
        Those of the idle, if any.
    groups
        All that have shared operators, so many at a time as the cache holds.
    """

    def __init__(self, elements: slice, kinds: np.ndarray, spacing: int, device: torch.device):
        self.elements = elements
        self.nodes = slice(elements.start * spacing, elements.stop * spacing + 1)
        shape, kinds = kinds.shape, kinds.ravel()

        def group(numbers: np.ndarray, parts: list[tuple[int, slice]]) -> Group:
            return Group(numbers, parts, shape, spacing, device)

        idle = np.flatnonzero(kinds == -2)
        self.idle = group(idle, []) if len(idle) else None
        order = np.argsort(kinds, kind="stable")[np.count_nonzero(kinds < 0) :]
        numbers, starts, counts = np.unique(kinds[order], return_index=True, return_counts=True)
        self.groups: list[Group] = []
        parts: list[tuple[int, slice]] = []
        first, most = 0, GROUP[device.type]
        for number, start, count in zip(
            *(array.tolist() for array in (numbers, starts, counts)), strict=True
        ):
            for part in even(count, most):
                here, stop = start + part.start, start + part.stop
                if parts and stop - first > most:
                    self.groups.append(group(order[first:here], parts))
                    first, parts = here, []
                parts.append((number, slice(here - first, stop - first)))
        if parts:
            self.groups.append(group(order[first:], parts))


def cut(kinds: np.ndarray, spacing: int, problems: int, device: torch.device) -> list[ElementStrip]:
    """Cut elements ``(rows, columns)`` into strips for so many problems; kinds as in `ElementStrip`."""
    most = _EACH * len(np.unique(kinds[kinds >= 0]))
    most = max(_STRIP[device.type], min(_MOST, most)) // (kinds.shape[1] * problems)
    parts = even(len(kinds), max(1, most))
    return [
        ElementStrip(part, np.stack([kinds[part]] * problems), spacing, device) for part in parts
    ]


def _squares(nodes: torch.Tensor, side: int) -> torch.Tensor:
    """Return the squares of nodes from each place in memory on, ``(.., side, side)``, which overlap."""
    _, up, right = nodes.stride()
    last = sum((size - 1) * step for size, step in zip(nodes.shape, nodes.stride(), strict=True))
    places = 1 + last - (side - 1) * (up + right)
    return nodes.as_strided((places, side, side), (1, up, right))
