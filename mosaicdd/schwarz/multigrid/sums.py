"""Sums of products over the nodes of a class: what every step of a cycle is made of, planned once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.vector_code import HEAD, Kind, compiled

T = TypeVar("T")
Factors = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Sum:
    """``out = (base + sum_i a_i b_i) scale``; of stretches, all of the same length.

    Parameters
    ----------
    base, scale
        None for 0 and for 1. The base may be the result itself.
    own
        From which each ``b_i`` is subtracted first; None if it is not.
    """

    out: torch.Tensor
    base: torch.Tensor | None
    products: list[Factors]
    scale: torch.Tensor | None = None
    own: torch.Tensor | None = None

    @property
    def kind(self) -> Kind:
        """What numbers it is of."""
        return Kind(self.out.dtype, self.out.dtype, self.out.dtype)

    @property
    def ends(self) -> tuple[torch.Tensor | None, ...]:
        """What a row begins with."""
        return self.out, self.base, self.scale, self.own

    def __call__(self) -> None:
        """Compute it."""
        out, so_far = self.out, self.base
        for first, second in self.products:
            factor = second if self.own is None else self.own - second
            if so_far is None:
                torch.mul(first, factor, out=out)
            else:
                torch.addcmul(so_far, first, factor, out=out)
            so_far = out
        if so_far is not None and self.scale is not None:
            torch.mul(so_far, self.scale, out=out)
        elif so_far is not None and so_far is not out:
            out.copy_(so_far)


@dataclass(frozen=True)
class Left:
    """``out = (base - sum_i a_i (own - b_i)) scale``, what equations leave, computed as base, own and ``b_i`` are.

    The scale is one number, that of a call.
    """

    out: torch.Tensor
    base: torch.Tensor
    products: list[Factors]
    own: torch.Tensor

    @property
    def kind(self) -> Kind:
        """What numbers it is of; all first factors are of one."""
        return Kind(self.products[0][0].dtype, self.base.dtype, self.out.dtype, left=True)

    @property
    def ends(self) -> tuple[torch.Tensor | None, ...]:
        """What a row begins with."""
        return self.out, self.base, None, self.own

    def __call__(self, scale: float) -> None:
        """Compute it."""
        left = self.base.clone()
        for a, b in self.products:
            left.addcmul_(a, b - self.own)
        torch.mul(left, scale, out=self.out)


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


def planned(sums: Sequence[Sum | Left]) -> Callable[..., None]:
    """Return what computes sums in their order: compiled code where there is any, and torch's calls elsewhere.

    It is called without a word, or, where they are `Left`, with their scale.
    """

    def by_torch(*scale: float) -> None:
        for each in sums:
            each(*scale)

    kinds = {each.kind for each in sums}
    run = compiled(*kinds) if len(kinds) == 1 and all(map(_is_plain, sums)) else None
    if run is None:
        return by_torch
    table = np.zeros((len(sums), HEAD + 2 * max((len(s.products) for s in sums), default=0)), int)
    for row, each in zip(table, sums, strict=True):
        row[:4] = [0 if end is None else end.data_ptr() for end in each.ends]
        row[4:HEAD] = len(each.products), len(each.out)
        factors = [factor.data_ptr() for product in each.products for factor in product]
        row[HEAD : HEAD + len(factors)] = factors

    where = table.ctypes.data, *table.shape

    def by_code(*scale: float, kept: object = (table, sums)) -> None:
        """Compute them; their numbers stay where they are as long as they are kept."""
        if scale:
            table[:, 2] = np.float64(*scale).view(np.int64)
        run(*where)

    return by_code


def _is_plain(each: Sum | Left) -> bool:
    """Say whether all that a sum is made of is contiguous numbers of its kinds, of a processor."""
    kind = each.kind
    out, *ends = each.ends
    parts = [(out, kind.out), *((end, kind.value) for end in ends)]
    for a, b in each.products:
        parts += (a, kind.factor), (b, kind.value)
    return all(
        part.dtype == dtype and part.device.type == "cpu" and part.is_contiguous()
        for part, dtype in parts
        if isinstance(part, torch.Tensor)
    )
