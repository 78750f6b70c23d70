"""Products of many small matrices, by whatever is fastest.

Shape letters: ``K`` matrices, ``k`` entries of a vector, ``l`` of its product, ``m`` members that have each matrix,
``n`` vectors of each member.
"""

import numpy as np
import torch


def on_one_core(values: torch.Tensor) -> bool:
    """Say whether work with these is done by one core, where numpy is often faster than torch."""
    return values.device.type == "cpu" and torch.get_num_threads() == 1


def products(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the products of matrices with a matrix each, ``(.., l, n)``; any may be transposed views.

    On one thread numpy's are up to five times as fast as torch's, the more the smaller they are. Single
    rows should stand before matrices: behind them, as columns, they take several times as long.
    """
    if not on_one_core(left):
        return torch.matmul(left, right, out=out)
    with np.errstate(all="ignore"):  # values that are not finite are found where they are summed up
        if out is None:
            return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))
        np.matmul(left.numpy(), right.numpy(), out=out.numpy())
        return out
