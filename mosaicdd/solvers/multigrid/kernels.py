"""Loops over numbers, which numba compiles for this processor at their first call, and keeps in files for later processes.

Products are added in their order, each with one rounding where the processor can, but for inner products, which are added up in
float64 in any order. Sums of products go over tables of addresses, so one call computes those of many arrays. They are
added up block by block in registers, and a block is read before it is written: arrays may be the same, if they begin at the
same number. All that is read or written has to lie one after another, and to live as long as the call.

Compiled code is taken from files as long as this file is the same, so all that it is made of is in this one.

What numba leaves of loops that it compiles: files for later processes, and a line for who waits.
"""

import contextlib
import fcntl
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils, event
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

from mosaicdd.parallel.launcher import launcher_rank

logger = logging.getLogger(__name__)
_LONG = 2.0  # seconds of compilation that a user would wonder about


class Notice(event.Listener):
    """Says once that compilation of the package's loops takes long."""

    def __init__(self) -> None:
        self._depth, self._begun, self._spent = 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """Begin to measure, unless it is for a loop that calls this one."""
        if _is_ours(event):
            if not self._depth:
                self._begun = time.monotonic()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        """Add up seconds; tell when they become long."""
        if not _is_ours(event):
            return
        self._depth -= 1
        if self._depth:
            return
        before = self._spent
        self._spent += time.monotonic() - self._begun
        if before <= _LONG < self._spent:
            logger.warning("compiling loops for this processor, which takes some seconds, once")


def _is_ours(event: Any) -> bool:
    return event.data["dispatcher"].py_func.__module__.startswith("mosaicdd.")


if launcher_rank() == 0:
    event.register("numba:compile", Notice())


class Files(FunctionCache):
    """Compiled code in files, which processes that start together write in turns; where none can be written it is not kept."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write what was compiled for some types."""
        with contextlib.suppress(OSError), open(f"{self._cache_path}/kernels.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().save_overload(sig, data)


# Numbers of a sum at once: eight registers of AVX2 for float32, eight of AVX-512 for float64. Loops over half as many LLVM
# unrolls before it would make vectors of them.
_BLOCK = 64
_NEAR = 16 * _BLOCK  # numbers that stay in the first cache

HEAD = 6
"""Numbers of a row before products; see `sums`."""


def _compiled(
    function: Callable[..., Any] | None = None, *, reorder: bool = False, inline: bool = False
) -> Any:
    """Decorate a function that is to be compiled.

    Parameters
    ----------
    reorder
        Whether sums may be added up in any order.
    inline
        Whether it becomes a part of those that call it.
    """
    if function is None:
        return lambda later: _compiled(later, reorder=reorder, inline=inline)
    fast = {"contract", "reassoc", "nsz"} if reorder else {"contract"}
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": fast}
    loop = njit(**options, forceinline=inline)(function)
    with contextlib.suppress(RuntimeError):  # where no folder can be written, each process compiles
        loop._cache = Files(function)
    return loop


@intrinsic
def _at(context, address, like):
    """Return a pointer to numbers at an address, of the kind of an array's."""
    kind = types.CPointer(like.dtype)

    def build(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(types.int64, like), build


@intrinsic
def _block(context, like):
    """Return a pointer to room for a block on the stack, which becomes registers where all loops have its length."""
    kind = types.CPointer(like.dtype)

    def build(context, builder, signature, arguments):
        return cgutils.alloca_once(builder, context.get_data_type(like.dtype), size=_BLOCK)

    return kind(like), build


@_compiled(inline=True)
def _row(table, number):
    return _at(table.ctypes.data + number * table.strides[0], table)


@_compiled(reorder=True, inline=True)
def _product(a, b, first, end):
    total = 0.0
    for i in range(first, end):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@_compiled(inline=True)
def _sum(row, start, n, like):
    out, base, scale = _at(row[0], like), _at(row[1], like), _at(row[2], like)
    total = _block(like)
    if row[1]:
        for u in range(n):
            total[u] = base[start + u]
    else:
        for u in range(n):
            total[u] = 0
    for p in range(HEAD, HEAD + 2 * row[4], 2):
        a, b = _at(row[p], like), _at(row[p + 1], like)
        for u in range(n):
            total[u] += a[start + u] * b[start + u]
    if row[2]:
        for u in range(n):
            total[u] *= scale[start + u]
    for u in range(n):
        out[start + u] = total[u]


@_compiled
def sums(table, like):
    """Compute ``out = (base + sum_i a_i b_i) scale`` for each row.

    Parameters
    ----------
    table
        ``(rows, columns)`` int64: addresses of ``out``, ``base`` and ``scale``, 0 for none of these; 0; how many products;
        how many numbers each array has; the addresses of ``a_1``, ``b_1``, ``a_2``..
    like
        An array of the kind of all numbers.
    """
    for number in range(len(table)):
        row = _row(table, number)
        start, length = 0, row[5]
        while start + _BLOCK <= length:
            _sum(row, start, _BLOCK, like)
            start += _BLOCK
        if start < length:
            _sum(row, start, length - start, like)


@_compiled(inline=True)
def _image(row, start, n, like):
    out, excess, own = _at(row[0], like), _at(row[2], like), _at(row[3], like)
    total = _block(like)
    if row[2]:
        for u in range(n):
            total[u] = excess[start + u] * own[start + u]
    else:
        for u in range(n):
            total[u] = 0
    for p in range(HEAD, HEAD + 2 * row[4], 2):
        a, b = _at(row[p], like), _at(row[p + 1], like)
        for u in range(n):
            total[u] += a[start + u] * (own[start + u] - b[start + u])
    for u in range(n):
        out[start + u] = total[u]


@_compiled
def images(table, like):
    """Compute ``out = excess own + sum_i a_i (own - b_i)`` for each row; return the sum of all ``own out`` in float64.

    Parameters
    ----------
    table
        As that of `sums`: addresses of ``out``, 0, ``excess`` (0 for none) and ``own``; the rest is the same.
    like
        An array of the kind of all numbers.
    """
    energy = 0.0
    for number in range(len(table)):
        row = _row(table, number)
        start, length = 0, row[5]
        for first in range(0, length, _NEAR):
            end = min(first + _NEAR, length)
            while start + _BLOCK <= end:
                _image(row, start, _BLOCK, like)
                start += _BLOCK
            if start < end:
                _image(row, start, end - start, like)
                start = end
            energy += _product(_at(row[3], like), _at(row[0], like), first, end)
    return energy


@_compiled(inline=True)
def _residual(row, start, n, weight, scale, like, value):
    out, base = _at(row[0], like), _at(row[1], value)
    excess, own = _at(row[2], value), _at(row[3], value)
    total = _block(value)
    if row[2]:
        for u in range(n):
            total[u] = weight * (base[start + u] - excess[start + u] * own[start + u])
    else:
        for u in range(n):
            total[u] = weight * base[start + u]
    for p in range(HEAD, HEAD + 3 * row[4], 3):
        a, finer, b = _at(row[p], like), _at(row[p + 1], like), _at(row[p + 2], value)
        if row[p + 1]:
            for u in range(n):
                k = value.dtype.type(a[start + u]) + value.dtype.type(finer[start + u])
                total[u] += k * (b[start + u] - own[start + u])
        else:
            for u in range(n):
                total[u] += a[start + u] * (b[start + u] - own[start + u])
    for u in range(n):
        out[start + u] = total[u] * scale


@_compiled
def residuals(table, weight, scale, like, value):
    """Compute ``out = (weight (base - excess own) - sum_i (a_i + finer_i) (own - b_i)) scale`` for each row.

    Parameters
    ----------
    table
        As that of `sums`: addresses of ``out``, ``base``, ``excess`` (0 for none) and ``own``; how many products; how many
        numbers; of each product ``a_i``, ``finer_i`` (0 for none) and ``b_i``.
    weight, scale
        In float64.
    like, value
        Arrays: of the kind of ``out``, ``a_i`` and ``finer_i``; and of that of all others, in which sums are added up.
    """
    times, by = value.dtype.type(weight), value.dtype.type(scale)
    for number in range(len(table)):
        row = _row(table, number)
        start, length = 0, row[5]
        while start + _BLOCK <= length:
            _residual(row, start, _BLOCK, times, by, like, value)
            start += _BLOCK
        if start < length:
            _residual(row, start, length - start, times, by, like, value)


@_compiled(reorder=True)
def dot(a, b):
    """Return the inner product of two flat vectors, in float64."""
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@_compiled
def add(x, a, factor, first, end):
    """Let ``x = x + factor a`` from column ``first`` to ``end`` of ``(C, M)``."""
    times = x.dtype.type(factor)
    for c in range(len(x)):
        of, more = x[c, first:end], a[c, first:end]
        for i in range(len(of)):
            of[i] += times * more[i]


@_compiled(reorder=True)
def turn(p, z, r, factor, first, end):
    """Let ``p = z + factor p`` from column ``first`` to ``end`` of ``(C, M)``; return ``p r`` there, in float64."""
    total, times = 0.0, p.dtype.type(factor)
    for c in range(len(p)):
        of, new, other = p[c, first:end], z[c, first:end], r[c, first:end]
        for i in range(len(of)):
            value = new[i] + times * of[i]
            of[i] = value
            total += np.float64(value) * np.float64(other[i])
    return total


@_compiled(reorder=True)
def step(r, q, factor):
    """Let ``r = r + factor q`` of flat vectors; return ``r r`` in float64."""
    total, times = 0.0, r.dtype.type(factor)
    for i in range(len(r)):
        value = r[i] + times * q[i]
        r[i] = value
        total += np.float64(value) * np.float64(value)
    return total


@_compiled
def add_up(labels, values, sums):
    """Add values to the sums of their labels; labels have no sign."""
    for i in range(len(labels)):
        sums[labels[i]] += values[i]


@_compiled
def add_up_differences(labels, left, right, sums):
    """Add ``left - right`` to the sums of their labels; labels have no sign."""
    for i in range(len(labels)):
        sums[labels[i]] += left[i] - right[i]


@_compiled
def add_constants(labels, constants, values):
    """Add to each value the constant of its label; labels have no sign."""
    for i in range(len(labels)):
        values[i] += constants[labels[i]]


@_compiled
def sweep(lines, couplings, distances, b, x, inverse, way):
    """Solve for one node after the other: ``x_p = (b_p + sum_n k_n,p x_(p + distance_n)) inverse_p``.

    Parameters
    ----------
    lines
        ``(lines, 5)`` int64: the places of the first two nodes, the classes of these, how many nodes there are. Every second
        node is of the same class, and one place further ``way``, 1 or -1.
    couplings
        ``(N,)`` int64, the addresses of ``k_n``.
    distances
        ``(classes, N)`` int64.
    b, x, inverse
        Flat vectors.
    """
    count = len(couplings)
    right, values, scale = _at(b.ctypes.data, x), _at(x.ctypes.data, x), _at(inverse.ctypes.data, x)
    every = _at(couplings.ctypes.data, couplings)
    for number in range(len(lines)):
        p, q, first, second, length = lines[number]
        near, far = _row(distances, first), _row(distances, second)
        for _ in range(length):
            total = right[p]
            for n in range(count):
                total += _at(every[n], x)[p] * values[p + near[n]]
            values[p] = total * scale[p]
            p, q, near, far = q, p + way, far, near


@_compiled
def forward(starts, rows, values, x):
    """Solve ``L x = b`` in place; ``L`` is given by columns, the diagonal of ones, which is not read, first in each."""
    for j in range(len(x)):
        xj = x[j]
        for k in range(starts[j] + np.uint32(1), starts[j + 1]):
            x[rows[k]] -= values[k] * xj


@_compiled(reorder=True)
def backward(starts, rows, values, inverse, x):
    """Solve ``L' x = D^-1 b`` in place; ``inverse`` is of the diagonal ``D``."""
    for j in range(len(x) - 1, -1, -1):
        total = 0.0
        for k in range(starts[j] + np.uint32(1), starts[j + 1]):
            total += values[k] * x[rows[k]]
        x[j] = x[j] * inverse[j] - total


@_compiled
def eliminate(f, pivots, once, last, scale, first, end):
    """Solve for tridiagonal systems along the first axis, see `elimination`, from column ``first`` to ``end``.

    ``u_i = (f_i scale + last_i u_(i-1)) pivots_i`` from the first row to the last, then ``u_i = u_i + once_i u_(i+1)`` back, where
    ``last_i`` is 1 but in the last row, and ``once_i`` is ``pivots_i`` but in the first.
    """
    n = len(f)
    for i in range(n):
        u, pivot = f[i, first:end], pivots[i, first:end]
        if i == 0:
            for j in range(len(u)):
                u[j] = u[j] * scale * pivot[j]
        else:
            before, times = f[i - 1, first:end], last if i == n - 1 else 1.0
            for j in range(len(u)):
                u[j] = (u[j] * scale + times * before[j]) * pivot[j]
    for i in range(n - 2, -1, -1):
        u, after = f[i, first:end], f[i + 1, first:end]
        factor = pivots[i, first:end] if i else once[first:end]
        for j in range(len(u)):
            u[j] += factor[j] * after[j]
