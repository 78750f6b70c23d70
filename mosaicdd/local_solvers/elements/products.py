"""Products of many small matrices, by whatever is fastest.

Shape letters: ``K`` matrices, ``k`` entries of a vector, ``m`` of its product, ``r`` vectors of each matrix.
"""

import numpy as np
import torch


def products(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the products of matrices with a matrix each, ``(K, .., ..)``; any may be transposed views.

    On one thread numpy's are up to five times as fast as torch's, the more the smaller they are. Single
    rows should stand before matrices: behind them, as columns, they take several times as long.
    """
    if left.device.type != "cpu" or torch.get_num_threads() > 1:
        return torch.bmm(left, right) if out is None else torch.bmm(left, right, out=out)
    with np.errstate(all="ignore"):  # values that are not finite are found where they are summed up
        if out is None:
            return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))
        np.matmul(left.numpy(), right.numpy(), out=out.numpy())
        return out


def rows_times(
    values: torch.Tensor, matrices: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the products of rows ``(K, r, k)`` with a matrix each, ``(K, k, m)``.

    Rows whose same entries lie side by side in memory, as columns do, come back like that.

    Parameters
    ----------
    out
        Where such may be written, ``(K, r, m)``, in memory alike.
    """
    if values.shape[1] == 1 or values.is_contiguous():
        return products(values, matrices)
    if out is None:
        out = values.new_empty(len(values), matrices.shape[2], values.shape[1]).mT
    products(matrices.mT, values.mT, out=out.mT)
    return out
