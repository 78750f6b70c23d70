"""Elements with an operator each, in any number and place: eliminated and solved side by side, as if one row.

As `CondensedElements` does it for a rectangle of them. Shape letters: ``s`` cells along the side of an
element, ``S = 4 (s + 1)`` nodes on its sides, corners twice; ``n`` problems.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import even, pair
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.local_solvers.elements.element_windows import Windows
from mosaicdd.local_solvers.elements.elimination import eliminate, halved
from mosaicdd.local_solvers.elements.interior import Interior, Roots, ties_of
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.tensors import Tensors

# Elements that are eliminated at once: on a CPU few, for the cache; and solved inside of.
_PIECE = {"cpu": 256, "cuda": 8192}
_SOLVED = {"cpu": 2048, "cuda": 8192}
_SHARED = 2  # elements of an operator from which on these are several problems of one

Places = tuple[torch.Tensor, torch.Tensor]
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
        windows: Windows,
        spacing: int,
        kinds: Kinds,
        schur: Complements,
        *,
        keep: bool,
        **tensors: Unpack[Tensors],
    ):
        self._shape, self._s = windows.shape, spacing
        self._tensors, self._device = tensors, tensors["device"]
        those = windows.those
        self._numbers = np.sort(kinds.order[kinds.own])
        self._conductances = those(self._numbers)
        self._operators = torch.from_numpy(kinds.operator[self._numbers])
        # What is left of the inner nodes, of all operators.
        self._roots: Roots | None = None
        whole = 1, kinds.operators
        for members, numbers in kinds.made(_PIECE[self._device.type]):
            left, roots = eliminate(those(members), spacing, **self._tensors)
            schur.put(numbers, left)
            if keep:
                if self._roots is None:
                    self._roots = roots.room((1, len(members)), whole)
                self._roots.part(whole, (slice(0, 1), numbers)).copy_(roots)
        self._count = kinds.operators
        self._solved = (_SOLVED if keep else _PIECE)[self._device.type]

    def add_loads(self, lines: Sequence[torch.Tensor], source: NodeSource) -> None:
        """Add what sources inside add on the lattice lines, as `CondensedElements.loads`."""
        for part in self._parts(len(source.values)):
            at = self._places(self._numbers[part])
            f = in_squares(source.values, self._s)[:, *at].mul_(source.scale)
            if f[..., 1:-1, 1:-1].any():
                solved = self._inside(part, f)
                added = _driven(self._edges(part), torch.zeros_like(f), solved)
                add_on_sides(lines, at, on_sides(added))

    def inside(
        self, lines: Sequence[torch.Tensor], source: NodeSource | None
    ) -> Callable[[int], Iterator[tuple[Places, torch.Tensor]]]:
        """Return what yields, up to a number, some of the elements and their inner values."""
        s, n = self._s, len(lines[0])
        parts = iter(self._parts(n))
        numbers, values = self._numbers[:0], lines[0].new_empty(n, 0, s - 1, s - 1)

        def before(last: int) -> Iterator[tuple[Places, torch.Tensor]]:
            nonlocal numbers, values
            while True:
                if not len(numbers):
                    part = next(parts, None)
                    if part is None:
                        return
                    numbers = self._numbers[part]
                    u = self._framed(lines, self._places(numbers))
                    f = torch.zeros_like(u)
                    if source is not None:
                        f = in_squares(source.values, s)[:, *self._places(numbers)].mul_(
                            source.scale
                        )
                    u = self._inside(part, _driven(self._edges(part), f, u))
                    values = u[..., 1:-1, 1:-1]
                count = int(np.searchsorted(numbers, last))
                yield self._places(numbers[:count]), values[:, :count]
                numbers, values = numbers[count:], values[:, count:]
                if len(numbers):
                    return

        return before

    def _inside(self, part: slice, f: torch.Tensor) -> torch.Tensor:
        """Solve inside of some of the elements with an operator each, one by one as ``f``.

        Those that have the same are several problems of one.
        """
        operators, kind = self._operators[part].unique(return_inverse=True)
        if len(operators) * _SHARED > len(kind):
            return self._solve(np.arange(part.start, part.stop), f)
        order = kind.argsort(stable=True)
        counts = kind.bincount()
        first = counts.cumsum(0) - counts
        which = torch.empty_like(kind)  # a member's number among those of its kind
        which[order] = torch.arange(len(kind)) - first[kind[order]]
        together = f.new_zeros(len(f), int(counts.max()), len(counts), *f.shape[2:])
        at = which.to(f.device), kind.to(f.device)
        together[:, *at] = f
        solved = self._solve(part.start + order[first].numpy(), together.flatten(0, 1))
        return solved.unflatten(0, together.shape[:2])[:, *at]

    def _solve(self, those: np.ndarray, f: torch.Tensor) -> torch.Tensor:
        """Solve inside of elements that are given by their places among those with an operator each."""
        conductances = self._conductances.each(lambda values: values[those])
        numbers = self._operators[torch.from_numpy(those)]
        if self._roots is None:
            _, roots = eliminate(conductances, self._s, **self._tensors)
        elif bool((numbers.diff() == 1).all()):
            here = slice(0, 1), slice(int(numbers[0]), int(numbers[-1]) + 1)
            roots = self._roots.part((1, self._count), here)
        else:
            roots = self._roots.chosen(numbers, self._count)
        interior = Interior(conductances.side_by_side(), halved(self._s)[0], roots)
        s = self._s
        joined = torch.cat([f[..., :s].transpose(1, 2).flatten(2), f[:, -1, :, s:]], dim=2)
        return interior.solve(joined).unfold(2, s + 1, s).transpose(1, 2)

    def _parts(self, problems: int) -> list[slice]:
        """Cut the elements with an operator each into those that are solved inside of at once."""
        return even(len(self._numbers), max(self._solved // problems, _PIECE[self._device.type]))

    def _some(self, part: slice) -> Conductances:
        """Return the conductances of some of the elements with an operator each."""
        return self._conductances.each(lambda values: values[part])

    def _edges(self, part: slice) -> dict[tuple[int, int], torch.Tensor]:
        ties = ties_of(self._some(part))
        return {step: torch.from_numpy(k).to(**self._tensors) for step, (k, _) in ties.items()}

    def _places(self, numbers: np.ndarray) -> Places:
        return places_of(numbers, self._shape[1], self._device)

    def _framed(self, lines: Sequence[torch.Tensor], at: Places) -> torch.Tensor:
        """Return the values on the perimeters of elements, and zeros inside, ``(n, .., s + 1, s + 1)``."""
        s, (y, x) = self._s, at
        rows, columns = (one.unfold(2, s + 1, s) for one in lines)
        u = lines[0].new_zeros(len(lines[0]), len(y), s + 1, s + 1)
        u[..., :, 0], u[..., :, s] = columns[:, x, y], columns[:, x + 1, y]
        u[..., 0, :], u[..., s, :] = rows[:, y, x], rows[:, y + 1, x]
        return u


def _driven(
    edges: Mapping[tuple[int, int], torch.Tensor], f: torch.Tensor, u: torch.Tensor
) -> torch.Tensor:
    """Add ``K u`` to ``f`` at the nodes of elements one by one, ``(.., s + 1, s + 1)``, and return it."""
    total, low, high = f, slice(0, -1), slice(1, None)
    for step, conductances in edges.items():
        nodes, neighbours = (
            [(low, slice(None), high)[1 + sign * at] for at in step] for sign in (-1, 1)
        )
        total[..., *nodes].addcmul_(conductances, u[..., *neighbours])
    return total


def places_of(numbers: np.ndarray, columns: int, device: torch.device) -> Places:
    """Return the rows and columns of elements by their numbers."""
    return pair(torch.from_numpy(one).to(device) for one in np.divmod(numbers, columns))


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
