"""Products of many small matrices, by whatever is fastest.

Shape letters: ``K`` matrices, ``k`` entries of a vector, ``l`` of its product, ``m`` members that have each matrix,
``n`` vectors of each member.
"""

import numpy as np
import torch

# Multiplications up to which OpenBLAS does not rearrange matrices, which takes a fifth less time; and rows for
# which that pays.
_SMALL, _FEW = 10**6, 8


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


def rows_times(values: torch.Tensor, matrix: torch.Tensor, out: torch.Tensor) -> None:
    """Write the products of rows ``(M, k)`` with one matrix ``(k, l)``, so many at once as are done soonest."""
    most = _SMALL // matrix.numel()
    if not _FEW <= most < len(values) or not on_one_core(values):
        products(values, matrix, out=out)
        return
    size = len(values) // -(-len(values) // most)
    whole = len(values) // size * size
    several, into = (rows[:whole].unflatten(0, (-1, size)) for rows in (values, out))
    products(several, matrix, out=into)
    if whole < len(values):
        products(values[whole:], matrix, out=out[whole:])


def rows_at(
    values: torch.Tensor, numbers: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return some rows of ``(N, ..)``, by their numbers, which are all there; in room for them that there may be."""
    if not on_one_core(values) or not values.is_contiguous():
        return torch.index_select(values, 0, numbers, out=out)
    # Two thirds of torch's time, and a quarter of it where rows are single numbers.
    room = None if out is None else out.numpy()
    rows = np.take(values.numpy(), numbers.numpy(), axis=0, out=room, mode="clip")
    return torch.from_numpy(rows)
