r"""The discrete $-\nabla\cdot(a\,k(|\nabla u|^2)\,\nabla u)$, the derivative of an energy on the corners of cells.

With $k = 2 e'$ the energy of a cell of width ``h`` is the mean over its four corners,

$$E = \frac{h^2}{4} \sum_{\text{corners}} a\, e(p^2 + q^2),$$

where ``p`` and ``q`` are the difference quotients along the two edges of the cell that meet at the corner, and
``a`` the value at that corner. So the residual at a node is $h^{-2}\,\partial E / \partial u$: of second
order, symmetric like the square, and with a symmetric derivative, positive definite wherever ``e`` is a
convex function of the gradient. For ``k = 1`` it is the 5-point Laplacian. Each of the four cells around a
node has three corners whose gradients depend on the node's value; with the node ``c``, and ``b`` beside,
``d`` above or below, ``x`` across,

```
   d --- x        at c:  p = (c - b) / h,  q = (c - d) / h
   |     |        at b:  p = (c - b) / h,  q = (b - x) / h
   c --- b        at d:  p = (d - x) / h,  q = (c - d) / h
```

Where the nodes are all those of an array, the conductivity at each corner is taken once for all three of them.
"""

from collections.abc import Callable

import torch

from mosaicdd.problems.operators.patch import Patch, is_number


def outflow(
    u: Patch, h: float, conductivity: Callable[[torch.Tensor], torch.Tensor], a: Patch | None = None
) -> torch.Tensor:
    """Return it at the centres of patches.

    ``conductivity``: ``k`` of the squared gradient; ``a``: by default 1.
    """
    if u.whole is not None and (a is None or a.whole is not None):
        return _through_edges(u.whole, h, conductivity, None if a is None else a.whole)
    weights = u.quarters if a is None else a.quarters
    total, scale = torch.zeros_like(u.centre), 1.0 / h**2
    for (beside, above, across), (a_beside, a_above, _) in zip(u.quarters, weights, strict=True):
        p, q = u.centre - beside, u.centre - above
        pp, qq, far_p, far_q = (d * d for d in (p, q, above - across, beside - across))
        at_centre = conductivity(scale * (pp + qq)) * (p + q)
        at_beside = conductivity(scale * (pp + far_q)) * p
        at_above = conductivity(scale * (far_p + qq)) * q
        if a is None:
            total = total + at_centre + at_beside + at_above
        else:
            total = total + a.centre * at_centre + a_beside * at_beside + a_above * at_above
    return total * (scale / 4.0)


def _through_edges(
    u: torch.Tensor,
    h: float,
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: torch.Tensor | None,
) -> torch.Tensor:
    """Return it inside of arrays ``(..., rows, columns)``: what flows through the edges between nodes."""
    across, up = u.diff(dim=-1), u.diff(dim=-2)
    low, high = slice(None, -1), slice(1, None)
    scale = 1.0 / h**2
    pp, qq = scale * across.square(), scale * up.square()

    def corner(y: slice, x: slice) -> torch.Tensor:
        """Return the conductivity at one of the corners of all cells."""
        k = conductivity(pp[..., y, :] + qq[..., x])
        return k if a is None else k * (a if is_number(a) else a[..., y, x])

    (low_left, low_right), (high_left, high_right) = (
        [corner(y, x) for x in (low, high)] for y in (low, high)
    )
    along = across[..., 1:-1, :] * (
        (low_left + low_right)[..., high, :] + (high_left + high_right)[..., low, :]
    )
    upward = up[..., 1:-1] * (
        (low_left + high_left)[..., high] + (low_right + high_right)[..., low]
    )
    return -(along.diff(dim=-1) + upward.diff(dim=-2)) * (scale / 4.0)
