r"""Condensed elements: the discrete equation on the nodes of lattice lines alone, exactly.

An element is a square of ``s`` cells between lattice lines. Eliminating its inner nodes (`Elimination`)
leaves a dense matrix on its ``P = 4 s`` perimeter nodes, its Schur complement ``S``, and a load. Elements
are eliminated piece by piece, as many at once as the cache holds. Where what is left of the inner nodes
is kept, new sources and the values inside cost a few products. Else only ``S`` is kept, less than half
as much memory, and elements are eliminated again for a source and for the values inside.

Shape letters: ``E`` elements, row by row from the bottom, ``P`` perimeter nodes, ``n`` problems. Sources are
times the squared spacing.
"""

from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.axes import pair, strips
from mosaicdd.local_solvers.elimination import Elimination, elimination_order
from mosaicdd.local_solvers.merging import picked
from mosaicdd.problems.medium import Conductances
from mosaicdd.tensors import Tensors

Condensed = list[list[list[torch.Tensor]]]
"""What is left of sources, of each piece of each strip."""

_PIECE = {"cpu": 128, "cuda": 8192}  # elements eliminated at once: on a CPU few, for the cache


class CondensedElements:
    """The elements of a rectangle of lattice cells.

    Parameters
    ----------
    conductances
        Between the nodes of the rectangle.
    spacing
        ``s``, cells along the side of an element.
    keep
        What is left of the inner nodes.

    Attributes
    ----------
    shape
        Elements per axis, ``(K_y, K_x)``.
    schur
        ``(E, P, P)``; the perimeter runs counter-clockwise from the lower-left corner.
    symmetric
        Whether they are.
    """

    def __init__(
        self,
        conductances: Conductances,
        spacing: int,
        *,
        keep: bool = True,
        device: torch.device,
        dtype: torch.dtype,
    ):
        rows, columns = self.shape = pair(
            (nodes - 1) // spacing for nodes in conductances.reaction.shape
        )
        self._s = spacing
        self.symmetric = conductances.symmetric
        order = elimination_order(spacing)
        self._order, self._places = (
            torch.from_numpy(one).to(device) for one in (order, np.argsort(order))
        )
        self.schur = torch.empty(
            rows * columns, 4 * spacing, 4 * spacing, device=device, dtype=dtype
        )
        self._conductances = conductances
        self._strips = strips(self.shape, _PIECE[device.type])
        self._kept: dict[int, Elimination] = {}
        for strip, parts in self._strips:
            for part in parts:
                numbers = self._numbers(strip, part)
                eliminated = self._eliminated(strip, part, self.schur[numbers])
                if keep:
                    self._kept[numbers.start] = eliminated

    def condense(self, source: torch.Tensor) -> tuple[torch.Tensor, Condensed]:
        """Return what sources inside the elements add to their perimeters, ``(E, n, P)``.

        Parameters
        ----------
        source
            ``(n, rows, columns)`` at all nodes; those on lattice lines do not count.

        Returns
        -------
        Tensor, list
            The loads, and what is left of the sources for `fill`.
        """
        loads = source.new_empty(len(self.schur), len(source), 4 * self._s)
        left: Condensed = []
        for strip, parts in self._strips:
            left.append([])
            for part in parts:
                one = self._eliminated(strip, part)
                here, rest = one.condense(self._inside(source, strip, part))
                loads[self._numbers(strip, part)] = here
                left[-1].append(rest)
        return loads, left

    def fill(
        self, perimeters: torch.Tensor, left: Condensed | None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield the values at the nodes, strip by strip from the bottom.

        Parameters
        ----------
        perimeters
            ``(E, n, P)``.
        left
            Of the sources, by `condense`; None for zero.

        Yields
        ------
        slice, Tensor
            Rows of elements, and the values ``(n, s rows, s K_x)`` there, but for the last line and
            column of nodes.
        """
        s, n = self._s, perimeters.shape[1]
        for number, (strip, parts) in enumerate(self._strips):
            rows = strip.stop - strip.start
            nodes = perimeters.new_empty(n, rows, s, self.shape[1], s)
            rests = left[number] if left else [None] * len(parts)
            for part, rest in zip(parts, rests, strict=True):
                given = perimeters[self._numbers(strip, part)]
                here = nodes[:, :, :, part].permute(1, 3, 0, 2, 4)  # (rows, columns, n, s, s)
                edge = given.unflatten(0, here.shape[:2])
                here[..., 0, :] = edge[..., :s]
                here[..., 1:, 0] = edge[..., 3 * s + 1 :].flip(-1)
                inner = picked(self._eliminated(strip, part).fill(given, rest), self._places)
                here[..., 1:, 1:] = inner.unflatten(2, (s - 1, s - 1)).unflatten(0, here.shape[:2])
            yield strip, nodes.flatten(3).flatten(1, 2)

    def _eliminated(
        self, strip: slice, part: slice, out: torch.Tensor | None = None
    ) -> Elimination:
        """Return a piece's elimination, kept or made; ``out`` for the Schur complements."""
        known = self._kept.get(self._numbers(strip, part).start)
        if known is not None:
            return known
        nodes = (slice(one.start * self._s, one.stop * self._s + 1) for one in (strip, part))
        tensors: Tensors = {"device": self.schur.device, "dtype": self.schur.dtype}
        return Elimination(self._conductances.part(*nodes), self._s, out, **tensors)

    def _numbers(self, strip: slice, part: slice) -> slice:
        """Return the numbers of a piece's elements: whole rows, or a part of one."""
        columns = self.shape[1]
        return slice(strip.start * columns + part.start, (strip.stop - 1) * columns + part.stop)

    def _inside(self, source: torch.Tensor, strip: slice, part: slice) -> torch.Tensor:
        """Return the values inside a piece's elements as they are eliminated, ``(E, n, (s - 1)**2)``."""
        s = self._s
        rows, columns = (slice(one.start * s, one.stop * s) for one in (strip, part))
        nodes = source[:, rows, columns].unflatten(2, (-1, s)).unflatten(1, (-1, s))
        inner = nodes[:, :, 1:, :, 1:].permute(1, 3, 0, 2, 4)
        return picked(inner.flatten(3).flatten(0, 1), self._order)
