"""Sparse factors of symmetric positive matrices, ``P A P' = L D L'``.

They are SuperLU's, of which half is kept: it has ``D L'``, too, and room beside both, and goes over blocks, which are of few
numbers here. Solves in compiled code take half as long.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.schwarz.multigrid.llvm import function, load, over_rows, store

_COLUMNS = "i64 j", "i64 start", "i64 count"  # of L, without the diagonal
_AT_ONCE = 4  # products, so that none waits for the one before
_ROUNDING = 1e-10  # of a solve beside SuperLU's


class Factors:
    """Those of a matrix, in float64."""

    def __init__(self, matrix: scipy.sparse.csc_array):
        # Such matrices need no pivots; those of aggregates have few neighbours.
        factors = scipy.sparse.linalg.splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        self._solve: Callable[[np.ndarray], np.ndarray] = factors.solve
        forward, backward = _compiled(forth=True), _compiled(forth=False)
        if (
            forward is None
            or backward is None
            or not np.array_equal(factors.perm_r, factors.perm_c)
        ):
            return
        lean = _lean(factors, forward, backward)
        told = np.cos(np.arange(matrix.shape[0]))
        expected = factors.solve(told)
        atol = _ROUNDING * abs(expected).max()
        if lean is not None and np.allclose(lean(told), expected, rtol=0, atol=atol):
            self._solve = lean

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return what the matrix makes a right-hand side of, ``(n,)``."""
        return self._solve(b)


def _lean(
    factors: Any, forward: Callable[..., None], backward: Callable[..., None]
) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return what solves by the lower factor and the diagonal alone; None if these are not as they should be."""
    lower, order = factors.L, factors.perm_c.copy()  # else it holds all factors
    rows, values, inverse = lower.indices, lower.data, 1 / factors.U.diagonal()
    count, starts = len(order), lower.indptr[:-1].astype(np.int64)
    every = np.arange(count)
    if rows.dtype != np.int32 or not np.array_equal(rows[starts], every):
        return None  # then the diagonal does not come first
    table = np.stack([every, starts + 1, np.diff(lower.indptr) - 1], axis=1)
    back = np.ascontiguousarray(table[::-1])
    addresses = [of.ctypes.data for of in (rows, values, inverse)]

    def solve(b: np.ndarray, kept: object = (rows, values, inverse)) -> np.ndarray:
        """Go forward and back; the factors stay where they are as long as they are kept."""
        x = np.empty(count)
        x[order] = b
        forward(table.ctypes.data, *addresses, x.ctypes.data, count)
        backward(back.ctypes.data, *addresses, x.ctypes.data, count)
        return x[order]

    return solve


@cache
def _compiled(*, forth: bool) -> Callable[..., None] | None:
    """Return what goes over the columns of a table; None without llvmlite."""
    lines = [
        "br label %begin",
        "begin:",
        *load("%xj", "double", "%x", "%j"),
        "%index = getelementptr i32, ptr %rows.of, i64 %start",
        "%value = getelementptr double, ptr %values, i64 %start",
        *load("%d", "double", "%inverse", "%j"),
        "%scaled = fmul double %xj, %d",
        f"%together = sub i64 %count, {_AT_ONCE - 1}",
        "br label %wide",
        *_loop("wide", _AT_ONCE, "0, %begin", "%together", "last", forth=forth),
        *_loop("last", 1, "%wide.k, %wide", "%count", "done", forth=forth),
        "done:",
    ]
    if not forth:
        lines += [
            "%lower = fadd double %wide.sum0, %wide.sum1",
            "%upper = fadd double %wide.sum2, %wide.sum3",
            "%whole = fadd double %lower, %upper",
            "%sums = fadd double %whole, %last.sum0",
            "%solved = fsub double %scaled, %sums",
            *store("%solved", "double", "%x", "%j"),
        ]
    lines.append("br label %ended")
    head = "columns(ptr %table, ptr %rows.of, ptr %values, ptr %inverse, ptr %x, i64 %rows)"
    return function("columns", over_rows(head, _COLUMNS, lines), "pppppi")


def _loop(of: str, several: int, start: str, end: str, then: str, *, forth: bool) -> list[str]:
    """Return a loop over so many numbers of a column at once: what they take from ``x``, or what is to be taken from ``xj``."""
    sums, reading, writing = [], [], []
    for n in range(several):
        name = f"%{of}.sum{n}"
        sums.append(f"{name} = phi double [0.0, {start.split()[-1]}], [{name}.next, %{of}.begin]")
        reading += [
            f"%{of}.k{n} = add i64 %{of}.k, {n}",
            *load(f"%{of}.short{n}", "i32", "%index", f"%{of}.k{n}"),
            f"%{of}.i{n} = sext i32 %{of}.short{n} to i64",
            *load(f"%{of}.l{n}", "double", "%value", f"%{of}.k{n}"),
            *load(f"%{of}.x{n}", "double", "%x", f"%{of}.i{n}"),
        ]
        if forth:
            writing += [
                f"%{of}.lx{n} = fmul contract double %{of}.l{n}, %xj",
                f"%{of}.less{n} = fsub contract double %{of}.x{n}, %{of}.lx{n}",
                *store(f"%{of}.less{n}", "double", "%x", f"%{of}.i{n}"),
            ]
        else:
            writing += [
                f"%{of}.lx{n} = fmul contract double %{of}.l{n}, %{of}.x{n}",
                f"{name}.next = fadd contract double {name}, %{of}.lx{n}",
            ]
    return [
        f"{of}:",
        f"%{of}.k = phi i64 [{start}], [%{of}.next, %{of}.begin]",
        *([] if forth else sums),
        f"%{of}.some = icmp slt i64 %{of}.k, {end}",
        f"br i1 %{of}.some, label %{of}.begin, label %{then}",
        f"{of}.begin:",
        *reading,
        *writing,
        f"%{of}.next = add i64 %{of}.k, {several}",
        f"br label %{of}",
    ]
