"""Moving whole interfaces between the ranks: from the root, and to a wider halo."""

from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.schwarz.layouts import at_root, block_of, lines_layout


class InterfaceMovement:
    """Moves interfaces of blocks with a certain halo.

    Parameters
    ----------
    problems
        Problems that an interface holds.
    halo
        Lattice cells.
    """

    def __init__(self, grid: ProcessGrid, lattice: Lattice, problems: int, halo: int):
        self._grid = grid
        self._lattice = lattice
        self._problems = problems
        self._halo = halo

    def _layout(self, axis: int, halo: int) -> Layout:
        return lines_layout(self._grid, self._lattice, axis, halo=halo, problems=self._problems)

    def scatter(self, lines: tuple[np.ndarray, np.ndarray] | None, v: Interface) -> None:
        """Hand every rank its part of the whole domain's lines, which the root alone needs."""

        def given(axis: int, layout: Layout) -> np.ndarray:
            if not self._grid.is_root:
                return np.empty(layout.local_shape(self._grid.rank))
            return np.ascontiguousarray(lines[axis], float).reshape(layout.shape)

        self._move(lambda axis: at_root(self._layout(axis, self._halo)), given, self._halo, v)

    def widen(self, v: Interface, halo: int) -> Interface:
        """Return the same values on blocks with another halo; ``v`` itself where that is the same."""
        block = block_of(self._grid, self._lattice, self._grid.rank, halo)
        if (block.first, block.last) == (v.block.first, v.block.last) and self._grid.size == 1:
            return v
        kind = {"device": v.flat.device, "dtype": v.flat.dtype}
        wide = Interface(block, problems=self._problems, **kind)
        self._move(
            lambda axis: self._layout(axis, self._halo),
            lambda axis, layout: np.ascontiguousarray(v.lines[axis].cpu().numpy()),
            halo,
            wide,
        )
        return wide

    def _move(
        self,
        source: Callable[[int], Layout],
        given: Callable[[int, Layout], np.ndarray],
        halo: int,
        v: Interface,
    ) -> None:
        """Move both families of lines into ``v``."""
        for axis, lines in enumerate(v.lines):
            layout = source(axis)
            array = given(axis, layout)
            move = Redistribution(layout, self._layout(axis, halo), self._grid.comm, array.dtype)
            lines.copy_(torch.from_numpy(move(array)))
