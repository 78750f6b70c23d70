r"""Condensed elements: the discrete equation on the nodes of lattice lines alone, exactly.

An element is a square of ``s`` cells between lattice lines. Eliminating its inner nodes (`eliminate`)
leaves a dense matrix on its ``P = 4 s`` perimeter nodes, its Schur complement ``S``, and little for
the inner nodes themselves (`Interior`). Elements are eliminated piece by piece, as many at once as the
cache holds. Where what is left for the inner nodes is not kept, elements are eliminated again for a
source and for the values inside.

Shape letters: ``E`` elements, row by row from the bottom, ``P`` perimeter nodes, ``n`` problems.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, strips
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.elimination import eliminate, halved
from mosaicdd.local_solvers.elements.inner_nodes import Roots
from mosaicdd.local_solvers.elements.interior import Interior
from mosaicdd.local_solvers.elements.kinds import Kinds
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Resampled
from mosaicdd.tensors import Tensors

# Elements that are eliminated at once, and that are solved inside of: on a CPU few, for the cache.
_PIECE = {"cpu": 128, "cuda": 8192}
_SOLVED = {"cpu": 1024, "cuda": 8192}
_LEAST = 64  # of several problems


@dataclass(frozen=True)
class NodeSource:
    """A source at nodes, ``scale`` times ``values``: what was given need not be copied.

    Parameters
    ----------
    values
        ``(n, rows, columns)``.
    scale
        The squared spacing, where they are values of ``f``.
    nodes
        Those, flat and ascending, where alone it may not be zero; None if it may be anywhere.
    """

    values: torch.Tensor
    scale: float = 1.0
    nodes: np.ndarray | None = None

    def elements(self, spacing: int) -> np.ndarray:
        """Say inside of which elements there is anything, ``(K_y, K_x)``."""
        rows, columns = tuple((count - 1) // spacing for count in self.values.shape[1:])
        there = np.zeros((rows, columns), bool)
        if self.nodes is not None:
            y, x = np.divmod(self.nodes, self.values.shape[2])
            inside = (y % spacing > 0) & (x % spacing > 0)
            there[y[inside] // spacing, x[inside] // spacing] = True
            return there
        if not spacing > 1:
            return there
        # Mostly one node of each element tells.
        there[:] = (self.values[:, 1:-1:spacing, 1:-1:spacing] != 0).any(0).cpu().numpy()
        for row in np.flatnonzero(~there.all(1)):
            strip = self.values[:, row * spacing + 1 : (row + 1) * spacing, :-1] != 0
            cells = strip.any(1).any(0).view(columns, spacing)
            there[row] = cells[:, 1:].any(1).cpu().numpy()
        return there

    def part(self, *place: slice) -> torch.Tensor:
        """Return a copy at some nodes."""
        return self.values[:, *place] * self.scale


class CondensedElements:
    """The elements of a rectangle of lattice cells, each of which has an operator of its own.

    Parameters
    ----------
    conductances
        Between the nodes of the rectangle.
    spacing
        ``s``, cells along the side of an element.
    keep
        What is left for the inner nodes.
    again
        From where to take the conductances of a piece later on, if these are not to be kept.

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
        conductances: Conductances,
        spacing: int,
        *,
        keep: bool = True,
        again: Resampled | None = None,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.shape = tuple((nodes - 1) // spacing for nodes in conductances.reaction.shape)
        self._s, self.device = spacing, device
        self._tensors: Tensors = {"device": device, "dtype": dtype}
        kinds = Kinds(np.arange(math.prod(self.shape)))
        symmetric, self._crossed = conductances.symmetric, conductances.across is not None
        self.schur = Complements(kinds, spacing, symmetric=symmetric, **self._tensors)
        self._conductances: Conductances | Resampled = conductances
        self._kept: Roots | None = None
        for strip, parts in strips(self.shape, _PIECE[device.type]):
            for part in parts:
                schur, roots = eliminate(self._part(strip, part), spacing, **self._tensors)
                self.schur.put(self._numbers(strip, part), schur)
                if keep:
                    self._keep((strip, part), roots)
        self._pieces = _SOLVED[device.type] if keep else _PIECE[device.type]
        self._conductances = again or conductances

    def _keep(self, place: Slices, roots: Roots) -> None:
        """Keep what is left of a piece, in memory that is one for all pieces."""
        if self._kept is None:
            self._kept = roots.room(tuple(p.stop - p.start for p in place), self.shape)
        self._kept.part(self.shape, place).copy_(roots)

    def add_loads(self, lines: Sequence[torch.Tensor], source: NodeSource) -> None:
        """Add what sources inside the elements add on the lattice lines.

        Parameters
        ----------
        lines
            Constant in y, ``(n, K_y + 1, columns)``, and in x, ``(n, K_x + 1, rows)``.
        source
            At all nodes; those on lattice lines do not count.
        """
        s = self._s
        for strip, parts in self._strips(len(source.values)):
            for part in parts:
                interior, (rows, columns) = self._interior(strip, part), self._nodes(strip, part)
                f = source.part(rows, columns)
                added = interior.driving(interior.solve(f, everywhere=False))
                lines[0][:, strip.start : strip.stop + 1, columns] += added[:, ::s]
                lines[1][:, part.start : part.stop + 1, rows] += added[:, :, ::s].mT

    def fill(
        self, lines: Sequence[torch.Tensor], source: NodeSource | None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield the values at the nodes, strip by strip from the bottom.

        Parameters
        ----------
        lines
            Values on the lattice lines, as `add_loads`.
        source
            As in `add_loads`; None for zero.

        Yields
        ------
        slice, Tensor
            Rows of elements, and the values ``(n, 1 + s rows + 1, columns)`` there, a new tensor: its first
            row is room for that below them.
        """
        for strip, parts in self._strips(len(lines[0])):
            room = strip_room(lines, strip, self._s)
            nodes = room[:, 1:]
            if self._crossed:  # then neighbours of all nodes are looked at
                nodes.zero_()
            put_lines(nodes, lines, strip, self._s)
            for part in parts:
                interior, (rows, columns) = self._interior(strip, part), self._nodes(strip, part)
                u = nodes[:, :, columns]
                f = torch.zeros_like(u) if source is None else source.part(rows, columns)
                interior.solve(interior.driven(f, u), out=u)
            put_lines(nodes, lines, strip, self._s)  # where there are zeros now
            yield strip, room

    def _strips(self, problems: int) -> list[tuple[slice, list[slice]]]:
        """Cut the elements into pieces that are solved inside of at once, for so many problems."""
        return strips(self.shape, max(self._pieces // problems, _LEAST))

    def _interior(self, strip: slice, part: slice) -> Interior:
        """Return the inner nodes of a piece, kept or eliminated again."""
        conductances = self._part(strip, part)
        if self._kept is None:
            _, roots = eliminate(conductances, self._s, **self._tensors)
        else:
            roots = self._kept.part(self.shape, (strip, part))
        return Interior(conductances, self._s, halved(self._s)[0], roots)

    def _part(self, strip: slice, part: slice) -> Conductances:
        """Return the conductances between the nodes of a piece."""
        return self._conductances.part(*self._nodes(strip, part))

    def _nodes(self, strip: slice, part: slice) -> tuple[slice, ...]:
        """Return the nodes of a piece."""
        return tuple(
            slice(along.start * self._s, along.stop * self._s + 1) for along in (strip, part)
        )

    def _numbers(self, strip: slice, part: slice) -> slice:
        """Return the numbers of a piece's elements: whole rows, or a part of one."""
        columns = self.shape[1]
        return slice(strip.start * columns + part.start, (strip.stop - 1) * columns + part.stop)


def strip_room(lines: Sequence[torch.Tensor], strip: slice, spacing: int) -> torch.Tensor:
    """Return room for the values at the nodes of some rows of elements, and a row below them."""
    n, _, columns = lines[0].shape
    return lines[0].new_empty(n, spacing * (strip.stop - strip.start) + 2, columns)


def put_lines(
    nodes: torch.Tensor, lines: Sequence[torch.Tensor], strip: slice, spacing: int
) -> None:
    """Write the values on lattice lines to those at the nodes of some rows of elements."""
    nodes[:, ::spacing] = lines[0][:, strip.start : strip.stop + 1]
    rows = slice(strip.start * spacing, strip.stop * spacing + 1)
    nodes[:, :, ::spacing] = lines[1][:, :, rows].mT
