"""Sums over nodes and vector operations, by compiled loops where these are, else by torch.

Sums of products over the nodes of a class: what every step of a cycle is made of, planned once.

A sum by torch is a call per product, which reads and writes the result each time: in the caches a cycle takes twice
as long that way, and on small levels calls are all that it takes. In compiled code a result stays in registers until its
last product. It is the same number: products are added in the same order, each with one rounding where the processor can.

What conjugate gradients do with vectors beside a cycle: to add others with a factor, and inner products in float64.

By torch each of these reads its numbers anew, and some write results that only the next one needs, which takes as long as
the cycle itself. In compiled code each number passes once.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np
import torch

logger = logging.getLogger(__name__)


@cache
def kernels() -> ModuleType | None:
    """Return the module of compiled loops; None without numba, and where that is told to compile nothing."""
    try:
        import numba
    except ModuleNotFoundError:
        return None
    except ImportError as error:  # as it asks for another numpy
        logger.warning("loops are not compiled, and take twice as long: %s", error)
        return None
    if numba.config.DISABLE_JIT:
        return None
    from mosaicdd.solvers.multigrid import kernels

    return kernels


def is_plain(parts: Iterable[tuple[torch.Tensor | None, torch.dtype]]) -> bool:
    """Say whether all that is there is contiguous numbers of the kind beside it, of a processor."""
    for part, dtype in parts:
        if part is None:
            continue
        if part.dtype != dtype or part.device.type != "cpu" or not part.is_contiguous():
            return False
    return True


def arrays_of(*tensors: torch.Tensor) -> list[np.ndarray] | None:
    """Return views of tensors for compiled loops; None where these are not for them."""
    if kernels() is None or not is_plain([(of, of.dtype) for of in tensors]):
        return None
    return [of.numpy() for of in tensors]


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
    """``out = excess own + sum_i a_i (own - b_i)``: the product of a matrix and values, and its energy.

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
    """``out = (weight (base - excess own) - sum_i (a_i + finer_i) (own - b_i)) scale``: the residual.

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


def planned(rows: Sequence[Row]) -> Callable[..., float]:
    """Plan rows in their order: by compiled code where there is any, else by torch.

    It returns the sum of the products of images, and is called without a word or, where rows are residuals, with
    weight and scale.
    """
    runs = [_planned(list(run)) for _, run in itertools.groupby(rows, type)]
    if len(runs) == 1:
        return runs[0]
    return lambda: sum(run() for run in runs)


def _planned(rows: list[Any]) -> Callable[..., float]:
    """Plan rows of one form: a table of addresses, see `kernels.sums`, `kernels.images` and `kernels.residuals`."""
    code, first = kernels(), rows[0]
    short, value = first.out.dtype, first.out.dtype
    kinds = [short, value]
    most = max([len(row.products) for row in rows])
    parts: list[tuple[torch.Tensor | None, ...]]
    if isinstance(first, Sum):
        parts = [(row.out, row.base, row.scale, None, *chain(*row.products)) for row in rows]
    elif isinstance(first, Image):
        parts = [(row.out, None, row.excess, row.own, *chain(*row.products)) for row in rows]
    else:
        value = first.base.dtype
        kinds = [short, short, value]
        parts = [(row.out, row.base, row.excess, row.own, *chain(*row.products)) for row in rows]
    kinds = [short, value, value, value, *kinds * most]
    every = [part for row in parts for part in (*row, *[None] * (len(kinds) - len(row)))]
    if code is None or not is_plain(zip(every, kinds * len(rows), strict=True)):

        def by_torch(*scalars: float) -> float:
            products = [product for row in rows if (product := row(*scalars)) is not None]
            return sum(torch.stack(products).tolist()) if products else 0.0

        return by_torch
    addresses = np.array([0 if part is None else part.data_ptr() for part in every], np.int64)
    addresses = addresses.reshape(len(rows), -1)
    counts = np.array([(len(row.products), len(row.out)) for row in rows], np.int64)
    table = np.concatenate([addresses[:, :4], counts, addresses[:, 4:]], axis=1)
    short_zero, zero = torch.empty(0, dtype=short).numpy(), torch.empty(0, dtype=value).numpy()
    # The numbers of rows stay where they are as long as these are kept.
    if isinstance(first, Image):
        return lambda kept=rows: code.images(table, short_zero)
    if isinstance(first, Sum):
        return lambda kept=rows: code.sums(table, short_zero) or 0.0

    def left(weight: float = 1.0, scale: float = 1.0, kept: object = rows) -> float:
        code.residuals(table, weight, scale, short_zero, zero)
        return 0.0

    return left


_ALL = slice(0, None)


def dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the inner product of two vectors, the second of longer numbers if they differ."""
    code, arrays = kernels(), arrays_of(a, b)
    if code is None or arrays is None:
        return float(torch.dot(a.reshape(-1).to(b.dtype), b.reshape(-1)))
    return code.dot(arrays[0].reshape(-1), arrays[1].reshape(-1))


def adding(x: torch.Tensor, a: torch.Tensor) -> Callable[..., None]:
    """Plan ``x = x + factor a``, ``(C, M)``, for a factor and a stretch of columns."""
    code, arrays = kernels(), arrays_of(x, a)

    def by_torch(factor: float, stretch: slice = _ALL) -> None:
        for of, more in zip(x[:, stretch], a[:, stretch], strict=True):
            of.add_(more.to(of.dtype), alpha=factor)

    if code is None or arrays is None:
        return by_torch
    return lambda factor, stretch=_ALL: code.add(*arrays, factor, *_columns(stretch, x))


def turning(p: torch.Tensor, z: torch.Tensor, r: torch.Tensor) -> Callable[..., float]:
    """Plan ``p = z + factor p``, ``(C, M)``, for a factor and a stretch of columns, and returns ``p r`` there."""
    code, arrays = kernels(), arrays_of(p, z, r)

    def by_torch(factor: float, stretch: slice = _ALL) -> float:
        for of, more in zip(p[:, stretch], z[:, stretch], strict=True):
            torch.add(more, of, alpha=factor, out=of)
        pairs = zip(p[:, stretch], r[:, stretch], strict=True)
        return sum(torch.stack([torch.dot(*pair) for pair in pairs]).tolist())

    if code is None or arrays is None:
        return by_torch
    return lambda factor, stretch=_ALL: code.turn(*arrays, factor, *_columns(stretch, p))


def stepping(r: torch.Tensor, q: torch.Tensor) -> Callable[[float], float]:
    """Plan ``r = r + factor q`` for a factor, and returns ``r r``."""
    r, q = r.view(-1), q.view(-1)
    code, arrays = kernels(), arrays_of(r, q)
    if code is not None and arrays is not None:
        return lambda factor: code.step(*arrays, factor)

    def by_torch(factor: float) -> float:
        r.add_(q, alpha=factor)
        return float(torch.dot(r, r))

    return by_torch


def _columns(stretch: slice, vector: torch.Tensor) -> tuple[int, int]:
    return stretch.start, vector.shape[1] if stretch.stop is None else stretch.stop
