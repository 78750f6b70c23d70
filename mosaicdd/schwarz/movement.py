"""Moving whole interfaces between the ranks: to and from the root, and to a wider halo."""

from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.layouts.root import rows_from_root, rows_to_root
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.layouts import block_of, lines_layout

_PORTION = 2**20  # values that the root takes or gives at a time


class InterfaceMovement:
    """Moves interfaces of blocks with a certain halo.

    Parameters
    ----------
    halo
        Lattice cells.
    """

    def __init__(self, ranks: Ranks, lattice: Lattice, halo: int):
        self._ranks = ranks
        self._lattice = lattice
        self._halo = halo

    def _layout(self, axis: int) -> Layout:
        return lines_layout(self._ranks, self._lattice, axis, halo=self._halo)

    def scatter(self, lines: tuple[np.ndarray, np.ndarray] | None, v: Interface) -> None:
        """Hand every rank its part of the whole domain's lines, which the root alone needs."""
        for axis in (0, 1):
            layout = self._layout(axis)
            part = rows_from_root(
                lambda place, axis=axis: lines[axis][place],
                layout,
                self._ranks,
                np.float64,
                rows=_rows(layout),
            )
            v.lines[axis].copy_(torch.from_numpy(part))

    def gather(
        self, v: Interface, axis: int, sink: Callable[[np.ndarray, tuple[slice, slice]], None]
    ) -> None:
        """Hand the whole domain's lines constant in an axis to the root, portion by portion.

        Parameters
        ----------
        sink
            ``sink(lines, place)``, called on the root only.
        """
        layout = self._layout(axis)
        everything = slice(0, layout.shape[1])
        rows_to_root(
            _host(v.lines[axis][0]),
            layout,
            self._ranks,
            lambda lines, rows: sink(lines, (rows, everything)),
            rows=_rows(layout),
        )

    def widen(self, v: Interface, halo: int) -> Interface:
        """Return the same values on blocks with another halo; ``v`` itself on a single rank."""
        if self._ranks.size == 1:
            return v
        block = block_of(self._ranks, self._lattice, self._ranks.rank, halo)
        kind = {"device": v.flat.device, "dtype": v.flat.dtype}
        wide = Interface(block, problems=v.problems, **kind)
        for axis in (0, 1):
            target = lines_layout(self._ranks, self._lattice, axis, halo=halo)
            given = _host(v.lines[axis])
            move = Redistribution(self._layout(axis), target, self._ranks, given.dtype)
            for mine, lines in zip(given, wide.lines[axis], strict=True):
                lines.copy_(torch.from_numpy(move(mine)))
        return wide


def _host(lines: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(lines.cpu().numpy())


def _rows(layout: Layout) -> int:
    return max(1, _PORTION // layout.shape[1])
