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

There the derivative is that of the energy, too: of the differences along the edges of a corner the quadratic form

$$ \tfrac{1}{2} \sum_i (k + 2 k' p_i^2) \delta_i^2 + \sum_{i < j} 2 k' p_i p_j \delta_i \delta_j, $$

and as with ``c``, ``b`` and ``d`` of the figure ``2 (b - c)(d - c) = (b - c)^2 + (d - c)^2 - (b - d)^2``, it is that of
conductances along edges and diagonals: no digit of a difference is lost, and it is symmetric to the bit.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from mosaicdd.axes import at, last, steps_across
from mosaicdd.problems.operators.patch import Differentiated, StencilValues, is_number


def outflow(
    u: StencilValues,
    h: float,
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: StencilValues | None = None,
) -> torch.Tensor:
    """Return it at the centres of patches.

    ``h``: the spacing, in whose units `StencilValues.aspect` has the sides of cells; ``conductivity``: ``k`` of the squared
    gradient; ``a``: by default 1.
    """
    scales = [(h * side) ** -2 for side in u.aspect or (1.0,) * u.axes]
    if u.whole is not None and (a is None or a.whole is not None):
        whole = u, u.whole, scales, conductivity, None if a is None else a.whole
        total = _through_edges(*whole)
        if u.differentiated is not None:
            total.requires_grad_()
            u.differentiated.append(Differentiated(total, *_of_energy(*whole)))
        return total
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


class _Corners:
    """The corners of the cells between the nodes of arrays ``(..., rows, columns)``, and the edges that meet there."""

    def __init__(self, axes: int):
        self.axes = axes
        self._ends = slice(None, -1), slice(1, None)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return itertools.product((0, 1), repeat=self.axes)

    def edges(self, corner: tuple[int, ...], *along: int) -> tuple[Any, ...]:
        """Return which of what lies along an axis, or across several, meet at a corner of all cells."""
        which = enumerate(corner)
        return last([slice(None) if axis in along else self._ends[c] for axis, c in which])

    def share(
        self, corner: tuple[int, ...], patch: StencilValues, a: torch.Tensor | None
    ) -> torch.Tensor | float:
        """Return what multiplies the energy at one of the corners."""
        factor: torch.Tensor | float = 1.0 if patch.cells is None else patch.cells
        if a is None:
            return factor
        return factor * (a if is_number(a) else a[self.edges(corner)])


def _through_edges(
    patch: StencilValues,
    u: torch.Tensor,
    scales: Sequence[float],
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: torch.Tensor | None,
) -> torch.Tensor:
    """Return it inside of the arrays ``(..., rows, columns)`` of a patch: what flows through the edges between nodes."""
    axes, inner = patch.axes, slice(1, -1)
    corners = _Corners(axes)
    rises = [u.diff(dim=axis - axes) for axis in range(axes)]
    squares = [scale * rise.square() for scale, rise in zip(scales, rises, strict=True)]

    def conductance(corner: tuple[int, ...]) -> torch.Tensor:
        """Return the conductivity at one of the corners of all cells."""
        every = enumerate(squares)
        k = conductivity(_total(s[corners.edges(corner, axis)] for axis, s in every))
        share = corners.share(corner, patch, a)
        return k if isinstance(share, float) else k * share

    k = {corner: conductance(corner) for corner in corners}
    total: Any = 0.0
    for axis, rise in enumerate(rises):
        conducts: Any = 0.0
        for corner in corners:
            # Of both ends of the edge that begins there, in the cells around inner ones.
            if not corner[axis]:
                both = k[corner] + k[(*corner[:axis], 1, *corner[axis + 1 :])]
                opposite = tuple(1 - c for c in corner)
                conducts = conducts + both[corners.edges(opposite, axis)]
        through = rise[last(at(axis, axes, slice(None), inner))] * conducts
        total = total - scales[axis] / 2**axes * through.diff(dim=axis - axes)
    return total


def _of_energy(
    patch: StencilValues,
    u: torch.Tensor,
    scales: Sequence[float],
    conductivity: Callable[[torch.Tensor], torch.Tensor],
    a: torch.Tensor | None,
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Return the conductances along the edges between the nodes of an array, and across, of the derivative there."""
    axes = patch.axes
    corners, steps = _Corners(axes), steps_across(axes)
    rises = [u.diff(dim=axis - axes).to(patch.dtype) for axis in range(axes)]
    between = [torch.zeros_like(rise) for rise in rises]
    diagonals = {
        step: u.new_zeros([n - abs(s) for n, s in zip(u.shape, step, strict=True)])
        for step in steps
    }
    for corner in corners:
        meeting = [rise[corners.edges(corner, axis)] for axis, rise in enumerate(rises)]
        slopes = [scale * rise for scale, rise in zip(scales, meeting, strict=True)]
        products = (slope * rise for slope, rise in zip(slopes, meeting, strict=True))
        k, rate = _with_rate(conductivity, _total(products))
        share = corners.share(corner, patch, a)
        if isinstance(share, torch.Tensor):
            share = share.to(patch.dtype)
        k, rate = k * (share / 2**axes), rate * (share / 2 ** (axes - 1))
        flows = [rate * slope for slope in slopes]
        for axis, (scale, flow, slope) in enumerate(zip(scales, flows, slopes, strict=True)):
            there = between[axis][corners.edges(corner, axis)]
            there.add_(k, alpha=scale).addcmul_(flow, slope)
        for first, second in itertools.combinations(range(axes), 2):
            both = flows[first] * slopes[second]
            way = 1 if corner[first] == corner[second] else -1  # on which side of the diagonal
            for axis in (first, second):
                between[axis][corners.edges(corner, axis)].add_(both, alpha=way)
            step = tuple({first: 1, second: -way}.get(axis, 0) for axis in range(axes))
            diagonals[step][corners.edges(corner, first, second)].sub_(both, alpha=way)
    return tuple(between), tuple(diagonals[step] for step in steps)


def _with_rate(
    conductivity: Callable[[torch.Tensor], torch.Tensor], squared: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the conductivity of squared gradients, and its derivative by these."""
    with torch.enable_grad():
        leaf = squared.detach().requires_grad_()
        k = conductivity(leaf)
        if not k.requires_grad:  # it is constant
            return k, torch.zeros_like(squared)
        (rate,) = torch.autograd.grad(k.sum(), leaf)
    return k.detach(), rate


def _total(values: Iterable[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, values)
