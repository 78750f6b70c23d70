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
"""

from collections.abc import Callable

import torch

from mosaicdd.problems.patch import Patch


def outflow(
    u: Patch,
    h: float,
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: Patch | None = None,
) -> torch.Tensor:
    """Return it at the centres of patches.

    Parameters
    ----------
    conductivity
        ``k`` of the squared gradient.
    a
        By default 1.
    """
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
