"""Vectors to which others are added with a factor, and inner products: what conjugate gradients do beside a cycle.

By torch each of these reads its numbers anew and some write results that only the next one needs, which takes as long as the
cycle itself. Here a call of compiled code goes over many stretches, and each number passes once; inner products are
added up in float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.llvm import (
    NAMES,
    along,
    function,
    is_plain,
    load,
    over_rows,
    spread,
    store,
    wide,
)

_LANES = 16  # several registers, so that no product waits for the one before


@dataclass(frozen=True)
class Combination:
    """``out = base + factor a``, and the inner product of that with ``by``; of stretches, all of the same length.

    Parameters
    ----------
    out, base
        They may be one, or ``a``. Without them the inner product is that of ``a``.
    by
        It may be the result. None if there is no inner product.
    """

    a: torch.Tensor
    out: torch.Tensor | None = None
    base: torch.Tensor | None = None
    by: torch.Tensor | None = None

    def __call__(self, factor: float) -> torch.Tensor | None:
        """Compute it; return the inner product, if there is one."""
        if self.out is not None and self.base is not None:
            torch.add(self.base, self.a.to(self.out.dtype), alpha=factor, out=self.out)
        ours = self.a if self.out is None else self.out
        return None if self.by is None else torch.dot(ours.to(self.by.dtype), self.by)


class _Kind(NamedTuple):
    """Of what combinations are made: the kinds of numbers, and which parts there are."""

    a: torch.dtype
    value: torch.dtype
    combined: bool
    multiplied: bool


def combining(combinations: Sequence[Combination]) -> Callable[[float], float]:
    """Return what computes combinations of one kind with a factor, and returns the sum of their inner products."""

    def by_torch(factor: float) -> float:
        products = [product for each in combinations if (product := each(factor)) is not None]
        return sum(torch.stack(products).tolist()) if products else 0.0

    kinds = {_kind(each) for each in combinations}
    parts = [
        (part, _kind(each).value)
        for each in combinations
        for part in (each.out, each.base, each.by)
    ]
    parts += [(each.a, each.a.dtype) for each in combinations]
    run = _compiled(*kinds) if len(kinds) == 1 and is_plain(parts) else None
    if run is None:
        return by_torch
    table = np.array([_row(each) for each in combinations], np.int64)
    where, rows = table.ctypes.data, len(table)

    def by_code(factor: float, kept: object = (table, combinations)) -> float:
        """Compute them; their numbers stay where they are as long as they are kept."""
        return float(run(where, rows, factor))

    return by_code


def dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the inner product of two vectors, the second of longer numbers if they differ."""
    return combining([Combination(a.view(-1), by=b.view(-1))])(0.0)


def _kind(each: Combination) -> _Kind:
    value = next(part for part in (each.out, each.by, each.a) if part is not None)
    return _Kind(each.a.dtype, value.dtype, each.out is not None, each.by is not None)


def _row(each: Combination) -> list[int]:
    parts = each.a, each.out, each.base, each.by
    return [*(0 if part is None else part.data_ptr() for part in parts), len(each.a)]


@cache
def _compiled(kind: _Kind) -> Callable[..., float] | None:
    """Return what computes the combinations of a table; None without llvmlite."""
    double, reduce = wide("double", _LANES), f"@llvm.vector.reduce.fadd.v{_LANES}f64"
    lines = [
        "br label %wide",
        *_loop("wide", kind, _LANES, "0, %row", "zeroinitializer, %row", "reduced"),
        "reduced:",
        f"%of.row = call double {reduce}(double %total, {double} %wide.sum)",
        "br label %last",
        *_loop("last", kind, 1, "%wide.i, %reduced", "%of.row, %reduced", "ended"),
    ]
    text = over_rows(
        "combined(ptr %table, i64 %rows, double %factor)",
        ["ptr a", "ptr out", "ptr base", "ptr by", "i64 length"],
        lines,
        total="%last.sum",
    )
    declared = f"declare double {reduce}(double, {double})\n"
    return function("combined", declared + text, "pid", result="d")


def _loop(of: str, kind: _Kind, lanes: int, start: str, total: str, then: str) -> list[str]:
    """Return a loop over a stretch, so many lanes at once, from a sum of products, see `along`."""
    scalar = NAMES[kind.value]
    value, double = wide(scalar, lanes), wide("double", lanes)

    def read(name: str, dtype: torch.dtype, longer: str) -> list[str]:
        return load(f"%{of}.{name}", NAMES[dtype], f"%{name}", f"%{of}.i", lanes, longer)

    lines, ours, following = read("a", kind.a, scalar), f"%{of}.a", f"%{of}.sum"
    if kind.combined:
        ours, how = f"%{of}.out", "fptrunc" if scalar != "double" else "bitcast"
        lines += [
            *spread(f"%{of}.factor", "double", "%factor", lanes),
            *read("base", kind.value, scalar),
            f"%{of}.times = {how} {double} %{of}.factor to {value}",
            f"%{of}.more = fmul contract {value} %{of}.times, %{of}.a",
            f"%{of}.out = fadd contract {value} %{of}.base, %{of}.more",
            *store(f"%{of}.out", scalar, "%out", f"%{of}.i", lanes),
        ]
    if kind.multiplied:
        following = f"%{of}.sum.next"
        lines += [
            *read("by", kind.value, "double"),  # after the result, which it may be
            f"%{of}.ours = {'fpext' if scalar != 'double' else 'bitcast'} {value} {ours} to {double}",
            f"%{of}.product = fmul contract {double} %{of}.ours, %{of}.by",
            f"%{of}.sum.next = fadd contract {double} %{of}.sum, %{of}.product",
        ]
    carried = [f"%{of}.sum = phi {double} [{total}], [{following}, %{of}.again]"]
    return along(of, lanes, start, then, lines, carried)
