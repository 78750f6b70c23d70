"""Products of many small matrices with vectors, by whatever is fastest.

Shape letters: ``E`` matrices, ``k`` entries of a vector, ``m`` of its product, ``n`` vectors of each.
"""

import numpy as np
import torch


def one_times(
    matrix: torch.Tensor, values: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the products of one matrix ``(m, k)`` with vectors ``(E, n, k)``, all at once.

    Several are best where the same entry of all vectors lies side by side in memory, as they come back.

    Parameters
    ----------
    out
        Where to write those of several.
    """
    if values.shape[1] == 1:
        return values @ matrix.mT
    entries = values.permute(2, 0, 1)
    if out is None:
        out = values.new_empty(len(matrix), *entries.shape[1:]).permute(1, 2, 0)
    torch.mm(matrix, entries.flatten(1), out=out.permute(2, 0, 1).flatten(1))
    return out


def row_times(values: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Return the products of single rows ``(E, 1, k)`` with a matrix ``(E, k, m)`` each.

    Before matrices: behind them, as columns, they take several times as long. On one thread numpy takes
    half to three quarters of the time of torch.
    """
    if values.device.type == "cpu" and torch.get_num_threads() == 1:
        with np.errstate(
            all="ignore"
        ):  # values that are not finite are found where they are summed up
            return torch.from_numpy(np.matmul(values.numpy(), matrices.numpy()))
    return torch.bmm(values, matrices)


def rows_times(
    values: torch.Tensor, matrices: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the products of rows ``(E, n, k)`` with a matrix each, ``(E, k, m)``; or see `grouped`.

    Several are best where the same entry of all vectors lies side by side in memory, as they come back.

    Parameters
    ----------
    out
        Where to write those of several, if each has its own matrix.
    """
    if len(values) > len(matrices):
        products = torch.bmm(grouped(values, len(matrices)), matrices)
        return products.reshape(*values.shape[:2], -1)
    if values.shape[1] == 1:
        return row_times(values, matrices)
    if out is None:
        out = values.new_empty(len(values), matrices.shape[2], values.shape[1]).mT
    torch.bmm(matrices.mT, values.mT, out=out.mT)
    return out


def grouped(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return vectors ``(E, n, k)`` by the matrices that as many after one another share, ``(count, .., k)``."""
    return values.unflatten(0, (count, -1)).flatten(1, 2)
