"""The interface operator ``S`` of a medium, and its one-level preconditioner, on the block of a rank.

``S`` is the sum of the condensed elements: the discrete equation with all nodes inside the elements
eliminated. For values ``v`` on the lattice lines, ``b - S v`` is the residual of the whole grid, as
inside the elements there is none.

A rank condenses the elements of its region, those around its own subdomains. So from values that are
complete in the region it computes ``S v`` at all nodes of its subdomains' stars, which is where their
blocks of ``S`` act, without any message. One exchange follows these: ranks then add up what their stars
contributed. Vectors are flat interfaces ``(n, L)``; of lattice nodes the copy in the lines constant in y
counts, the other is anything.
"""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import (
    QUARTERS,
    element_places,
    element_shape,
    star_parts,
    star_places,
)
from mosaicdd.local_solvers.condensed import CondensedElements

_STARS = {"cpu": 64, "cuda": 4096}  # that are inverted at once, or one row: few, for the cache


class InterfaceOperator:
    """``S`` at the nodes inside the region of a block.

    Parameters
    ----------
    elements
        Of the region.
    inside
        ``(L,)``, 1 at the interface nodes inside the region, 0 on its edge.
    """

    def __init__(self, block: Block, elements: CondensedElements, inside: torch.Tensor):
        self.places = torch.from_numpy(element_places(block)).to(inside.device)
        self._flat_places = self.places.flatten()
        self._schur = elements.schur
        self._inside = inside

    def perimeters(self, v: torch.Tensor) -> torch.Tensor:
        """Gather the elements' perimeters from ``(n, L)``: ``(E, P, n)``."""
        return v[:, self._flat_places].unflatten(1, self.places.shape).permute(1, 2, 0)

    def scatter(self, values: torch.Tensor) -> torch.Tensor:
        """Add up values on the perimeters ``(E, P, n)`` to ``(n, L)``, zero on the region's edge."""
        n = values.shape[2]
        total = values.new_zeros(n, len(self._inside))
        total.index_add_(1, self._flat_places, values.permute(2, 0, 1).reshape(n, -1))
        return total.mul_(self._inside)

    def __call__(self, v: torch.Tensor) -> torch.Tensor:
        """Return ``S v``; ``v`` must be complete in the region."""
        return self.scatter(torch.bmm(self._schur, self.perimeters(v)))


class Stars:
    """The inverses of the blocks of ``S`` that belong to the stars of the owned subdomains.

    Raises
    ------
    RuntimeError
        If a block is not positive definite to rounding.
    """

    def __init__(self, block: Block, elements: CondensedElements, *, symmetric: bool):
        device = elements.schur.device
        shape = element_shape(block)
        self._places = torch.from_numpy(star_places(block)).to(device)
        count = self._places.shape[1]
        schur = elements.schur.unflatten(0, shape)
        parts = [
            tuple(torch.from_numpy(one).to(device) for one in part)
            for part in star_parts(block.lattice.spacing)
        ]
        self._inverses = schur.new_empty(len(self._places), count, count)
        rows, columns = block.subdomains
        first = [a - low for a, low in zip(block.start, block.first, strict=True)]
        step = max(1, _STARS[device.type] // columns)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            stars = schur.new_zeros((stop - start) * columns, count, count)
            for (dy, dx), (own, there) in zip(QUARTERS, parts, strict=True):
                down = slice(first[0] + dy + start, first[0] + dy + stop)
                across = slice(first[1] + dx, first[1] + dx + columns)
                part = schur[down, across].flatten(0, 1)[:, own[:, None], own]
                stars[:, there[:, None], there] += part
            if symmetric:
                inverses = torch.cholesky_inverse(torch.linalg.cholesky(stars))
            else:
                inverses = torch.linalg.inv(stars)
            self._inverses[start * columns : stop * columns] = inverses
        self._flat_places = self._places.flatten()

    def __call__(self, r: torch.Tensor) -> torch.Tensor:
        """Return the stars' contributions to ``(n, L)`` for residuals; neighbours' are to be added."""
        n = len(r)
        given = r[:, self._flat_places].unflatten(1, self._places.shape).permute(1, 2, 0)
        solved = torch.bmm(self._inverses, given)
        total = torch.zeros_like(r)
        return total.index_add_(1, self._flat_places, solved.permute(2, 0, 1).reshape(n, -1))


def region_interior(block: Block) -> np.ndarray:
    """Return ones at the interface nodes inside a block's region, zeros on its edge, ``(L,)``."""
    parts = []
    for axis in (0, 1):
        part = np.zeros(block.line_shape(axis))
        part[1:-1, 1:-1] = 1.0
        parts.append(part.ravel())
    return np.concatenate(parts)
