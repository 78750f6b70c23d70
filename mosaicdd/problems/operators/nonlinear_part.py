"""A nonlinear operator on a part of the grid: its residual, and its derivative as a medium between nodes."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.jacobian import elliptic_conductances
from mosaicdd.problems.operators.patch import Offset, Patch, beside, offsets

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Nonlinear

_STRIP = 2**15  # nodes whose patches are differentiated at a time: they stay in the cache


class NonlinearPart:
    """A nonlinear operator at the nodes of a part of a grid.

    Attributes
    ----------
    grid, part
        The outermost nodes of the part count as neighbours only.
    fields
        At these nodes, ``(rows, columns)``; a number takes no memory.
    self_adjoint
        As that of the operator.
    cells
        What the domain has of the cells between these nodes, as `Patch`; by default all.
    """

    def __init__(
        self,
        operator: "Nonlinear",
        grid: Grid,
        part: Part,
        fields: dict[str, torch.Tensor] | None = None,
        cells: torch.Tensor | None = None,
    ):
        self.grid, self.part = grid, part
        self.self_adjoint = operator.self_adjoint
        self._operator = operator
        self.fields = operator.sampled(grid, part) if fields is None else fields
        self.cells = cells

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return the residual at the nodes inside, times the squared spacing.

        ``u``: at the nodes of the part, ``(rows, columns)``.
        """
        values = np.empty([n - 2 for n in u.shape])
        with torch.no_grad():
            for strip, there in self._strips(self.part):
                patch = Patch.of(torch.from_numpy(u[there]), u.ndim, cells=self._cells(there))
                values[strip] = self._at(patch, there).numpy()
        return values

    def derivative(self, u: np.ndarray, part: Part) -> Conductances:
        """Return the derivative between the nodes of a part within this one.

        Where a node's residual is not known, as on the edge of ``part``, what its neighbour has of their
        edge counts; along the edge of the domain, where there is no equation, what lies beside it.

        `NotEllipticError` if it is that of no elliptic equation, so that there are no conductances.
        """
        return elliptic_conductances(self.partials(u, part), symmetric=self.self_adjoint)

    def partials(self, u: np.ndarray, part: Part) -> dict[Offset, np.ndarray]:
        """Return the derivatives at the nodes inside a part by the values at offsets from them, ``(rows, columns)``."""
        partial: dict[Offset, np.ndarray] = {}
        shape = tuple(p.stop - p.start - 2 for p in part)
        for strip, _, partials in self._partials(u, part):
            for offset, gradient in partials:
                partial.setdefault(offset, np.empty(shape))[strip] = gradient.numpy()
        return partial

    def couples_corners(self, u: np.ndarray) -> bool:
        """Say whether the residual depends on the corners of its patches."""
        corner = tuple(slice(p.start, p.start + 3) for p in self.part)
        _, _, partials = next(self._partials(u, corner))
        return any(sum(map(abs, offset)) > 1 for offset, _ in partials)

    def product(self, u: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return the derivative's product with a change of values, at the nodes inside, as `residual`."""
        values = np.empty([n - 2 for n in u.shape])
        for strip, there, partials in self._partials(u, self.part):
            around = torch.from_numpy(change[there])
            total = torch.zeros(values[strip].shape, dtype=torch.float64)
            for offset, gradient in partials:
                total.addcmul_(gradient, beside(around, offset))
            values[strip] = total.numpy()
        return values

    def _partials(
        self, u: np.ndarray, part: Part
    ) -> Iterator[tuple[slice, Slices, list[tuple[Offset, torch.Tensor]]]]:
        """Yield strips as `_strips`, and the derivatives by the values at offsets from the nodes."""
        for strip, there in self._strips(part):
            patch = Patch.of(torch.from_numpy(u[there]), u.ndim)
            leaves = [leaf.detach().requires_grad_() for leaf in patch.values]
            total = self._at(Patch(*leaves, cells=self._cells(there)), there).sum()
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            pairs = zip(offsets(u.ndim), gradients, strict=True)
            known = [(offset, gradient) for offset, gradient in pairs if gradient is not None]
            yield strip, there, known

    def _strips(self, part: Part) -> Iterator[tuple[slice, Slices]]:
        """Yield strips of the nodes inside a part, and where in this one these and those around are."""
        rows, *others = within(part, self.part)
        height = rows.stop - rows.start - 2
        step = max(1, _STRIP // math.prod(p.stop - p.start for p in others))
        for start in range(0, height, step):
            stop = min(start + step, height)
            yield slice(start, stop), (slice(rows.start + start, rows.start + stop + 2), *others)

    def _cells(self, there: Slices) -> torch.Tensor | None:
        """Return the cells between some of the nodes."""
        return None if self.cells is None else self.cells[_between(there)]

    def _at(self, u: Patch, there: Slices) -> torch.Tensor:
        fields = {name: Patch.of(values[there], len(there)) for name, values in self.fields.items()}
        h = self.grid.spacing
        return self._operator.at(u, fields, h) * h**2


def _between(nodes: Slices) -> Slices:
    return tuple(slice(p.start, p.stop - 1) for p in nodes)


class Linearised:
    """The derivative of a nonlinear operator at values that a rank holds, as a `Medium` of its own.

    ``u``: values at the nodes of the operator's part; ``transposed``: whether it is that of the transposed matrix.
    """

    reflective = False

    def __init__(self, operator: NonlinearPart, u: np.ndarray, *, transposed: bool = False):
        self.self_adjoint = operator.self_adjoint
        self._operator, self._u, self._transposed = operator, u, transposed

    @property
    def couples_corners(self) -> bool:
        """Whether nodes are coupled across cells, as where flows depend on gradients."""
        return self._operator.couples_corners(self._u)

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part, which ``u`` must surround."""
        wide = tuple(
            slice(max(p.start - 1, 0), min(p.stop + 1, nodes))
            for p, nodes in zip(part, grid.nodes, strict=True)
        )
        around = self._operator.derivative(self._u, wide)
        around = around.transposed() if self._transposed else around
        return around.part(*within(part, wide))
