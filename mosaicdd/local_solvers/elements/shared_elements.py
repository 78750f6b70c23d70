"""Condensed elements most of which are alike: one elimination for each kind, one product for its elements.

Inside of the elements of a kind that many share, values are a product with one matrix, from the
perimeter and from the source. All others, as those that an outline cuts, are `OwnElements`.

Shape letters: ``E`` elements, ``P = 4 s`` perimeter nodes, ``I = (s - 1)^2`` inner ones, ``n`` problems.
"""

from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.condensed import (
    CondensedElements,
    NodeSource,
    put_lines,
    strip_room,
)
from mosaicdd.local_solvers.elements.element_windows import Windows
from mosaicdd.local_solvers.elements.inner_nodes import ties_of
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.local_solvers.elements.own_elements import (
    OwnElements,
    add_on_sides,
    in_squares,
    on_sides,
    places_of,
)
from mosaicdd.local_solvers.elements.shared_strips import AT_ONCE, Strip
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Resampled
from mosaicdd.tensors import Tensors


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
        # Of each shared kind: inner values from those on the sides and from sources, (S + I, I); and what
        # sources inside add on the sides, (I, S).
        self._fills, self._loads = (
            one.to(**self._tensors) for one in _dense(those(kinds.examples[:common]))
        )
        self._own = OwnElements(windows, spacing, kinds, self.schur, keep=keep, **self._tensors)
        self._strips = self._cut(kinds)

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
        if source.nodes is not None:
            self._add_few(total, source, driven)
            return total
        for strip in self._strips:
            elements, rows = strip.elements, strip.nodes
            for some in strip.problems(n) if driven[elements].any() else ():
                beside = total[0][some, elements.start : elements.stop + 1], total[1][some, :, rows]
                here = NodeSource(source.values[some, rows], source.scale)
                self._add_shared(beside, strip, here, driven[elements])
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
        for strip in self._strips:
            elements, rows = strip.elements, strip.nodes
            room = strip_room(lines, elements, s)
            nodes = room[:, 1:]
            put_lines(nodes, lines, elements, s)
            # The inner nodes of each element, (n, rows, columns, s - 1, s - 1).
            cut = nodes[:, :-1, :-1].unflatten(2, (-1, s)).unflatten(1, (-1, s))
            inner = cut.transpose(2, 3)[..., 1:, 1:]
            for some in strip.problems(n):
                beside = lines[0][some, elements.start : elements.stop + 1], lines[1][some, :, rows]
                driving = None
                if source is not None and driven[elements].any():
                    driving = NodeSource(source.values[some, rows], source.scale)
                self._fill_shared(inner[some], strip, beside, driving, driven[elements])
            for (y, x), values in own(elements.stop * self.shape[1]):
                inner[:, y - elements.start, x] = values
            yield elements, room

    def _cut(self, kinds: Kinds) -> list[Strip]:
        """Cut the elements into rows that are handled at once."""
        shared = np.full(len(kinds), -1)
        for number, places in enumerate(kinds.shared):
            shared[kinds.order[places]] = -2 if number in kinds.idle else number
        rows = shared.reshape(self.shape)
        parts = even(self.shape[0], max(1, AT_ONCE[self.device.type] // self.shape[1]))
        return [Strip(part, rows[part], self._s, self.device) for part in parts]

    def _add_few(self, lines: list[torch.Tensor], source: NodeSource, driven: np.ndarray) -> None:
        """Add what sources inside those elements add that share operators, if these are few."""
        f = in_squares(source.values, self._s)[..., 1:-1, 1:-1]
        for number, places in enumerate(self.kinds.shared):
            members = self.kinds.order[places]
            members = members[driven.ravel()[members]]
            for some in even(len(members), AT_ONCE[self.device.type]):
                at = places_of(members[some], self.shape[1], self.device)
                added = f[:, *at].flatten(2) @ self._loads[number]
                add_on_sides(lines, at, added.mul_(source.scale))

    def _add_shared(
        self,
        lines: Sequence[torch.Tensor],
        strip: Strip,
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
        s, (rows, columns) = self._s, driven.shape
        f = in_squares(source.values, s)[..., 1:-1, 1:-1]
        added = f.new_zeros(driven.size, len(f), 4 * (s + 1))
        for number, those in strip.kinds(driven):
            those.put(added, torch.mm(those.sources(f), self._loads[number]))
        if strip.own is not None:
            added[strip.own] = 0.0
        added = added.mul_(source.scale).unflatten(0, (rows, columns)).permute(2, 0, 1, 3)
        bottom, top, left, right = added.unflatten(3, (4, s + 1)).unbind(3)
        beside = (bottom, top), (left.transpose(1, 2), right.transpose(1, 2))
        for total, sides in zip(lines, beside, strict=True):
            for side, here in zip(sides, (total[:, :-1], total[:, 1:]), strict=True):
                here[..., :-1].unflatten(2, (-1, s)).add_(side[..., :s])
                here[..., s::s] += side[..., s]

    def _fill_shared(
        self,
        inner: torch.Tensor,
        strip: Strip,
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
        kinds = strip.kinds()
        if not kinds:
            inner.zero_()
            return
        s, (n, *shape) = self._s, inner.shape[:3]
        rows, columns = (one.unfold(2, s + 1, s) for one in lines)
        columns = columns.transpose(1, 2)
        beside = inner.new_empty(*shape, n, 4, s + 1)
        sides = rows[:, :-1], rows[:, 1:], columns[:, :, :-1], columns[:, :, 1:]
        for number, side in enumerate(sides):
            beside[..., number, :] = side.permute(1, 2, 0, 3)
        beside = beside.flatten(3).flatten(0, 1)
        f, driving = None, {}
        if source is not None:
            f = in_squares(source.values, s)[..., 1:-1, 1:-1]
            driving = dict(strip.kinds(driven))
        values = beside.new_empty(len(beside), n, (s - 1) ** 2)
        for number, those in kinds:
            by_sides, by_source = self._fills[number].split([beside.shape[2], values.shape[2]])
            solved = torch.mm(those(beside), by_sides)
            if source is not None and f is not None and number in driving:
                solved.addmm_(those.sources(f), by_source, alpha=source.scale)
            those.put(values, solved)
        whole = values.view(*shape, n, s - 1, s - 1)
        inner.copy_(whole.permute(2, 0, 1, 3, 4))


def _is_empty(conductances: Conductances) -> bool:
    """Say whether there are no unknowns between which anything could flow."""
    up, right, reaction, *others = conductances.arrays()
    return not any(np.any(values) for values in (up, right, *others)) and bool(
        (reaction == 1).all()
    )


def _dense(each: Conductances) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the inner nodes of elements do, as matrices on rows of values (see `SharedElements`)."""
    elements, count, _ = each.reaction.shape
    y, x = np.indices((count - 2, count - 2)).reshape(2, -1) + 1
    inner = np.arange(len(y))
    # What all nodes give in the equations of the inner ones, and these in theirs.
    given, taken = np.zeros((2, elements, len(inner), count, count))
    given[:, inner, y, x] = each.reaction[:, y, x]
    ties = ties_of(each)
    for (dy, dx), (conductances, (oy, ox)) in ties.items():
        between = y + oy, x + ox
        given[:, inner, y, x] += conductances[:, *between]
        given[:, inner, y + dy, x + dx] = -conductances[:, *between]
        taken[:, inner, y + dy, x + dx] = ties[-dy, -dx][0][:, *between]
    matrices = torch.from_numpy(given[..., 1:-1, 1:-1].reshape(elements, len(inner), -1))
    if each.symmetric:
        inverses = torch.cholesky_inverse(torch.linalg.cholesky(matrices))
    else:
        inverses = torch.linalg.inv(matrices).mT
    inwards, outwards = (on_sides(torch.from_numpy(one)) for one in (-given, taken))
    inwards[..., 2 * count :: count] = inwards[..., 3 * count - 1 :: count] = 0.0  # corners, again
    return torch.cat([inwards.mT @ inverses, inverses], dim=1), inverses @ outwards
