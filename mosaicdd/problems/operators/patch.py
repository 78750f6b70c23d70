"""Patches: values at nodes and at all that surround them, from which nonlinear equations are made."""

from dataclasses import dataclass, replace

import torch

Offset = tuple[int, ...]
"""From a node to another, (y, x), in cells."""

OFFSETS: tuple[Offset, ...] = (
    *((0, 0), (1, 0), (-1, 0), (0, -1), (0, 1)),
    *((1, -1), (1, 1), (-1, -1), (-1, 1)),
)
"""From the centre to the nodes of a patch, in the order of its members."""


def beside(values: torch.Tensor, offset: Offset) -> torch.Tensor:
    """Return the values beside the nodes inside arrays ``(..., rows, columns)``."""
    (y, x), (rows, columns) = offset, (n - 2 for n in values.shape[-2:])
    return values[..., 1 + y :, 1 + x :][..., :rows, :columns]


def is_number(values: torch.Tensor) -> bool:
    """Say whether a field is one number for each square, or for all."""
    return values.shape[-1:] in ((), (1,))


@dataclass(frozen=True)
class Patch:
    """Values at nodes and at those around them, tensors of one shape; ``up`` is where y is larger.

    ``whole``: the array that all were cut from, ``(..., rows, columns)``, or the number that all are; None if they
    come one by one.
    """

    centre: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    up_left: torch.Tensor
    up_right: torch.Tensor
    down_left: torch.Tensor
    down_right: torch.Tensor
    whole: torch.Tensor | None = None

    @classmethod
    def of(cls, values: torch.Tensor) -> "Patch":
        """Cut the patches around the nodes inside arrays ``(..., rows, columns)``, or of numbers, ``()`` or ``(B, 1, 1)``."""
        if is_number(values):
            return replace(cls(*(values for _ in OFFSETS)), whole=values)
        return replace(cls(*(beside(values, offset) for offset in OFFSETS)), whole=values)

    @property
    def values(self) -> tuple[torch.Tensor, ...]:
        """All, in the order of the members."""
        return (self.centre, *self.neighbours, *self.corners)

    def float(self) -> "Patch":
        """Return it in float32."""
        if self.whole is not None:
            return Patch.of(self.whole.float())
        return Patch(*(values.float() for values in self.values))

    @property
    def neighbours(self) -> tuple[torch.Tensor, ...]:
        """Those beside the centre: up, down, left, right."""
        return self.up, self.down, self.left, self.right

    @property
    def corners(self) -> tuple[torch.Tensor, ...]:
        """Those across from the centre, in the order of the members."""
        return self.up_left, self.up_right, self.down_left, self.down_right

    @property
    def quarters(self) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], ...]:
        """Of each cell around the centre, its other corners: beside, above or below, and across."""
        return (
            (self.left, self.down, self.down_left),
            (self.right, self.down, self.down_right),
            (self.right, self.up, self.up_right),
            (self.left, self.up, self.up_left),
        )
