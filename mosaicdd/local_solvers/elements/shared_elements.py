"""Condensed elements most of which are alike: one elimination for each kind, one product for its elements.

Inside of the elements of a kind that many share, values are a product with one matrix, from the
perimeter and from the source. All others, as those that an outline cuts, are `OwnElements`.

Shape letters: ``E`` elements, ``P = 4 s`` perimeter nodes, ``I = (s - 1)^2`` inner ones, ``n`` problems.
"""

import math
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
from mosaicdd.local_solvers.elements.element_windows import ElementWindows
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.local_solvers.elements.own_elements import (
    OwnElements,
    add_on_sides,
    in_squares,
    on_sides,
    places_of,
)
from mosaicdd.local_solvers.elements.products import rows_times
from mosaicdd.local_solvers.elements.shared_interior import SharedInterior
from mosaicdd.local_solvers.elements.shared_strips import GROUP, ElementStrip, cut
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
    kinds, windows = None, ElementWindows(conductances, spacing)
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
        windows: ElementWindows,
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
        self._interior = SharedInterior(those(kinds.examples[:common]), **self._tensors)
        self._own = OwnElements(windows, spacing, kinds, self.schur, keep=keep, **self._tensors)
        # The shared operator of each; of those with an operator each -1, of the idle -2.
        shared = np.full(len(kinds), -1)
        for number, places in enumerate(kinds.shared):
            shared[kinds.order[places]] = -2 if number in kinds.idle else number
        self._shared = shared.reshape(self.shape)
        self._problems, self._strips = 0, list[ElementStrip]()

    def add_loads(self, lines: Sequence[torch.Tensor], source: NodeSource) -> None:
        """Add what sources inside the elements add on the lattice lines, as `CondensedElements.add_loads`."""
        driven = source.elements(self._s)
        self._own.add_loads(lines, source, driven)
        if source.nodes is not None:
            self._add_few(lines, source, driven)
            return
        for strip in self._cut(len(source.values)):
            elements, rows = strip.elements, strip.nodes
            if strip.groups and driven[elements].any():
                beside = lines[0][:, elements.start : elements.stop + 1], lines[1][:, :, rows]
                self._add_shared(beside, strip, NodeSource(source.values[:, rows], source.scale))

    def fill(
        self, lines: Sequence[torch.Tensor], source: NodeSource | None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield the values at the nodes, strip by strip from the bottom.

        Parameters and results are those of `CondensedElements.fill`.
        """
        s, n = self._s, len(lines[0])
        own = self._own.inside(lines, source)
        driven = np.zeros(self.shape, bool) if source is None else source.elements(s)
        for strip in self._cut(n):
            elements, rows = strip.elements, strip.nodes
            room = strip_room(lines, elements, s)
            nodes = room[:, 1:]
            driving = source is not None and bool(driven[elements].any())
            if source is not None and driving:
                torch.mul(source.values[:, rows], source.scale, out=nodes)
            put_lines(nodes, lines, elements, s)
            self._fill_shared(nodes, strip, driven=driving)
            others = False
            for (y, x), values in own(elements.stop * self.shape[1]):
                values.put_at(nodes, (y - elements.start, x))
                others = True
            if others:
                put_lines(nodes, lines, elements, s)  # where there are zeros now
            yield elements, room

    def _cut(self, problems: int) -> list[ElementStrip]:
        """Cut the elements into rows that are handled at once for so many problems."""
        if problems != self._problems:
            self._problems = problems
            self._strips = cut(self._shared, self._s, problems, self.device)
        return self._strips

    def _add_few(
        self, lines: Sequence[torch.Tensor], source: NodeSource, driven: np.ndarray
    ) -> None:
        """Add what sources inside those elements add that share operators, if these are few."""
        f = in_squares(source.values, self._s)[..., 1:-1, 1:-1]
        for number, places in enumerate(self.kinds.shared):
            members = self.kinds.order[places]
            members = members[driven.ravel()[members]]
            for part in even(len(members), GROUP[self.device.type]):
                at = places_of(members[part], self.shape[1], self.device)
                added = f[:, at[0], at[1]].flatten(2) @ self._interior.loads[number]
                add_on_sides(lines, at, added.mul_(source.scale))

    def _add_shared(
        self, lines: Sequence[torch.Tensor], strip: ElementStrip, source: NodeSource
    ) -> None:
        """Add what sources inside elements that share operators add on the lattice lines.

        Parameters
        ----------
        lines, source
            At the nodes of these rows.
        """
        s, f = self._s, source.values
        shape = len(f), strip.elements.stop - strip.elements.start, self.shape[1]
        added = f.new_zeros(math.prod(shape), 4 * (s + 1))
        # All at once, as most are of some group: two thirds of the time of `Group.squares`.
        every = in_squares(f, s)[..., 1:-1, 1:-1].reshape(len(added), -1)
        for group in strip.groups:
            driving = group.of(every)
            driven = driving.new_empty(len(driving), added.shape[1])
            for number, part in group.kinds:
                rows_times(driving[part], self._interior.loads[number], driven[part])
            group.put(added, driven)
        added = added.mul_(source.scale).unflatten(0, shape)
        bottom, top, left, right = added.unflatten(3, (4, s + 1)).unbind(3)
        beside = (bottom, top), (left.transpose(1, 2), right.transpose(1, 2))
        for total, sides in zip(lines, beside, strict=True):
            for side, here in zip(sides, (total[:, :-1], total[:, 1:]), strict=True):
                here[..., :-1].unflatten(2, (-1, s)).add_(side[..., :s])
                here[..., s::s] += side[..., s]

    def _fill_shared(self, nodes: torch.Tensor, strip: ElementStrip, *, driven: bool) -> None:
        """Write the inner values of elements that share operators; of the idle, zeros.

        Those of others are anything.

        Parameters
        ----------
        nodes
            At the nodes of these rows: values on the lattice lines, and inside the source.
        driven
            Whether there is one.
        """
        s, inside = self._s, nodes[:, 1:-1, 1:-1]
        if not strip.groups:
            in_squares(nodes, s)[..., 1:-1, 1:-1] = 0.0
            return
        for group in strip.groups:
            known, solve = group.squares(nodes, s + 1), self._interior.solve
            if not driven:
                known, solve = on_sides(known.unflatten(1, (s + 1, -1))), self._interior.solve_sides
            solved = known.new_empty(len(known), (s - 1) ** 2)
            for number, part in group.kinds:
                solve(number, known[part], solved[part])
            group.put_squares(inside, s - 1, solved)
        if strip.idle is not None:
            strip.idle.put_squares(inside, s - 1, solved.new_zeros(len(strip.idle), (s - 1) ** 2))


def _is_empty(conductances: Conductances) -> bool:
    """Say whether there are no unknowns between which anything could flow."""
    up, right, reaction, *others = conductances.arrays()
    return not any(np.any(values) for values in (up, right, *others)) and bool(
        (reaction == 1).all()
    )
