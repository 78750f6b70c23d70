"""Sparse matrices as tensors."""

import warnings

import torch


def sparse_rows(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, width: int
) -> torch.Tensor:
    """Return a matrix by where its rows start, their columns and values, ``(rows, width)``.

    Raises
    ------
    ValueError
        If its numbers would have to be longer.
    """
    if max(len(values), len(starts), width) >= 2**31:
        raise ValueError(
            f"a sparse matrix of {len(starts) - 1} rows, {width} columns and {len(values)} entries needs "
            "longer numbers; use more ranks"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that torch may change this format
        shape = len(starts) - 1, width
        return torch.sparse_csr_tensor(starts.int(), columns.int(), values, shape)
