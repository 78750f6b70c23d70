r"""The discrete $-\nabla\cdot(a\,k(|\nabla u|^2)\,\nabla u)$, the derivative of an energy on the corners of cells.

With $k = 2 e'$ the energy of a cell of the volume ``V``, of ``d`` axes, is the mean over its corners,

$$E = \frac{V}{2^d} \sum_{\text{corners}} a\, e(p_1^2 + .. + p_d^2),$$

where the ``p`` are the difference quotients along the edges of the cell that meet at the corner, and ``a`` the value at
that corner. So the residual at a node is $V^{-1}\,\partial E / \partial u$: of second order, symmetric like the cell, and
with a symmetric derivative, positive definite wherever ``e`` is a convex function of the gradient. For ``k = 1`` it is
the Laplacian of neighbours. Each of the cells around a node has corners whose gradients depend on the node's value: itself,
and those beside it. In the plane, in cells of the sides ``h`` and ``w``, with the node ``c``, and ``b`` beside, ``d`` above or
below, ``x`` across,

```
   d --- x        at c:  p = (c - b) / w,  q = (c - d) / h
   |     |        at b:  p = (c - b) / w,  q = (b - x) / h
   c --- b        at d:  p = (d - x) / w,  q = (c - d) / h
```

Where the nodes are all those of an array, the conductivity at each corner is taken once for all nodes of it. Of cells
that are not in the domain there is no energy: so a node on a natural side has what flows into its part of a volume.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from mosaicdd.lattice.axes import at, last
from mosaicdd.problems.operators.patch import Patch, is_number


def outflow(
    u: Patch, h: float, conductivity: Callable[[torch.Tensor], torch.Tensor], a: Patch | None = None
) -> torch.Tensor:
    """Return it at the centres of patches.

    ``h``: the spacing, in whose units `Patch.aspect` has the sides of cells; ``conductivity``: ``k`` of the squared
    gradient; ``a``: by default 1.
    """
    scales = [(h * side) ** -2 for side in u.aspect or (1.0,) * u.axes]
    if u.whole is not None and (a is None or a.whole is not None):
        return _through_edges(u, u.whole, scales, conductivity, None if a is None else a.whole)
    total, axes = torch.zeros_like(u.centre), u.axes
    for cell in itertools.product((-1, 1), repeat=axes):
        share = u.cell(cell)
        steps = [at(axis, axes, way, 0) for axis, way in enumerate(cell)]
        rises = [u.centre - u.at(step) for step in steps]
        slopes = [scale * rise for scale, rise in zip(scales, rises, strict=True)]
        squared = _total(slope * rise for slope, rise in zip(slopes, rises, strict=True))
        here = conductivity(squared) * _total(slopes)
        total = total + share * (here if a is None else a.centre * here)
        for axis, (step, slope) in enumerate(zip(steps, slopes, strict=True)):
            beside, squared = u.at(step), slope * rises[axis]
            for other, across in enumerate(steps):
                if other != axis:
                    corner = tuple(s + t for s, t in zip(step, across, strict=True))
                    squared = squared + scales[other] * (beside - u.at(corner)).square()
            there = conductivity(squared) * slope
            total = total + share * (there if a is None else a.at(step) * there)
    return total / 2**axes


def _through_edges(
    patch: Patch,
    u: torch.Tensor,
    scales: Sequence[float],
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: torch.Tensor | None,
) -> torch.Tensor:
    """Return it inside of the arrays ``(..., rows, columns)`` of a patch: what flows through the edges between nodes."""
    axes, cells = patch.axes, patch.cells
    ends, inner = (slice(None, -1), slice(1, None)), slice(1, -1)
    rises = [u.diff(dim=axis - axes) for axis in range(axes)]
    squares = [scale * rise.square() for scale, rise in zip(scales, rises, strict=True)]
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
        through = rise[last(at(axis, axes, slice(None), inner))] * conducts
        total = total - scales[axis] / 2**axes * through.diff(dim=axis - axes)
    return total


def _total(values: Iterable[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, values)
