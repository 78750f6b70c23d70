"""Condensed elements most of which are alike: one elimination for each kind, one product for its elements.

Inside of the elements of a kind that many share, values are a product with one matrix, from the
perimeter and from the source. All others, as those that an outline cuts, are `OwnElements`.

Shape letters: ``E`` elements, ``P = 4 s`` perimeter nodes, ``I = (s - 1)^2`` inner ones, ``n`` problems.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import even, pair
from mosaicdd.local_solvers.complements import Complements
from mosaicdd.local_solvers.condensed import CondensedElements, NodeSource
from mosaicdd.local_solvers.element_windows import Windows
from mosaicdd.local_solvers.kinds import Kinds
from mosaicdd.local_solvers.own_elements import OwnElements, in_squares, on_sides
from mosaicdd.problems.conductances import Conductances
from mosaicdd.problems.medium import Resampled
from mosaicdd.tensors import Tensors

# Elements that are filled at once: on a CPU few, for the cache.
_FILLED = {"cpu": 512, "cuda": 2**20}
_FILLED_OF_ALL = {"cpu": 512, "cuda": 2**20}  # of several problems


def condensed(
    conductances: Conductances,
    spacing: int,
    *,
    keep: bool = True,
    again: Resampled | None = None,
    **tensors: Unpack[Tensors],
) -> "CondensedElements | SharedElements":
    """Return the elements of a rectangle of lattice cells; parameters as `CondensedElements`."""
    kinds, windows = None, Windows(conductances, spacing)
    if spacing > 1:
        kinds = Kinds(windows.keys())
    if kinds is None or kinds.all_own:
        conductances = conductances.each(np.asarray)
        return CondensedElements(conductances, spacing, keep=keep, again=again, **tensors)
    return SharedElements(windows, spacing, kinds, keep=keep, **tensors)


class SharedElements:
    """The elements of a rectangle of lattice cells.

    Parameters
    ----------
    windows
        The conductances of the elements.
    spacing
        ``s``, cells along the side of an element.
    kinds
        Of the elements, row by row.
    keep
        What is left for the inner nodes of elements with an operator each.

    Attributes
    ----------
    shape
        Elements per axis, ``(K_y, K_x)``.
    device
        Of all that is kept.
    schur
        The perimeter runs counter-clockwise from the lower-left corner.
    """

    def __init__(
        self,
        windows: Windows,
        spacing: int,
        kinds: Kinds,
        *,
        keep: bool = True,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.shape = windows.shape
        self._s, self.device, self.kinds = spacing, device, kinds
        self._tensors: Tensors = {"device": device, "dtype": dtype}
        self.schur = Complements(kinds, spacing, symmetric=windows.symmetric, **self._tensors)
        common, those = len(kinds.shared), windows.those
        kinds.leave_out(lambda member: _is_empty(those(np.array([member]))))
        examples = those(kinds.examples[:common])
        inside = [_dense(examples.each(operator.itemgetter(i))) for i in range(common)]
        # Of each shared kind: inner values from those on the sides and from sources, (S + I, I); and what
        # sources inside add on the sides, (I, S).
        self._fills, self._loads = (
            torch.from_numpy(np.stack(some)).to(**self._tensors)
            for some in zip(*inside, strict=True)
        )
        self._own = OwnElements(windows, spacing, kinds, self.schur, keep=keep, **self._tensors)
        shared = np.full(len(kinds), -1)
        for number, places in enumerate(kinds.shared):
            shared[kinds.order[places]] = number
        self._kind = shared.reshape(self.shape)  # the shared kind of each element, or -1
        counts = [0 if k in kinds.idle else p.stop - p.start for k, p in enumerate(kinds.shared)]
        self._most = int(np.argmax(counts))

    def loads(self, source: NodeSource) -> list[torch.Tensor]:
        """Return what sources inside the elements add on the lattice lines.

        Parameters and result are those of `CondensedElements.loads`.
        """
        s, (n, *nodes) = self._s, source.values.shape
        total = [
            torch.zeros(n, count + 1, along, **self._tensors)
            for count, along in zip(self.shape, reversed(nodes), strict=True)
        ]
        self._own.add_loads(total, source)
        driven = source.elements(s)
        for strip, rows in self._strips():
            for some in self._problems(n, strip) if driven[strip].any() else ():
                beside = total[0][some, strip.start : strip.stop + 1], total[1][some, :, rows]
                here = NodeSource(source.values[some, rows], source.scale)
                self._add_shared(beside, strip, here, driven[strip])
        return total

    def fill(
        self, lines: Sequence[torch.Tensor], source: NodeSource | None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield the values at the nodes, strip by strip from the bottom.

        Parameters and results are those of `CondensedElements.fill`.
        """
        s, n = self._s, len(lines[0])
        own = self._own.inside(lines, source)
        driven = np.zeros(self.shape, bool) if source is None else source.elements(s)
        for strip, rows in self._strips():
            nodes = lines[0].new_empty(n, rows.stop - rows.start, lines[0].shape[2])
            nodes[:, ::s] = lines[0][:, strip.start : strip.stop + 1]
            nodes[:, :, ::s] = lines[1][:, :, rows].mT
            # The inner nodes of each element, (n, rows, columns, s - 1, s - 1).
            cut = nodes[:, :-1, :-1].unflatten(2, (-1, s)).unflatten(1, (-1, s))
            inner = cut.transpose(2, 3)[..., 1:, 1:]
            for some in self._problems(n, strip):
                beside = lines[0][some, strip.start : strip.stop + 1], lines[1][some, :, rows]
                driving = None
                if source is not None:
                    driving = NodeSource(source.values[some, rows], source.scale)
                self._fill_shared(inner[some], strip, beside, driving, driven[strip])
            for (y, x), values in own(strip.stop * self.shape[1]):
                inner[:, y - strip.start, x] = values
            yield strip, nodes

    def _strips(self) -> list[tuple[slice, slice]]:
        """Cut the elements into rows that are handled at once, and these rows' nodes."""
        parts = even(self.shape[0], max(1, _FILLED[self.device.type] // self.shape[1]))
        return [(one, slice(one.start * self._s, one.stop * self._s + 1)) for one in parts]

    def _problems(self, count: int, strip: slice) -> list[slice]:
        """Cut problems into as many as the cache holds of the elements of some rows."""
        elements = (strip.stop - strip.start) * self.shape[1]
        return even(count, max(1, _FILLED_OF_ALL[self.device.type] // elements))

    def _shared_in(self, strip: slice) -> "list[tuple[int, _Members]]":
        """Return the shared kinds of the elements in some rows, and which have them."""
        kinds = self._kind[strip]
        numbers = [int(one) for one in np.unique(kinds) if one >= 0]
        return [(number, _Members(kinds == number, self.device)) for number in numbers]

    def _add_shared(
        self,
        lines: Sequence[torch.Tensor],
        strip: slice,
        source: NodeSource,
        driven: np.ndarray,
    ) -> None:
        """Add what sources inside elements that share operators add on the lattice lines.

        Parameters
        ----------
        lines, source
            At the nodes of these rows.
        driven
            In which elements there is a source.
        """
        s = self._s
        f = in_squares(source.values, s)[..., 1:-1, 1:-1]
        added = f.new_zeros(*f.shape[:3], 4 * (s + 1))
        for number, members in self._shared_in(strip):
            if members.any(driven):
                members.put(added, members(f).flatten(2) @ self._loads[number])
        bottom, top, left, right = added.mul_(source.scale).unflatten(3, (4, s + 1)).unbind(3)
        beside = (bottom, top), (left.transpose(1, 2), right.transpose(1, 2))
        for total, sides in zip(lines, beside, strict=True):
            for side, here in zip(sides, (total[:, :-1], total[:, 1:]), strict=True):
                here[..., :-1].unflatten(2, (-1, s)).add_(side[..., :s])
                here[..., s::s] += side[..., s]

    def _fill_shared(
        self,
        inner: torch.Tensor,
        strip: slice,
        lines: Sequence[torch.Tensor],
        source: NodeSource | None,
        driven: np.ndarray,
    ) -> None:
        """Write the inner values ``(n, rows, columns, s - 1, s - 1)`` of elements that share operators.

        Those of others are anything; of the idle, zero.

        Parameters
        ----------
        lines, source, driven
            As those of `_add_shared`.
        """
        s = self._s
        rows, columns = (one.unfold(2, s + 1, s) for one in lines)
        columns = columns.transpose(1, 2)
        sides = rows[:, :-1], rows[:, 1:], columns[:, :, :-1], columns[:, :, 1:]
        # As if all were of the most common kind; then the others, but for the idle, who have zeros.
        every = _Members(self._kind[strip] == self._most, self.device, whole=True)
        others = [
            (number, members)
            for number, members in self._shared_in(strip)
            if number != self._most and number not in self.kinds.idle
        ]
        for number, members in [(self._most, every), *others]:
            beside = torch.cat([members(one) for one in sides], dim=2)
            values = beside @ self._fills[number, : beside.shape[2]]
            if source is not None and members.any(driven):
                f = members(in_squares(source.values, s)[..., 1:-1, 1:-1]).flatten(2)
                matrix = self._fills[number, beside.shape[2] :]
                first, second = (one.flatten(0, 1) for one in (values, f))
                torch.addmm(first, second, matrix, alpha=source.scale, out=first)
            members.put(inner, values.unflatten(2, (s - 1, s - 1)))


class _Members:
    """Some of the elements of a few rows.

    Parameters
    ----------
    there
        ``(rows, columns)``.
    whole
        Whether values are read and written of all.
    """

    def __init__(self, there: np.ndarray, device: torch.device, *, whole: bool = False):
        self._there = there
        self._at = pair(torch.from_numpy(one).to(device) for one in np.nonzero(there))
        self._all = whole or bool(there.all())

    def any(self, there: np.ndarray) -> bool:
        """Say whether any of them is there."""
        return bool(there[self._there].any())

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Return their part of ``(n, rows, columns, ..)``, side by side."""
        return values.flatten(1, 2) if self._all else values[:, *self._at]

    def put(self, values: torch.Tensor, given: torch.Tensor) -> None:
        """Write their part of ``(n, rows, columns, ..)``."""
        if self._all:
            values.copy_(given.unflatten(1, values.shape[1:3]))
        else:
            values[:, *self._at] = given


def _is_empty(conductances: Conductances) -> bool:
    """Say whether there are no unknowns between which anything could flow."""
    up, right, reaction, *others = conductances.arrays()
    return not any(np.any(values) for values in (up, right, *others)) and bool(
        (reaction == 1).all()
    )


def _dense(one: Conductances) -> tuple[np.ndarray, np.ndarray]:
    """Return what the inner nodes of an element do, as matrices on rows of values (see `SharedElements`)."""
    count = len(one.reaction)
    inverse = np.linalg.inv(one.matrix().toarray()).T
    units = np.eye(count**2).reshape(-1, count, count)
    sides = on_sides(torch.arange(count**2).view(count, count)).numpy()
    inwards = -one.apply(units[sides]).reshape(len(sides), -1)
    against = (
        one
        if one.symmetric
        else replace(one, up=one.down, right=one.left, down=one.up, left=one.right)
    )
    outwards = -against.apply(units[sides]).reshape(len(sides), -1)
    inwards[2 * count :: count] = inwards[3 * count - 1 :: count] = 0.0  # corners, again
    return np.concatenate([inwards @ inverse, inverse]), inverse @ outwards.T
