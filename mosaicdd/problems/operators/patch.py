"""Stencils: values at nodes and at their neighbours, of which nonlinear residuals are made."""

from typing import TYPE_CHECKING, Any

import torch

from mosaicdd.axes import last

if TYPE_CHECKING:
    from mosaicdd.problems.operators.conductances import Conductances

Offset = tuple[int, ...]
"""From a node to another, (y, x) or (z, y, x), in cells."""

_CROSS: tuple[Offset, ...] = ((1, 0), (-1, 0), (0, -1), (0, 1))
_CORNERS: tuple[Offset, ...] = ((1, -1), (1, 1), (-1, -1), (-1, 1))
_IN_SPACE: tuple[Offset, ...] = (*((0, *offset) for offset in _CROSS), (1, 0, 0), (-1, 0, 0))
_ON_FACES: tuple[Offset, ...] = tuple(
    (*corner[:axis], 0, *corner[axis:]) for axis in range(3) for corner in _CORNERS
)
# What people call the values, in the order of `offsets`.
_BESIDE = "centre", "up", "down", "left", "right"
_NAMES = {
    2: (*_BESIDE, "up_left", "up_right", "down_left", "down_right"),
    3: (*_BESIDE, "front", "back"),
}


def neighbours_of(axes: int) -> tuple[Offset, ...]:
    """Return the offsets of neighbours: up, down, left, right, and in space front and back."""
    return _CROSS if axes == 2 else _IN_SPACE


def offsets(axes: int, *, corners: bool = True) -> tuple[Offset, ...]:
    """Return the offsets of a stencil: the centre, its neighbours, and the corners of cells' faces."""
    across = _CORNERS if axes == 2 else _ON_FACES
    return ((0,) * axes, *neighbours_of(axes), *(across if corners else ()))


def beside(values: torch.Tensor, offset: Offset) -> torch.Tensor:
    """Return the values beside the nodes inside arrays ``(..., rows, columns)``, in space with an axis more."""
    sizes = values.shape[-len(offset) :]
    inside = tuple(slice(1 + d, n - 1 + d) for d, n in zip(offset, sizes, strict=True))
    return values[last(inside)]


def is_number(values: torch.Tensor) -> bool:
    """Say whether a field is one number for each square, or for all."""
    return values.shape[-1:] in ((), (1,))


class StencilValues:
    """Values at nodes and at those around them, tensors of one shape.

    They have names: ``centre``; beside it ``up`` where y is larger, and ``down``, ``left``, ``right`` where x is larger; in
    space ``front`` where z is larger, and ``back``; in the plane across from it ``up_left``, ``up_right``, ``down_left`` and
    ``down_right``.

    Parameters
    ----------
    values
        In the order of `offsets`, with corners or without.
    whole
        The array that all were cut from, ``(..., rows, columns)``, or the number that all are; None if they
        come one by one.
    cells
        What the domain has of the cells between the nodes of the array, ``(rows - 1, columns - 1)``, 1 or 0; None of all.
    aspect
        The sides of a cell per axis in units of the spacing; empty where all are the same.
    differentiated
        A list for the parts of a residual whose derivative is known by a formula, each a leaf, by which the rest of the
        residual is differentiated, and conductances between the nodes of the array; None if nobody asks.
    dtype
        Of these derivatives.
    """

    def __init__(
        self,
        *values: torch.Tensor | None,
        whole: torch.Tensor | None = None,
        cells: torch.Tensor | None = None,
        aspect: tuple[float, ...] = (),
        differentiated: "list[tuple[torch.Tensor, Conductances]] | None" = None,
        dtype: torch.dtype = torch.float64,
    ):
        self._values = list(values)  # None until they are asked for
        self.whole, self.cells, self.aspect = whole, cells, aspect
        self.differentiated, self.dtype = differentiated, dtype
        self.axes = 2 if len(values) in (len(offsets(2)), len(offsets(2, corners=False))) else 3

    @classmethod
    def of(
        cls, values: torch.Tensor, axes: int = 2, *, cells: torch.Tensor | None = None
    ) -> "StencilValues":
        """Cut the stencils of inner nodes from arrays ``(..., rows, columns)``, or numbers, ``()`` or ``(B, 1, 1)``."""
        if is_number(values):
            return cls.uniform(values, axes, whole=values)
        return cls(*[None] * len(offsets(axes)), whole=values, cells=cells)

    @classmethod
    def uniform(
        cls, values: torch.Tensor, axes: int = 2, *, whole: torch.Tensor | None = None
    ) -> "StencilValues":
        """Return stencils that have the same value at all of their nodes."""
        return cls(*(values for _ in offsets(axes)), whole=whole)

    def in_cells(self, aspect: tuple[float, ...]) -> "StencilValues":
        """Return the same values in cells of other sides."""
        made: dict[str, Any] = {
            "cells": self.cells,
            "differentiated": self.differentiated,
            "dtype": self.dtype,
        }
        return StencilValues(*self._values, whole=self.whole, aspect=aspect, **made)

    def along(self, axis: int) -> "StencilValues":
        """Return stencils with the neighbours along an axis, and the values of the centre at all other nodes."""
        pairs = zip(offsets(self.axes)[: len(self._values)], self.values, strict=True)
        return StencilValues(
            *(value if sum(map(abs, s)) == abs(s[axis]) else self.centre for s, value in pairs)
        )

    def __getattr__(self, name: str) -> torch.Tensor:
        """Return the values at a node by its name."""
        if not any(name in names for names in _NAMES.values()):
            raise AttributeError(f"a stencil has no values {name!r}")
        if name not in _NAMES[self.axes]:
            raise AttributeError(
                f"a patch of {self.axes} axes has no such node: front and back are there in space, corners by name in the plane"
            )
        return self._value(_NAMES[self.axes].index(name))

    @property
    def values(self) -> tuple[torch.Tensor, ...]:
        """In the order of `offsets`."""
        return tuple(map(self._value, range(len(self._values))))

    def _value(self, number: int) -> torch.Tensor:
        value = self._values[number]
        if value is None:
            if self.whole is None:
                raise RuntimeError("values are cut from an array")
            value = self._values[number] = beside(self.whole, offsets(self.axes)[number])
        return value

    def at(self, offset: Offset) -> torch.Tensor:
        """Return the values at an offset from the nodes."""
        return self._value(offsets(self.axes).index(offset))

    def cell(self, corner: Offset) -> torch.Tensor | float:
        """Return what the domain has of the cells that lie towards a corner from the nodes, by a sign for each axis."""
        if self.cells is None:
            return 1.0
        return self.cells[last([slice(1, None) if way > 0 else slice(None, -1) for way in corner])]

    @property
    def neighbours(self) -> tuple[torch.Tensor, ...]:
        """The values beside the centre: up, down, left, right, and in space front and back."""
        return tuple(map(self._value, range(1, 1 + 2 * self.axes)))

    @property
    def corners(self) -> tuple[torch.Tensor, ...]:
        """The values across faces of cells from the centre, in the plane from the upper left row by row."""
        return tuple(map(self._value, range(1 + 2 * self.axes, len(self._values))))
