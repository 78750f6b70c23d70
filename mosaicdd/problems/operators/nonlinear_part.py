"""A nonlinear operator on a part of the grid: its residual, and its derivative as a medium between nodes."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mosaicdd.axes import Slices, within
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.jacobian import (
    NotEllipticError,
    elliptic_conductances,
    require_positive,
)
from mosaicdd.problems.operators.patch import Offset, StencilValues, beside, offsets

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Nonlinear

_STRIP = 2**16  # nodes whose patches are differentiated at a time: they stay in the cache
_ROWS = 16  # of nodes at least, where two more are differentiated with them


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
        What the domain has of the cells between these nodes, as `StencilValues`; by default all.
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
                patch = StencilValues.of(
                    torch.from_numpy(u[there]), u.ndim, cells=self._cells(there)
                )
                values[strip] = self._at(patch, there).numpy()
        return values

    def derivative(self, u: np.ndarray, part: Part, dtype: type = np.float64) -> Conductances:
        """Return the derivative between the nodes of a part within this one, in numbers of a type.

        Where a node's residual is not known, as on the edge of ``part``, what its neighbour has of their
        edge counts; along the edge of the domain, where there is no equation, what lies beside it, or half of it.

        `NotEllipticError` if it is that of no elliptic equation, so that there are no conductances, or seems so in numbers of
        this type.
        """
        whole: Conductances | None = None
        height = part[0].stop - part[0].start - 2
        try:
            for strip, there in self._strips(part, _ROWS):
                # With a row more on both sides, as couplings are known from both ends, or half from each cell.
                first = strip.start - (strip.start > 0)
                more = slice(
                    there[0].start + first - strip.start, there[0].stop + (strip.stop < height)
                )
                between, partial = self._in_strip(u, (more, *there[1:]), dtype)
                if between is not None and self.self_adjoint:
                    require_positive(between.diagonal()[(slice(1, -1),) * u.ndim])
                else:
                    every = {o: k.numpy() for o, k in _by_offset(between, partial).items()}
                    between = elliptic_conductances(every, symmetric=self.self_adjoint)
                if whole is None:  # without values yet
                    whole = between.mapped(
                        lambda step, k: np.zeros((height + 2 - step[0], *k.shape[1:]), dtype)
                    )
                _put(between, whole, strip, first)
        except NotEllipticError:  # which is said of all nodes
            right = elliptic_conductances(self.partials(u, part), symmetric=self.self_adjoint)
            if dtype == np.float64:
                return right
            raise  # numbers are too small for the type
        if whole is None:
            raise RuntimeError("a part has nodes inside")
        return whole

    def partials(self, u: np.ndarray, part: Part) -> dict[Offset, np.ndarray]:
        """Return the derivatives at the nodes inside a part by the values at offsets from them, ``(rows, columns)``."""
        partial: dict[Offset, np.ndarray] = {}
        shape = tuple(p.stop - p.start - 2 for p in part)
        for strip, there in self._strips(part):
            between, by_offset = self._in_strip(u, there)
            for offset, gradient in _by_offset(between, by_offset).items():
                partial.setdefault(offset, np.empty(shape))[strip] = gradient
        return partial

    def couples_corners(self, u: np.ndarray) -> bool:
        """Say whether the residual depends on the corners of its patches."""
        corner = tuple(slice(p.start, p.start + 3) for p in self.part)
        return any(sum(map(abs, offset)) > 1 for offset in self.partials(u, corner))

    def products(self, u: np.ndarray, changes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the derivative's products with changes of values, at the nodes inside, as `residual`."""
        every = [np.empty([n - 2 for n in u.shape]) for _ in changes]
        for strip, there in self._strips(self.part):
            between, partial = self._in_strip(u, there)
            for change, values in zip(changes, every, strict=True):
                around = change[there]
                if between is not None:
                    values[strip] = between.apply(around)
                    continue
                total = torch.zeros(values[strip].shape, dtype=torch.float64)
                for offset, gradient in partial.items():
                    total.addcmul_(gradient, beside(torch.from_numpy(around), offset))
                values[strip] = total.numpy()
        return every

    def _in_strip(
        self, u: np.ndarray, there: Slices, dtype: type = np.float64
    ) -> tuple[Conductances | None, dict[Offset, torch.Tensor]]:
        """Return the derivatives at the nodes inside a strip of this part.

        They are conductances, of a type, where the whole residual has these from a formula; else None, and by offset those
        by the values there.
        """
        known: list[tuple[torch.Tensor, Conductances]] = []
        values = torch.from_numpy(u[there])
        leaves = [
            leaf.detach().requires_grad_() for leaf in StencilValues.of(values, u.ndim).values
        ]
        cells, kind = self._cells(there), torch.float32 if dtype == np.float32 else torch.float64
        patch = StencilValues(*leaves, whole=values, cells=cells, differentiated=known, dtype=kind)
        total = self._at(patch, there).sum()
        by = [*leaves, *(leaf for leaf, _ in known)]
        gradients = torch.autograd.grad(total, by, allow_unused=True)
        of_leaves, of_known = gradients[: len(leaves)], gradients[len(leaves) :]
        pairs = zip(offsets(u.ndim), of_leaves, strict=True)
        partial = {offset: gradient for offset, gradient in pairs if gradient is not None}
        parts = zip([between for _, between in known], of_known, strict=True)
        factors = [(between, factor) for between, factor in parts if factor is not None]
        if not partial and len(factors) == 1 and (number := _number(factors[0][1])):
            return _in_numpy(factors[0][0], number), {}
        for between, factor in factors:
            for offset, gradient in _by_offset(_in_numpy(between), {}).items():
                more = factor * gradient
                partial[offset] = partial[offset] + more if offset in partial else more
        return None, partial

    def _strips(self, part: Part, rows: int = 1) -> Iterator[tuple[slice, Slices]]:
        """Yield strips of inner nodes, of some rows at least, and their place with a frame of nodes."""
        every, *others = within(part, self.part)
        height = every.stop - every.start - 2
        step = max(rows, _STRIP // math.prod(p.stop - p.start for p in others))
        for start in range(0, height, step):
            stop = min(start + step, height)
            yield slice(start, stop), (slice(every.start + start, every.start + stop + 2), *others)

    def _cells(self, there: Slices) -> torch.Tensor | None:
        """Return the cells between some of the nodes."""
        between = tuple(slice(p.start, p.stop - 1) for p in there)
        return None if self.cells is None else self.cells[between]

    def _at(self, u: StencilValues, there: Slices) -> torch.Tensor:
        fields = {
            name: StencilValues.of(values[there], len(there))
            for name, values in self.fields.items()
        }
        h = self.grid.spacing
        return self._operator.at(u, fields, h) * h**2


def _number(values: torch.Tensor) -> float:
    """Return the common number of all values; 0 if they differ."""
    least, most = values.aminmax()
    return float(least) if least == most else 0.0


def _in_numpy(known: Conductances, factor: float = 1.0) -> Conductances:
    """Return conductances times a factor, in numpy's arrays, in place of torch's."""

    def changed(k: Any) -> np.ndarray:
        return (k if factor == 1.0 else k.mul_(factor)).numpy()

    return known.each(changed)


def _put(strip: Conductances, whole: Conductances, rows: slice, first: int) -> None:
    """Write the conductances of some rows of a strip into those of the whole."""
    height = len(whole.reaction) - 2
    for ((rises, *_), values), to in zip(strip.items(), whole.arrays(), strict=True):
        # Along a row of nodes, those inside, and the outermost.
        low = rows.start + (not rises and rows.start > 0)
        high = rows.stop + 1 + (not rises and rows.stop == height)
        to[low:high] = values[low - first : high - first]


def _by_offset(
    between: Conductances | None, known: dict[Offset, torch.Tensor]
) -> dict[Offset, torch.Tensor]:
    """Return the derivatives of inner nodes' residuals by the values at offsets from them, of a strip."""
    if between is None:
        return known
    inside = (slice(1, -1),) * between.axes
    partial = {(0,) * between.axes: torch.from_numpy(between.diagonal()[inside])}
    sides = slice(1, -1), slice(1, None), slice(None, -1)
    for step, forth, back in between.edges():
        for offset, k in ((step, forth), (tuple(-s for s in step), back)):
            partial[offset] = torch.from_numpy(-k[tuple(sides[s] for s in offset)])
    return partial


class Linearised:
    """The derivative of a nonlinear operator at values of a rank, as a `Medium`.

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
