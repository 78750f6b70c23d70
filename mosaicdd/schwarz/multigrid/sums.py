"""Sums of products over the nodes of a class: what every step of a cycle is made of, planned once.

A sum by torch is a call per product, which reads and writes the result each time: in the caches a cycle takes twice
as long that way, and on small levels calls are all that it takes. In compiled code a result stays in registers until its
last product. It is the same number: products are added in the same order, each with one rounding where the processor can.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.compiled import is_plain, kernels

T = TypeVar("T")
Factors = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Sum:
    """``out = (base + sum_i a_i b_i) scale``; of stretches, all of the same length.

    Parameters
    ----------
    base, scale
        None for 0 and for 1. The base may be the result itself.
    """

    out: torch.Tensor
    base: torch.Tensor | None
    products: Sequence[Factors]
    scale: torch.Tensor | None = None

    def __call__(self) -> None:
        """Compute it."""
        so_far = self.base
        for a, b in self.products:
            if so_far is None:
                torch.mul(a, b, out=self.out)
            else:
                torch.addcmul(so_far, a, b, out=self.out)
            so_far = self.out
        if so_far is None:
            self.out.zero_()
        elif self.scale is not None:
            torch.mul(so_far, self.scale, out=self.out)
        elif so_far is not self.out:
            self.out.copy_(so_far)


@dataclass(frozen=True)
class Image:
    """``out = excess own + sum_i a_i (own - b_i)``, what a matrix makes of values, and the product of both.

    Parameters
    ----------
    excess
        None for 0.
    """

    out: torch.Tensor
    own: torch.Tensor
    products: Sequence[Factors]
    excess: torch.Tensor | None = None

    def __call__(self) -> torch.Tensor:
        """Compute it; return ``own out``."""
        if self.excess is None:
            self.out.zero_()
        else:
            torch.mul(self.excess, self.own, out=self.out)
        for a, b in self.products:
            self.out.addcmul_(a, self.own - b)
        return torch.dot(self.own, self.out)


@dataclass(frozen=True)
class Residual:
    """``out = (weight (base - excess own) - sum_i (a_i + finer_i) (own - b_i)) scale``, what equations leave.

    It is computed as base and values are; the result, ``a_i`` and ``finer_i`` may be of shorter numbers.

    Parameters
    ----------
    products
        ``a_i``, ``finer_i`` and ``b_i``, the second None for 0.
    excess
        None for 0.
    """

    out: torch.Tensor
    base: torch.Tensor
    own: torch.Tensor
    products: Sequence[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]]
    excess: torch.Tensor | None = None

    def __call__(self, weight: float = 1.0, scale: float = 1.0) -> None:
        """Compute it."""
        left = self.base * weight
        if self.excess is not None:
            left.addcmul_(self.excess, self.own, value=-weight)
        for a, finer, b in self.products:
            difference = b - self.own
            left.addcmul_(a, difference)
            if finer is not None:
                left.addcmul_(finer, difference)
        torch.mul(left, scale, out=self.out)


Row = Sum | Image | Residual


def in_turn(stages: Iterable[Sequence[T]]) -> list[T]:
    """Return what is to be done of several stages, each of a part per stretch, in an order for the cache.

    A part comes after those of the stage before in its own stretch and the ones beside it, and before the rest of
    that stage: while what these have read and written is in the cache.
    """
    parts = [
        (number + stage, stage, part)
        for stage, of_stage in enumerate(stages)
        for number, part in enumerate(of_stage)
    ]
    return [part for _, _, part in sorted(parts, key=lambda entry: entry[:2])]


def planned(rows: Sequence[Row]) -> Callable[..., float]:
    """Return what computes rows in their order: compiled code where there is any, and torch's calls elsewhere.

    It returns the sum of the products of images, and is called without a word or, where rows are residuals, with
    weight and scale.
    """
    runs = [_planned(list(run)) for _, run in itertools.groupby(rows, type)]
    if len(runs) == 1:
        return runs[0]
    return lambda: sum(run() for run in runs)


def _planned(rows: list[Row]) -> Callable[..., float]:
    """Plan rows of one form."""
    code, first = kernels(), rows[0]
    short, value = first.out.dtype, first.out.dtype
    kinds = [short, value]
    if isinstance(first, Residual):
        value = first.base.dtype
        kinds = [short, short, value]
    kinds = [short, value, value, value, *kinds * max([len(row.products) for row in rows])]
    parts = [[*_ends(row), *itertools.chain.from_iterable(row.products)] for row in rows]
    if code is None or not is_plain([pair for row in parts for pair in zip(row, kinds)]):  # noqa: B905 - rows may be short

        def by_torch(*scalars: float) -> float:
            products = [product for row in rows if (product := row(*scalars)) is not None]
            return sum(torch.stack(products).tolist()) if products else 0.0

        return by_torch
    table = np.zeros((len(rows), code.HEAD + len(kinds) - 4), np.int64)
    for line, row, of in zip(table, rows, parts, strict=True):
        addresses = [0 if part is None else part.data_ptr() for part in of]
        line[:4], line[4:6] = addresses[:4], (len(row.products), len(row.out))
        line[code.HEAD : code.HEAD + len(of) - 4] = addresses[4:]
    short_zero, zero = (torch.empty(0, dtype=kind).numpy() for kind in (short, value))
    # The numbers of rows stay where they are as long as these are kept.
    if isinstance(first, Image):
        return lambda kept=rows: code.images(table, short_zero)
    if isinstance(first, Sum):
        return lambda kept=rows: code.sums(table, short_zero) or 0.0

    def left(weight: float = 1.0, scale: float = 1.0, kept: object = rows) -> float:
        code.residuals(table, weight, scale, short_zero, zero)
        return 0.0

    return left


def _ends(row: Row) -> tuple[torch.Tensor | None, ...]:
    """Return what a row of a table begins with: see `kernels.sums`, `kernels.images` and `kernels.residuals`."""
    if isinstance(row, Sum):
        return row.out, row.base, row.scale, None
    return row.out, row.base if isinstance(row, Residual) else None, row.excess, row.own
