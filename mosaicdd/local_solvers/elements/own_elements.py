"""Elements with an operator each, in any number and place: eliminated and solved side by side, as if one row.

As `CondensedElements` does it for a rectangle of them. Shape letters: ``s`` cells along the side of an
element, ``S = 4 (s + 1)`` nodes on its sides, corners twice; ``n`` problems.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.local_solvers.elements.element_windows import ElementWindows
from mosaicdd.local_solvers.elements.elimination import eliminate, halved
from mosaicdd.local_solvers.elements.inner_nodes import InnerNodes, Roots
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.local_solvers.elements.planes import Planes
from mosaicdd.local_solvers.elements.rim import Rim
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.tensors import Tensors

# Elements that are eliminated at once: on a CPU few, for the cache; and solved inside of, for one problem and for
# several.
_PIECE = {"cpu": 256, "cuda": 8192}
_SOLVED = {"cpu": 2048, "cuda": 8192}
_LEAST = 512

Places = tuple[torch.Tensor, ...]
"""Rows and columns of some elements."""


class OwnElements:
    """Those elements of a rectangle that share their operator with few others, or none.

    Parameters
    ----------
    windows
        The conductances of all elements.
    spacing
        ``s``.
    kinds
        Of all elements, row by row.
    schur
        Takes what the elimination leaves on perimeters, that of shared kinds, too.
    keep
        What is left for the inner nodes.
    """

    def __init__(
        self,
        windows: ElementWindows,
        spacing: int,
        kinds: Kinds,
        schur: Complements,
        *,
        keep: bool,
        **tensors: Unpack[Tensors],
    ):
        self._shape, self._s = windows.shape, spacing
        self._tensors, self._device = tensors, tensors["device"]
        self._operator = kinds.operator
        self._alone = np.bincount(kinds.operator, minlength=kinds.operators) == 1
        self._numbers = np.sort(kinds.order[kinds.own])
        self._solved = (_SOLVED if keep else _PIECE)[self._device.type]
        self._conductances = windows.those(kinds.examples)  # of each operator
        kept: Roots | None = None
        for members, numbers in kinds.made(_PIECE[self._device.type]):
            left, roots = eliminate(self._some(numbers), spacing, **tensors)
            schur.put(numbers, left)
            if keep:
                if kept is None:
                    kept = roots.room((1, len(members)), (1, kinds.operators))
                kept.part((1, kinds.operators), (slice(0, 1), numbers)).copy_(roots)
        self._kept: tuple[InnerNodes, Rim] | None = None
        if kept is not None:
            self._kept = self._inside(self._conductances, kept)
            del self._conductances

    def add_loads(
        self, lines: Sequence[torch.Tensor], source: NodeSource, driven: np.ndarray
    ) -> None:
        """Add what sources inside add on the lattice lines, as `CondensedElements.add_loads`.

        Parameters
        ----------
        driven
            Which of all elements have any, ``(rows, columns)``.
        """
        for part in self._parts(len(source.values)):
            for those, inner, rim in self._groups(self._numbers[part]):
                if not driven.ravel()[those].any():
                    continue
                at = self._places(those)
                beside = inner.solve(self._sources(source, at, inner.side), everywhere=False)
                driving = torch.stack([values.flatten(2) for values in beside.beside()], dim=2)
                add_on_sides(lines, at, rim.driving(driving).flatten(2))

    def inside(
        self, lines: Sequence[torch.Tensor], source: NodeSource | None
    ) -> Callable[[int], Iterator[tuple[Places, Planes]]]:
        """Return what yields, up to a number, some of the elements and their inner values; zeros on sides."""
        parts = iter(self._parts(len(lines[0])))
        left: list[tuple[np.ndarray, Planes]] = []

        def before(last: int) -> Iterator[tuple[Places, Planes]]:
            nonlocal left
            while True:
                if not left:
                    part = next(parts, None)
                    if part is None:
                        return
                    left = list(self._filled(self._numbers[part], lines, source))
                rest = []
                for numbers, values in left:
                    count = int(np.searchsorted(numbers, last))
                    here, others = values.first(count)
                    yield self._places(numbers[:count]), here
                    if count < len(numbers):
                        rest.append((numbers[count:], others))
                left = rest
                if left:
                    return

        return before

    def _filled(
        self, numbers: np.ndarray, lines: Sequence[torch.Tensor], source: NodeSource | None
    ) -> Iterator[tuple[np.ndarray, Planes]]:
        """Yield some of the elements, and their inner values."""
        for those, inner, rim in self._groups(numbers):
            at = self._places(those)
            if source is None:
                f = Planes.zeros(lines[0], len(those), inner.side, self._s)
            else:
                f = self._sources(source, at, inner.side)
            driven = rim.drive(self._sides(lines, at)).unbind(2)
            for beside, added in zip(f.beside(), driven, strict=True):
                beside += added.view(beside.shape)
            yield those, inner.solve(f)

    def _groups(self, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, InnerNodes, Rim]]:
        """Yield those of some elements that are alone with their operators, which follow each other; the others."""
        operators = self._operator[numbers]
        alone = self._alone[operators]
        for those in (numbers[alone], numbers[~alone]):
            if not len(those):
                continue
            mine = self._operator[those]
            which: slice | torch.Tensor = torch.from_numpy(mine).to(self._device)
            if self._alone[mine[0]]:
                which = slice(int(mine[0]), int(mine[-1]) + 1)
            if self._kept is None:
                conductances = self._some(mine)
                _, roots = eliminate(conductances, self._s, **self._tensors)
                inner, rim = self._inside(conductances, roots)
            else:
                inner, rim = self._kept[0].chosen(which), self._kept[1].chosen(which)
            yield those, inner, rim

    def _inside(self, conductances: Conductances, roots: Roots) -> tuple[InnerNodes, Rim]:
        """Return the inner nodes of elements one by one, and what is beside their sides."""
        inner = InnerNodes.of(conductances.side_by_side(), halved(self._s)[0], roots)
        return inner, Rim.of(conductances, self._s, roots.leaves)

    def _parts(self, problems: int) -> list[slice]:
        """Cut the elements with an operator each into those that are solved inside of at once."""
        most = min(self._solved, max(self._solved // problems, _LEAST))
        return even(len(self._numbers), most)

    def _some(self, operators: slice | np.ndarray) -> Conductances:
        """Return the conductances of some of the operators."""
        return self._conductances.each(lambda values: values[operators])

    def _places(self, numbers: np.ndarray) -> Places:
        return places_of(numbers, self._shape[1], self._device)

    def _sources(self, source: NodeSource, at: Places, side: int) -> Planes:
        """Return copies of a source at the lower left nodes of elements."""
        f = Planes.taken(source.values, at, side, self._s)
        f.values.mul_(source.scale)
        return f

    def _sides(self, lines: Sequence[torch.Tensor], at: Places) -> torch.Tensor:
        """Return the values on the sides of elements, ``(n, .., 4, s + 1)``."""
        rows, columns = (values.unfold(2, self._s + 1, self._s) for values in lines)
        y, x = at
        return torch.stack(
            [rows[:, y, x], rows[:, y + 1, x], columns[:, x, y], columns[:, x + 1, y]], dim=2
        )


def places_of(numbers: np.ndarray, columns: int, device: torch.device) -> Places:
    """Return the rows and columns of elements by their numbers."""
    return tuple(torch.from_numpy(indices).to(device) for indices in np.divmod(numbers, columns))


def add_on_sides(lines: Sequence[torch.Tensor], at: Places, values: torch.Tensor) -> None:
    """Add values on the sides of elements ``(n, .., S)`` to those on the lattice lines."""
    (y, x), s = at, values.shape[2] // 4 - 1
    bottom, top, left, right = values.unflatten(2, (4, s + 1)).unbind(2)
    for total, line, along, low, high in (
        (lines[0], y, x, bottom, top),
        (lines[1], x, y, left, right),
    ):
        inner, last = total[:, :, :-1].unflatten(2, (-1, s)), total[:, :, s::s]
        for number, side in ((line, low), (line + 1, high)):
            inner[:, number, along] += side[..., :s]
            last[:, number, along] += side[..., s]


def in_squares(values: torch.Tensor, s: int) -> torch.Tensor:
    """Return views of the nodes of elements, ``(n, rows, columns, s + 1, s + 1)``."""
    return values.unfold(1, s + 1, s).unfold(2, s + 1, s)


def on_sides(values: torch.Tensor) -> torch.Tensor:
    """Return what stands on the sides of elements ``(.., s + 1, s + 1)``: ``S = 4 (s + 1)`` values.

    Below, above, to the left and to the right; corners twice.
    """
    sides = values[..., 0, :], values[..., -1, :], values[..., :, 0], values[..., :, -1]
    return torch.cat(sides, dim=-1)
