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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from mosaicdd.axes import at, last, steps_across
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.patch import StencilValues, is_number, offsets

Conductivity = Callable[[torch.Tensor], torch.Tensor]


def outflow(
    u: StencilValues, h: float, conductivity: Conductivity, a: StencilValues | None = None
) -> torch.Tensor:
    """Return the discrete ``-div(a k grad u)`` at the centres of stencils.

    ``h``: the spacing, in whose units `StencilValues.aspect` has the sides of cells; ``conductivity``: ``k`` of the squared
    gradient; ``a``: by default 1.
    """
    scales = [(h * side) ** -2 for side in u.aspect or (1.0,) * u.axes]
    factor = None if a is None else a.whole
    if u.whole is not None and (a is None or factor is not None):
        energy = u.whole, scales, conductivity, _shares(u.cells, factor, u.axes)
        total = _through_edges(*energy)
        if u.differentiated is not None:
            total.requires_grad_()
            u.differentiated.append((total, _of_energy(*energy, u.dtype)))
        return total
    corners = list(itertools.product((-1, 1), repeat=u.axes))
    cells = None if u.cells is None else _block([u.cell(corner) for corner in corners], u.axes)
    around = list(itertools.product((-1, 0, 1), repeat=u.axes))
    every = [
        # Corners of cubes count nowhere.
        _block([each.at(o) if o in offsets(u.axes) else each.centre for o in around], u.axes)
        for each in (u, *(() if a is None else (a,)))
    ]
    shares = _shares(cells, None if a is None else every[1], u.axes)
    return _through_edges(every[0], scales, conductivity, shares)[last((0,) * u.axes)]


def _block(values: Sequence[Any], axes: int) -> torch.Tensor:
    """Stack tensors to a block of equal sides along new last axes."""
    stacked = torch.stack(torch.broadcast_tensors(*values), dim=-1)
    return stacked.unflatten(-1, (round(len(values) ** (1 / axes)),) * axes)


def _meeting(corner: Sequence[int], *along: int) -> tuple[Any, ...]:
    """Return the index of the edges along an axis that meet at a corner of each cell."""
    ends = slice(None, -1), slice(1, None)
    return last([slice(None) if axis in along else ends[c] for axis, c in enumerate(corner)])


def _shares(
    cells: torch.Tensor | None, factor: torch.Tensor | None, axes: int
) -> dict[tuple[int, ...], Any]:
    """Return the factors of the energy at each corner of the cells; None for 1."""
    shares = dict[tuple[int, ...], Any]()
    for corner in itertools.product((0, 1), repeat=axes):
        every = [] if cells is None else [cells]
        if factor is not None:
            every.append(factor if is_number(factor) else factor[_meeting(corner)])
        shares[corner] = functools.reduce(torch.mul, every) if every else None
    return shares


def _through_edges(
    u: torch.Tensor,
    scales: Sequence[float],
    conductivity: Conductivity,
    shares: dict[tuple[int, ...], Any],
) -> torch.Tensor:
    """Return the outflow at the inner nodes of arrays ``(..., rows, columns)``, edge by edge."""
    axes, inner = len(scales), slice(1, -1)
    rises = [u.diff(dim=axis - axes) for axis in range(axes)]
    squares = [scale * rise.square() for scale, rise in zip(scales, rises, strict=True)]
    k = {}
    for corner, share in shares.items():
        k[corner] = conductivity(
            _total(s[_meeting(corner, axis)] for axis, s in enumerate(squares))
        )
        k[corner] = k[corner] if share is None else k[corner] * share
    total: Any = 0.0
    for axis, rise in enumerate(rises):
        conducts: Any = 0.0
        for corner in shares:
            # Of both ends of the edge that begins there, in the cells around inner ones.
            if not corner[axis]:
                both = k[corner] + k[(*corner[:axis], 1, *corner[axis + 1 :])]
                opposite = tuple(1 - c for c in corner)
                conducts = conducts + both[_meeting(opposite, axis)]
        through = rise[last(at(axis, axes, slice(None), inner))] * conducts
        total = total - scales[axis] / 2**axes * through.diff(dim=axis - axes)
    return total


def _of_energy(
    u: torch.Tensor,
    scales: Sequence[float],
    conductivity: Conductivity,
    shares: dict[tuple[int, ...], Any],
    dtype: torch.dtype,
) -> Conductances:
    """Return the derivative as conductances, right between nodes with all neighbours in the array."""
    axes = len(scales)
    steps = steps_across(axes)
    rises = [u.diff(dim=axis - axes).to(dtype) for axis in range(axes)]
    between = [torch.zeros_like(rise) for rise in rises]
    diagonals = {
        step: u.new_zeros([n - abs(s) for n, s in zip(u.shape, step, strict=True)])
        for step in steps
    }
    for corner, share in shares.items():
        meeting = [rise[_meeting(corner, axis)] for axis, rise in enumerate(rises)]
        slopes = [scale * rise for scale, rise in zip(scales, meeting, strict=True)]
        products = (slope * rise for slope, rise in zip(slopes, meeting, strict=True))
        k, rate = _with_rate(conductivity, _total(products))
        counts = (1.0 if share is None else share.to(dtype)) / 2**axes
        k, rate = k * counts, rate * (2 * counts)
        flows = [rate * slope for slope in slopes]
        for axis, (scale, flow, slope) in enumerate(zip(scales, flows, slopes, strict=True)):
            there = between[axis][_meeting(corner, axis)]
            there.add_(k, alpha=scale).addcmul_(flow, slope)
        for first, second in itertools.combinations(range(axes), 2):
            both = flows[first] * slopes[second]
            way = 1 if corner[first] == corner[second] else -1  # on which side of the diagonal
            for axis in (first, second):
                between[axis][_meeting(corner, axis)].add_(both, alpha=way)
            step = tuple({first: 1, second: -way}.get(axis, 0) for axis in range(axes))
            diagonals[step][_meeting(corner, first, second)].sub_(both, alpha=way)
    reaction: Any = u.new_zeros(u.shape, dtype=dtype)
    along: Any = tuple(between)
    across: Any = tuple(diagonals[step] for step in steps)
    return Conductances(along, reaction, across=across)


def _with_rate(
    conductivity: Conductivity, squared: torch.Tensor
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
