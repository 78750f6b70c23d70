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

from mosaicdd.schwarz.multigrid.vector_code import NAMES, function

_LANES = 16  # several registers, so that no product waits for the one before
_ROW = "a", "out", "base", "by", "length"


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
    run = _compiled(*kinds) if len(kinds) == 1 and all(map(_is_plain, combinations)) else None
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


def _is_plain(each: Combination) -> bool:
    """Say whether all is contiguous numbers of the kind, of a processor."""
    value = _kind(each).value
    others = [part for part in (each.out, each.base, each.by) if part is not None]
    return all(part.dtype == value for part in others) and all(
        part.device.type == "cpu" and part.is_contiguous() for part in (each.a, *others)
    )


@cache
def _compiled(kind: _Kind) -> Callable[..., float] | None:
    """Return what computes the combinations of a table; None without llvmlite."""
    head = []
    for place, name in enumerate(_ROW):
        of = "i64" if name == "length" else "ptr"
        head.append(f"%{name}.at = getelementptr i64, ptr %row, i64 {place}")
        head.append(f"%{name} = load {of}, ptr %{name}.at")
    wide, reduce = f"<{_LANES} x double>", f"@llvm.vector.reduce.fadd.v{_LANES}f64"
    text = [
        f"declare double {reduce}(double, {wide})",
        "define double @combined(ptr %table, i64 %rows, double %factor) {",
        "entry:",
        "br label %each",
        "each:",
        "%r = phi i64 [0, %entry], [%r.next, %ended]",
        "%total = phi double [0.0, %entry], [%last.sum, %ended]",
        "%there = icmp slt i64 %r, %rows",
        "br i1 %there, label %one, label %exit",
        "exit:",
        "ret double %total",
        "one:",
        f"%before = mul i64 %r, {len(_ROW)}",
        "%row = getelementptr i64, ptr %table, i64 %before",
        *head,
        "br label %wide",
        *_loop("wide", kind, _LANES, ("0", "zeroinitializer", "one"), "reduced"),
        "reduced:",
        f"%of.row = call double {reduce}(double %total, {wide} %wide.sum)",
        "br label %last",
        *_loop("last", kind, 1, ("%wide.i", "%of.row", "reduced"), "ended"),
        "ended:",
        "%r.next = add i64 %r, 1",
        "br label %each",
        "}",
    ]
    return function("combined", "\n".join(text), "pid", result="d")


def _loop(of: str, kind: _Kind, lanes: int, first: tuple[str, str, str], then: str) -> list[str]:
    """Return a loop over a stretch, so many lanes at once, as far as these fit.

    Parameters
    ----------
    of, then
        Labels: of the loop, and of what comes after it.
    first
        Where it begins, from which sum of products, and the label before it.
    """

    def typed(dtype: torch.dtype) -> str:
        return f"<{lanes} x {NAMES[dtype]}>" if lanes > 1 else NAMES[dtype]

    def load(name: str, dtype: torch.dtype, to: torch.dtype) -> list[str]:
        lines = [
            f"%{of}.{name}.at = getelementptr {NAMES[dtype]}, ptr %{name}, i64 %{of}.i",
            f"%{of}.{name}.read = load {typed(dtype)}, ptr %{of}.{name}.at, align 4",
        ]
        return lines + longer(f"%{of}.{name}", f"%{of}.{name}.read", dtype, to)

    def longer(name: str, short: str, dtype: torch.dtype, to: torch.dtype) -> list[str]:
        how = "fpext" if dtype != to else "bitcast"
        return [f"{name} = {how} {typed(dtype)} {short} to {typed(to)}"]

    value, double = typed(kind.value), typed(torch.float64)
    start, total, before = first
    body = load("a", kind.a, kind.value)
    ours = f"%{of}.a"
    if kind.combined:
        ours, factor = f"%{of}.out", "%factor"
        if lanes > 1:
            every, none = f"<{lanes} x i32> zeroinitializer", f"{double} poison"
            body += [
                f"%{of}.first = insertelement {none}, double %factor, i32 0",
                f"%{of}.factor = shufflevector {double} %{of}.first, {none}, {every}",
            ]
            factor = f"%{of}.factor"
        how = "fptrunc" if kind.value != torch.float64 else "bitcast"
        body += [
            *load("base", kind.value, kind.value),
            f"%{of}.times = {how} {double} {factor} to {value}",
            f"%{of}.more = fmul contract {value} %{of}.times, %{of}.a",
            f"%{of}.out = fadd contract {value} %{of}.base, %{of}.more",
            f"%{of}.to = getelementptr {NAMES[kind.value]}, ptr %out, i64 %{of}.i",
            f"store {value} %{of}.out, ptr %{of}.to, align 4",
        ]
    if kind.multiplied:
        body += [
            *load("by", kind.value, torch.float64),  # after the result, which it may be
            *longer(f"%{of}.ours", ours, kind.value, torch.float64),
            f"%{of}.product = fmul contract {double} %{of}.ours, %{of}.by",
            f"%{of}.sum.next = fadd contract {double} %{of}.sum, %{of}.product",
        ]
    following = f"%{of}.sum.next" if kind.multiplied else f"%{of}.sum"
    return [
        f"{of}:",
        f"%{of}.i = phi i64 [{start}, %{before}], [%{of}.end, %{of}.go]",
        f"%{of}.sum = phi {double} [{total}, %{before}], [{following}, %{of}.go]",
        f"%{of}.end = add i64 %{of}.i, {lanes}",
        f"%{of}.fits = icmp sle i64 %{of}.end, %length",
        f"br i1 %{of}.fits, label %{of}.go, label %{then}",
        f"{of}.go:",
        *body,
        f"br label %{of}",
    ]
