r"""The discrete $-\nabla\cdot(a\,k(|\nabla u|^2)\,\nabla u)$, the derivative of an energy on the corners of cells.

With $k = 2 e'$ the energy of a cell of width ``h``, of ``d`` axes, is the mean over its corners,

$$E = \frac{h^d}{2^d} \sum_{\text{corners}} a\, e(p_1^2 + .. + p_d^2),$$

where the ``p`` are the difference quotients along the edges of the cell that meet at the corner, and ``a`` the value at
that corner. So the residual at a node is $h^{-d}\,\partial E / \partial u$: of second order, symmetric like the cell, and
with a symmetric derivative, positive definite wherever ``e`` is a convex function of the gradient. For ``k = 1`` it is
the Laplacian of neighbours. Each of the cells around a node has corners whose gradients depend on the node's value: itself,
and those beside it. In the plane, with the node ``c``, and ``b`` beside, ``d`` above or below, ``x`` across,

```
   d --- x        at c:  p = (c - b) / h,  q = (c - d) / h
   |     |        at b:  p = (c - b) / h,  q = (b - x) / h
   c --- b        at d:  p = (d - x) / h,  q = (c - d) / h
```

Where the nodes are all those of an array, the conductivity at each corner is taken once for all nodes of it. Of cells
that are not in the domain there is no energy: so a node on a natural side has what flows into its part of a volume.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from mosaicdd.lattice.axes import at, last
from mosaicdd.problems.operators.patch import Patch, is_number


def outflow(
    u: Patch, h: float, conductivity: Callable[[torch.Tensor], torch.Tensor], a: Patch | None = None
) -> torch.Tensor:
    """Return it at the centres of patches.

    ``conductivity``: ``k`` of the squared gradient; ``a``: by default 1.
    """
    if u.whole is not None and (a is None or a.whole is not None):
        return _through_edges(u, u.whole, h, conductivity, None if a is None else a.whole)
    total, scale, axes = torch.zeros_like(u.centre), 1.0 / h**2, u.axes
    for cell in itertools.product((-1, 1), repeat=axes):
        share = u.cell(cell)
        steps = [at(axis, axes, way, 0) for axis, way in enumerate(cell)]
        rises = [u.centre - u.at(step) for step in steps]
        here = conductivity(scale * _total(rise * rise for rise in rises)) * _total(rises)
        total = total + share * (here if a is None else a.centre * here)
        for axis, (step, rise) in enumerate(zip(steps, rises, strict=True)):
            beside, squares = u.at(step), rise * rise
            for other, across in enumerate(steps):
                if other != axis:
                    corner = tuple(s + t for s, t in zip(step, across, strict=True))
                    squares = squares + (beside - u.at(corner)).square()
            there = conductivity(scale * squares) * rise
            total = total + share * (there if a is None else a.at(step) * there)
    return total * (scale / 2**axes)


def _through_edges(
    patch: Patch,
    u: torch.Tensor,
    h: float,
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: torch.Tensor | None,
) -> torch.Tensor:
    """Return it inside of the arrays ``(..., rows, columns)`` of a patch: what flows through the edges between nodes."""
    axes, cells = patch.axes, patch.cells
    ends, inner, scale = (slice(None, -1), slice(1, None)), slice(1, -1), 1.0 / h**2
    rises = [u.diff(dim=axis - axes) for axis in range(axes)]
    squares = [scale * rise.square() for rise in rises]
    corners = list(itertools.product((0, 1), repeat=axes))

    def along(axis: int, corner: tuple[int, ...]) -> tuple[Any, ...]:
        """Return which edges along an axis meet at a corner of all cells."""
        return last([slice(None) if k == axis else ends[c] for k, c in enumerate(corner)])

    def conductance(corner: tuple[int, ...]) -> torch.Tensor:
        """Return the conductivity at one of the corners of all cells."""
        k = conductivity(_total(s[along(axis, corner)] for axis, s in enumerate(squares)))
        k = k if cells is None else k * cells
        if a is None:
            return k
        return k * (a if is_number(a) else a[last([ends[c] for c in corner])])

    k = {corner: conductance(corner) for corner in corners}
    total: Any = 0.0
    for axis, rise in enumerate(rises):
        conducts: Any = 0.0
        for corner in corners:
            if not corner[
                axis
            ]:  # of both ends of the edge that begins there, in the cells around inner ones
                both = k[corner] + k[(*corner[:axis], 1, *corner[axis + 1 :])]
                opposite = tuple(1 - c for c in corner)
                conducts = conducts + both[along(axis, opposite)]
        total = total - (rise[last(at(axis, axes, slice(None), inner))] * conducts).diff(
            dim=axis - axes
        )
    return total * (scale / 2**axes)


def _total(values: Iterable[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, values)
