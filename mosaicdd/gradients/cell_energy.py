"""What the equations of nine points make of two fields, cell by cell, so that torch differentiates it by the tensors.

As `problems.operators.tensors` says: of the rises of both fields along x and y, and of their twists.
"""

import itertools
from collections.abc import Sequence

import torch


def cell_energy(
    coefficients: Sequence[torch.Tensor], u: torch.Tensor, v: torch.Tensor, *, bilinear: bool
) -> torch.Tensor:
    """Return ``v A u`` of the cells between some nodes.

    Parameters
    ----------
    coefficients
        ``ayy``, ``axx`` and ``axy``: numbers, per cell, or at the nodes, of which cells have the harmonic mean.
    u, v
        At the nodes, ``(rows, columns)``.
    bilinear
        Whether cells are bilinear elements.
    """
    ayy, axx, axy = _of_cells(coefficients, u.shape)
    (y, x, twist), (y_of_v, x_of_v, twist_of_v) = _rises(u), _rises(v)
    twisted = (axx + ayy) * (1 / 3 if bilinear else 1.0)
    across = axy * (x * y_of_v + y * x_of_v)
    energy: torch.Tensor = (
        axx * x * x_of_v + ayy * y * y_of_v + across + twisted * twist * twist_of_v
    ).sum()
    return energy


def _rises(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the mean rises of each cell along y and x, and half of its twist."""
    low, high = u[:-1, :-1], u[1:, 1:]
    right, up = u[:-1, 1:], u[1:, :-1]
    return (
        (up + high - low - right) / 2,
        (right + high - low - up) / 2,
        (low + high - right - up) / 2,
    )


def _of_cells(coefficients: Sequence[torch.Tensor], nodes: torch.Size) -> Sequence[torch.Tensor]:
    """Return the tensors of cells."""
    if not any(values.shape == nodes for values in coefficients):
        return coefficients
    rows, columns = (count - 1 for count in nodes)
    sums = [torch.zeros(rows, columns, dtype=torch.float64) for _ in range(3)]
    for y, x in itertools.product((0, 1), repeat=2):
        ayy, axx, axy = (
            values[y : y + rows, x : x + columns] if values.shape == nodes else values
            for values in coefficients
        )
        determinant = axx * ayy - axy * axy
        inverse = axx / determinant, ayy / determinant, -axy / determinant
        sums = [total + values / 4 for total, values in zip(sums, inverse, strict=True)]
    yy, xx, xy = sums
    determinant = xx * yy - xy * xy
    return xx / determinant, yy / determinant, -xy / determinant
