"""The interface operator ``S`` of a medium on the block of a rank.

``S`` is the sum of the condensed elements: the discrete equation with all nodes inside the elements
eliminated. For values ``v`` on the lattice lines, ``b - S v`` is the residual of the whole grid, as
inside the elements there is none.

A rank condenses the elements of its region, those around its own subdomains. So from values that are
complete in the region it computes ``S v`` at all nodes of its subdomains' stars, which is where their
blocks of ``S`` act, without any message. One exchange follows these: ranks then add up what their stars
contributed. Vectors are flat interfaces ``(n, L)``, see `vectors`; of lattice nodes the copy in the lines
constant in y counts, the other is anything.
"""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import element_places, element_shape
from mosaicdd.local_solvers.elements.condensed import CondensedElements
from mosaicdd.local_solvers.elements.shared_elements import SharedElements
from mosaicdd.schwarz.condensed.parts import Parts, add_at


class InterfaceOperator:
    """``S`` at the nodes inside the region of a block.

    Parameters
    ----------
    elements
        Of the region.
    inside
        ``(L,)``, see `region_interior`.

    Attributes
    ----------
    places
        Of the elements' perimeters in the interface, ``(E, 4 s)``.
    size
        ``L``.
    """

    def __init__(
        self, block: Block, elements: CondensedElements | SharedElements, inside: torch.Tensor
    ):
        self._inside, self._schur = inside, elements.schur
        self._edge = (inside == 0).nonzero().flatten()
        kinds = elements.schur.kinds
        self.places = torch.from_numpy(element_places(block)).to(inside.device, torch.int32)
        self.size = len(inside)
        lines = [block.line_shape(axis) for axis in (0, 1)]
        self._parts = Parts(kinds, self.places, lines, element_shape(block))

    def __call__(self, v: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``S v``; ``v`` must be complete in the region."""
        total = torch.empty_like(v) if out is None else out
        schur = self._schur
        self._parts.add(total, v, schur, schur.columns, lambda k: [schur.shared(k).mT])
        total.T.index_fill_(0, self._edge, 0.0)
        return total

    def diagonal(self) -> torch.Tensor:
        """Return the diagonal of ``S``, ``(L,)``; zero on the region's edge."""
        total, diagonals = torch.zeros_like(self._inside)[None], self._schur.diagonal()
        kinds = self._schur.kinds
        for number in kinds.idle:
            diagonals[torch.from_numpy(kinds.order[kinds.shared[number]])] = 0.0
        add_at(total, self.places, diagonals)
        return total[0].index_fill_(0, self._edge, 0.0)


def region_interior(block: Block) -> np.ndarray:
    """Return ones at the interface nodes inside a block's region, zeros on its edge and at copies, ``(L,)``."""
    parts = []
    for axis in (0, 1):
        part = np.zeros(block.line_shape(axis))
        part[1:-1, 1:-1] = 1.0
        if axis == 1:
            part[:, :: block.lattice.spacing] = 0.0
        parts.append(part.ravel())
    return np.concatenate(parts)
